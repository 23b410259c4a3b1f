"""LoCoMo: adversarial questions, categories, dates, token metrics and the judge.

LoCoMo asks questions about long conversations of two people. A question has a category from 1 to 5,
and evidence: the turns that hold the answer (D2:1 is the first turn of session 2). Questions of
category 5 are adversarial: they ask about something that was never said. Token F1 compares the
words of an answer with the gold answer; the metric "judge" asks a model whether the answer is
right.

`Locomo.load()` without a file reads the bundled sample.
"""

from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.benchmark import Benchmark
from mempiler.data.check import check
from mempiler.data.judge import Verdict
from mempiler.data.locomo import NOT_MENTIONED, Locomo, parse_date
from mempiler.errors import UserError

from .conftest import FixedJudge
from .forms import EXAMPLE_FILES, load, put, write_files

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def test_a_check_counts_what_a_file_holds(tmp_path: Path) -> None:
    """The example file has one conversation with one question, which is of category 4."""
    report = check("locomo", write_files(tmp_path, EXAMPLE_FILES["locomo"]))

    assert report.findings == ()
    assert report.counts == {
        "conversations": 1,
        "sessions": 2,
        "turns": 3,
        "image turns": 1,
        "questions": 1,
        "category 1 multi-hop": 0,
        "category 2 temporal": 0,
        "category 3 open-domain": 0,
        "category 4 single-hop": 1,
        "category 5 adversarial": 0,
    }


WHO_HAS_A_DOG = {
    "question": "Who has a dog?",
    "category": 5,
    "adversarial_answer": "Bo",
    "evidence": ["D2:1"],
}
"""An adversarial question: nobody spoke of a dog, and who answers "Bo" has made that up."""


def test_the_gold_answer_of_an_adversarial_question_is_the_refusal(tmp_path: Path) -> None:
    """An adversarial question (category 5) asks about something that was never said."""
    [example] = load(tmp_path, "locomo", put("qa", value=[WHO_HAS_A_DOG])).examples
    assert example.answer == NOT_MENTIONED
    assert example.adversarial_answer == "Bo"


def test_the_feedback_on_an_adversarial_question_does_not_name_its_answer(tmp_path: Path) -> None:
    """Nobody said who has a dog, and the answer "Bo" of the file is made up.

    Optimizers read feedback, and could write "Bo" into a prompt.
    """
    loaded = load(tmp_path, "locomo", put("qa", value=[WHO_HAS_A_DOG]))

    feedback = loaded.score(loaded.examples[0], dspy.Prediction(answer="tea")).feedback

    assert "not mentioned" in feedback
    assert "D2:1" in feedback
    assert "Bo" not in feedback


@pytest.mark.parametrize("categories", ["1, 4", ["1", "4"], [1, 4]])
def test_some_categories_are_chosen_and_questions_keep_their_ids(
    tmp_path: Path, categories: Any
) -> None:
    """The four questions, conv-1:0 to conv-1:3, are of the categories 2, 1, 4 and 5."""

    def ask_of_four_categories(conversation: Any) -> None:
        [question] = conversation["qa"]
        conversation["qa"] = [{**question, "category": category} for category in (2, 1, 4, 5)]

    first, second = load(tmp_path, "locomo", ask_of_four_categories, categories=categories).examples

    assert (first.id, first.category) == ("conv-1:1", "1")
    assert (second.id, second.category) == ("conv-1:2", "4")


@given(time=st.datetimes(min_value=datetime(1000, 1, 1), max_value=datetime(9999, 1, 1)))
def test_every_english_date_is_read(time: datetime) -> None:
    """The released file has dates such as "1:56 pm on 8 May, 2023"."""
    hour = time.hour % 12 or 12
    half_of_day = "pm" if time.hour >= 12 else "am"
    month = MONTHS[time.month - 1]
    text = f"{hour}:{time:%M} {half_of_day} on {time.day} {month}, {time.year}"

    assert parse_date(text) == time.replace(second=0, microsecond=0)


def load_with_evidence(folder: Path, *evidence: Any, **options: Any) -> Benchmark:
    """Load a conversation with a question for each of these lists of evidence."""

    def ask_with_evidence(row: Any) -> None:
        [question] = row["qa"]
        row["qa"] = [{**question, "evidence": turn_ids} for turn_ids in evidence]

    return load(folder, "locomo", ask_with_evidence, **options)


def test_by_default_questions_without_evidence_are_kept(tmp_path: Path) -> None:
    """Evidence is a list of turns. "D" names no turn, and there is no turn D77:1."""
    loaded = load_with_evidence(tmp_path, ["D2:1"], [], ["D"], "D77:1")
    assert len(loaded.examples) == 4


def test_the_option_evidenced_leaves_out_questions_without_evidence(tmp_path: Path) -> None:
    """The authors of the method Memory-R2 trained and tested without these questions.

    They keep a question whose evidence has the form of turn ids, even if there is no such turn.
    """
    without_evidence: list[str] = []
    without_turn_ids = ["D"]
    with_unknown_turn = ["D77:1"]

    loaded = load_with_evidence(
        tmp_path, ["D2:1"], without_evidence, without_turn_ids, with_unknown_turn, evidenced=True
    )

    assert [example.id for example in loaded.examples] == ["conv-1:0", "conv-1:3"]


def test_no_answer_scores_0(tmp_path: Path) -> None:
    loaded = load(tmp_path, "locomo")

    score = loaded.score(loaded.examples[0], dspy.Prediction(answer=None))

    assert score.value == 0
    assert "No answer" in score.feedback


def ask_for_inference(conversation: Any) -> None:
    """Make the only question one of category 3, whose gold answers give a reason."""
    conversation["qa"][0].update(
        question="Does she sail?", category=3, answer="Likely no; though she swims"
    )


def test_f1_and_bleu1_leave_out_the_reason_in_a_gold_answer(tmp_path: Path) -> None:
    """The gold answer is "Likely no; though she swims". The reason follows the semicolon."""
    loaded = load(tmp_path, "locomo", ask_for_inference)

    score = loaded.score(loaded.examples[0], dspy.Prediction(answer="likely no"))

    assert score.parts == {"f1": 1, "bleu1": 1}


def test_the_judge_sees_the_reason_in_a_gold_answer(tmp_path: Path) -> None:
    judge = FixedJudge(Verdict(True))
    loaded = load(tmp_path, "locomo", ask_for_inference, metric="judge")
    loaded = loaded.with_judges(lambda judge_class: judge)

    loaded.score(loaded.examples[0], dspy.Prediction(answer="never"))

    assert judge.calls == [("Does she sail?", "Likely no; though she swims", "never")]


def test_the_verdict_of_the_judge_is_the_score() -> None:
    """The judge calls "never" right, although it shares no word with the gold answer."""
    judge = FixedJudge(Verdict(True))
    loaded = Locomo.load(metric="judge").with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], dspy.Prediction(answer="never"))

    assert score.value == 1.0
    assert score.parts["judge"] == 1.0
    assert score.parts["f1"] == 0.0


def test_without_categories_a_judge_is_asked_about_all_but_category_5() -> None:
    """A judge compares with a gold answer, which the questions of category 5 lack."""
    examples = Locomo.load(metric="judge").examples
    assert {example.category for example in examples} == {"1", "2", "3", "4"}


def test_a_judge_is_never_asked_about_category_5() -> None:
    with pytest.raises(UserError, match="category 5 has no gold answer"):
        Locomo.load(metric="judge", categories="4,5")
