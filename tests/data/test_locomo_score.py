"""LoCoMo's official scores, worked by hand; every rule is that of LoCoMo task_eval/evaluation.py.

P is precision, R recall, F1 = 2PR/(P+R) over multisets of Porter stems.
"""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.locomo.benchmark import Locomo


def one_question(folder: Path, category: int, **row: Any) -> Locomo:
    turn = {"speaker": "Ann", "dia_id": "D1:1", "text": "Hello."}
    talk = {"session_1": [turn], "session_1_date_time": "1:56 pm on 8 May, 2023"}
    qa = [{"question": "What?", "evidence": ["D1:1"], "category": category, **row}]
    path = folder / "one.json"
    path.write_text(json.dumps([{"sample_id": "conv-1", "conversation": talk, "qa": qa}]))
    return Locomo.load(path)


CASES = [
    # category 2: one F1 over the whole answer
    (2, "7 May 2023", "7 May 2023", 1.0),  # P 3/3, R 3/3
    (2, "7 May 2023", "May 2023", 0.8),  # P 2/2, R 2/3: 2*(2/3)/(5/3)
    (2, "The week before 9 June 2023", "the week of 9 June 2023", 0.8),  # "the" goes; 4 of 5 shared: P = R = 4/5
    (2, "19 January, 2023", "19 January 2023", 1.0),  # commas are removed, not parted at
    (2, 2022, "in 2022", 2 / 3),  # a number is read as text; P 1/2, R 1
    (2, "2022", "last year", 0.0),  # nothing shared
    # category 3: as category 2, against the gold up to its first semicolon
    (3, "Likely no; though she likes reading", "likely no", 1.0),  # gold is [like, no]
    (3, "Likely no; though she reads", "likely no though she reads", 4 / 7),  # P 2/5, R 2/2: 2*.4/1.4
    (3, "National park; the outdoors", "national park and a theme park", 2 / 3),  # park counts once: P 2/4, R 2/2
    # category 4: one F1; neither semicolons nor commas part the gold
    (4, "paint painting", "painted paintings", 1.0),  # all four stems are "paint"
    (4, "dog cat", "The dog and a cat.", 1.0),  # a, and, the and punctuation are removed
    (4, "mother's mug", "mothers mug", 1.0),  # the apostrophe is removed, the word not cut there
    (4, "self-care", "self care", 0.0),  # likewise: [selfcar] shares nothing with [self, care]
    (4, "dog cat", "dog dog dog", 0.4),  # one dog counts: P 1/3, R 1/2: (1/3)/(5/6)
    (4, "tea; coffee", "tea", 2 / 3),  # P 1/1, R 1/2
    (4, "tea, coffee", "coffee", 2 / 3),  # P 1/1, R 1/2
    (4, "tea", "", 0.0),  # no words
    (4, "tea", "the", 0.0),  # only an article: no words either
    # category 1: mean over gold parts of the best F1 over the answer's parts
    (1, "pottery, camping", "camping", 0.5),  # parts 0 and 1
    (1, "pottery, camping", "Camping, pottery", 1.0),  # the order is free
    (1, "pottery, camping", "camping pottery", 2 / 3),  # one part, against each gold P 1/2, R 1
    (1, "pottery, camping", "pottery, camping, chess", 1.0),  # parts too many cost nothing
    (1, "red car, blue bike", "red bike, blue car", 0.5),  # each gold part finds P 1/2, R 1/2 at best
    (1, "pottery,", "pottery", 0.5),  # the empty part behind the comma counts 0
    (1, "Single", "Single, since 2022", 1.0),  # the first part is the gold
    # category 5: whether a phrase of refusal is in the answer; the gold does not matter
    (5, None, "Not mentioned in the conversation", 1.0),
    (5, None, "There is No Information Available on this.", 1.0),
    (5, None, "It isn't mentioned", 0.0),  # "n't mentioned" is not "not mentioned"
    (5, None, "I do not know", 0.0),
    (5, "No", "No", 0.0),
]


@pytest.mark.parametrize(("category", "gold", "answer", "score"), CASES)
def test_official_score(tmp_path: Path, category: int, gold: Any, answer: str, score: float) -> None:
    row = {"adversarial_answer": "Yes"} if gold is None else {"answer": gold}
    benchmark = one_question(tmp_path, category, **row)
    result = benchmark.score(benchmark.examples[0], dspy.Prediction(answer=answer))
    assert result.value == pytest.approx(score)
    assert result.parts["f1"] == result.value


@pytest.mark.parametrize("prediction", [dspy.Prediction(), dspy.Prediction(answer=None), dspy.Prediction(answer="")])
def test_no_answer_scores_0_and_is_named(tmp_path: Path, prediction: dspy.Prediction) -> None:
    benchmark = one_question(tmp_path, 4, answer="tea")
    result = benchmark.score(benchmark.examples[0], prediction)
    assert result.value == 0
    assert "No answer" in result.feedback


def test_bleu1_is_reported_against_the_same_gold(tmp_path: Path) -> None:
    benchmark = one_question(tmp_path, 3, answer="Likely no; though she reads")
    assert benchmark.score(benchmark.examples[0], dspy.Prediction(answer="likely no")).parts["bleu1"] == 1


def test_feedback_of_an_adversarial_question_does_not_show_the_trap(tmp_path: Path) -> None:
    benchmark = one_question(tmp_path, 5, adversarial_answer="a trap")
    feedback = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="tea")).feedback
    assert "not mentioned" in feedback
    assert "D1:1" in feedback
    assert "a trap" not in feedback


@pytest.mark.parametrize(("category", "counts"), [(1, True), (2, True), (3, True), (4, True), (5, False)])
def test_only_category_5_is_left_out_of_the_headline(tmp_path: Path, category: int, counts: bool) -> None:
    benchmark = one_question(tmp_path, category, answer="tea")
    assert benchmark.counts(benchmark.examples[0]) is counts
