"""BEAM and MemBench: scores and readings agree with those of the released code.

BEAM asks questions about long chats. The right answer is a rubric, a list of items, each of which a
model (the judge) scores; for some questions the items are events, whose order counts. MemBench asks
multiple-choice questions about messages of a user; the target steps are the messages that hold the
answer.

A case (of a file `.jsonl`) was made by running the released code: it has an input, and the expected
result. `assert_matches_authors_code` compares our result with it; see `conftest.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dspy
import pytest
from dspy import Example, Prediction
from dspy.utils.exceptions import AdapterParseError
from mempiler.data.beam.reader import ABILITIES
from mempiler.data.beam.scorer import (
    BlindRubricJudge,
    OfficialRubricScorer,
    SameEventJudge,
    align,
    official_table,
    order_scores,
)
from mempiler.data.catalog import benchmark
from mempiler.data.common_scorers import TokenF1
from mempiler.data.membench import MemBenchAccuracy
from mempiler.programs.adapter import adapter
from mempiler.reading.answer import read_answer
from mempiler.reading.choices import chosen_letter
from mempiler.signatures.memory_r2 import AnswerFromMemories

from .conftest import AssertMatches, Case

# BEAM: the order of events.


class KnownPairs:
    """A judge of pairs whose verdicts are known, in place of one that asks a model.

    Args:
        events: The events of the rubric.
        lines: The lines of the answer.
        same: Positions of an event and a line that are the same.
    """

    def __init__(
        self, events: Sequence[str], lines: Sequence[str], same: Sequence[tuple[int, int]]
    ) -> None:
        self.same_pairs = {(events[event], lines[line]) for event, line in same}
        self.number_of_questions = 0

    def __call__(self, event: str, line: str) -> bool:
        self.number_of_questions += 1
        return (event, line) in self.same_pairs


@pytest.mark.cases_from_authors_code("beam", "beam-al-*")
def test_lines_are_aligned_with_events_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """Each line of an answer is aligned with the first event that the judge calls the same.

    In a case, "reference" has the events, "system" has the lines, and "same" has pairs of places:
    [2, 0] means that event 2 and line 0 are the same.

    Example of a case:
        input     {"reference": ["plant the seeds", "water the bed", "thin the rows"],
                  "system": ["thin", "sow", "thin again"], "same": [[2, 0], [0, 1], [2, 2]]}
        expected  {"aligned": ["thin the rows", "plant the seeds", "thin again"],
                  "pairs_asked": 5}
    """
    events = case["input"]["reference"]
    lines = case["input"]["system"]
    judge = KnownPairs(events, lines, case["input"]["same"])

    aligned = align(events, lines, judge)

    assert_matches_authors_code({"aligned": aligned, "pairs_asked": judge.number_of_questions})


@pytest.mark.cases_from_authors_code("beam", "beam-eo-*")
def test_the_order_of_events_is_scored_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """The answer gets precision, recall and F1 for its events, and Kendall's tau for their order.

    In a case, "reference" has the events, "system" has the lines of the answer, and "same" has
    pairs of places: [0, 0] means that event 0 and line 0 are the same.

    Example of a case:
        input     {"reference": ["plant the seeds", "water the bed", "thin the rows",
                  "pull the weeds"], "system": ["sowing", "watering", "thinning"],
                  "same": [[0, 0], [1, 1], [2, 2]]}
        expected  {"precision": 1.0, "recall": 0.75, "f1": 0.8571428571428571,
                  "tau_norm": 1.0, "final_score": 0.8571428571428571}
    """
    events = case["input"]["reference"]
    lines = case["input"]["system"]
    aligned = align(events, lines, KnownPairs(events, lines, case["input"]["same"]))

    scores = order_scores(events, aligned)

    # A figure that is undefined is NaN here, and null in the cases.
    assert_matches_authors_code(
        {name: None if math.isnan(value) else value for name, value in scores.items()}
    )


@pytest.mark.cases_from_authors_code("beam", "beam-eq-*")
def test_the_verdict_on_a_pair_is_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, scripted: Any
) -> None:
    """A judge says whether an event and a line of an answer are the same.

    The reply "YES" is read as True. A reply that cannot be read is None.

    Example of a case:
        input     {"reply": "YES"}
        expected  true
    """
    completion = f"[[ ## verdict ## ]]\n{case['input']['reply']}"
    judge = SameEventJudge(scripted(lambda *call: completion), adapter())

    try:
        verdict = judge("sowing", "I sowed")
    except AdapterParseError:
        verdict = None

    assert_matches_authors_code(verdict)


# BEAM: items of a rubric.


def rubric_judge(scripted: Any, replies: list[str]) -> BlindRubricJudge:
    """Return a judge with these replies, and empty ones after them."""

    def reply(kind: str, text: str, number: int) -> str:
        return replies[number - 1] if number <= len(replies) else ""

    return BlindRubricJudge(scripted(reply), adapter())


def score_parts(
    rubric: list[str],
    ability: str,
    answer: str,
    judge: BlindRubricJudge,
    pair_judge: KnownPairs | None = None,
) -> dict[str, float]:
    """Return the parts of the score of an answer by its rubric."""
    judges = {BlindRubricJudge: judge, SameEventJudge: pair_judge}
    scorer = OfficialRubricScorer().with_judges(lambda kind: judges[kind])
    example = dspy.Example(question="?", rubric=rubric, category=ability, evidence=())
    return dict(scorer.score(example, dspy.Prediction(answer=answer)).parts)


@pytest.mark.cases_from_authors_code("beam", "beam-jd-*")
def test_items_of_a_rubric_are_scored_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, scripted: Any
) -> None:
    r"""The judge scores every item of a rubric, and the mean of its scores is the result.

    None is expected where a reply cannot be read.

    Example of a case:
        input     {"ability": "preference_following", "replies": ["{\"score\": \"1\",
                  \"reason\": \"text\"}"]}
        expected  {"llm_judge_score": 1.0}
    """
    replies = case["input"]["replies"]
    rubric = [f"item {number}" for number in range(len(replies))]
    judge = rubric_judge(scripted, replies)

    try:
        parts = score_parts(rubric, case["input"]["ability"], "An answer.", judge)
    except AdapterParseError:
        ours = None
    else:
        ours = {"llm_judge_score": parts["official"]}

    assert_matches_authors_code(ours)


@pytest.mark.cases_from_authors_code("beam", "beam-ev-*")
def test_an_answer_about_the_order_of_events_is_scored_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, scripted: Any
) -> None:
    r"""The released scores are those of the order, and the judge's scores of the items.

    Example of a case:
        input     {"rubric": ["plant the seeds", "water the bed", "thin the rows"],
                  "answer": "1. sowing\n2. watering\n3. thinning", "same": [[0, 0], [1, 1],
                  [2, 2]]}
        expected  {"f1": 1.0, "tau_norm": 1.0, "llm_judge_score": 1.0}
    """
    rubric = case["input"]["rubric"]
    answer = case["input"]["answer"]
    lines = answer.split("\n")
    pair_judge = KnownPairs(rubric, lines, case["input"]["same"])
    judge = rubric_judge(scripted, case["input"]["replies"])

    parts = score_parts(rubric, "event_ordering", answer, judge, pair_judge)

    order = order_scores(rubric, align(rubric, lines, pair_judge))
    assert parts["official"] == pytest.approx(order["tau_norm"])
    assert_matches_authors_code({**order, "llm_judge_score": parts["rubric_items"]})


def rows_of_results(chats: dict[str, Any], name: str) -> list[SimpleNamespace]:
    """Return the scored questions of all chats, from the file of results with this name."""
    rows: list[SimpleNamespace] = []
    for chat, files in chats.items():
        for ability, scores in files[name].items():
            for number, score in enumerate(scores):
                parts = {} if score is None else {"score": score}
                row = SimpleNamespace(
                    id=f"100K/{chat}:{ability}:{number}",
                    category=ability,
                    failure=None,
                    parts=parts,
                )
                rows.append(row)
    return rows


@pytest.mark.cases_from_authors_code("beam", "beam-ag-*")
def test_the_means_of_each_ability_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """A table has a row for each file of results, with the mean score of each ability.

    An ability is a kind of questions. A case has the scores of the questions about each chat.
    """
    table: list[dict[str, Any]] = []
    for name in case["input"]["row_names"]:
        rows = rows_of_results(case["input"]["chats"], name)
        means = official_table(cast("Any", rows), "score")
        means_by_ability = {ability: means.get(ability) for ability in ABILITIES}
        table.append({"RowName": name, **means_by_ability})

    assert_matches_authors_code(table)


# MemBench. Memory-R2 has released code for it too, whose cases begin with "r2".

CHOICES = {"A": "a walk", "B": "a swim", "C": "a nap", "D": "a book"}
RIGHT_OPTION = "B"
"""The right one of these in all examples that `read_trajectory` makes."""

ReadTrajectory = Callable[..., tuple[Example, ...]]


@pytest.fixture
def read_trajectory(tmp_path: Path) -> ReadTrajectory:
    """Return a function that writes a file of MemBench with one trajectory, and reads it.

    `read_trajectory(messages, target_step_ids)` returns the examples, i.e. questions about these
    messages. The options are `CHOICES`, and `RIGHT_OPTION` is the right one.
    """

    def read(messages: list[Any], target_step_ids: list[Any], **options: Any) -> Any:
        question = {
            "question": "Which?",
            "answer": CHOICES[RIGHT_OPTION],
            "choices": CHOICES,
            "ground_truth": RIGHT_OPTION,
            "target_step_id": target_step_ids,
        }
        trajectory = {"message_list": messages, "QA": question}
        file = tmp_path / "simple.json"
        file.write_text(json.dumps({"roles": [trajectory]}), encoding="utf-8")
        return benchmark("membench", file, **options).examples

    return read


def reward(example: Example, answer: str) -> float:
    """Return 1 if an answer is the letter of the right option, and 0 otherwise."""
    return MemBenchAccuracy().score(example, Prediction(answer=answer)).value


def recall_of_target_steps(example: Example, memory_index: list[int] | None) -> float | None:
    """Return how many of the target steps are among those that a memory found."""
    hits = [[f"D1:{step + 1}"] for step in memory_index or ()]
    return MemBenchAccuracy().retrieval_metrics(example, hits).get("target steps@10")


FORTY_MESSAGES = ["word"] * 40


@pytest.mark.cases_from_authors_code("membench", "mb-rc-*")
def test_recall_of_target_steps_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, read_trajectory: ReadTrajectory
) -> None:
    """A memory found the messages 4, 9 and 2. Of the two target steps, 2 and 7, it found one.

    Example of a case:
        input     {"memory_index": [4, 9, 2], "target_step_id": [2, 7]}
        expected  0.5
    """
    [example] = read_trajectory(FORTY_MESSAGES, case["input"]["target_step_id"])

    assert_matches_authors_code(recall_of_target_steps(example, case["input"]["memory_index"]))


@pytest.mark.cases_from_authors_code("membench", "mb-ep-*")
def test_reward_and_recall_of_an_action_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, read_trajectory: ReadTrajectory
) -> None:
    """An action has an answer ("response"), and the steps that it found ("memory_index").

    The answer "B" gets the reward 1, and "B." gets none.

    Example of a case:
        input     {"ground_truth": "B", "target_step_id": [1, 2],
                  "action": {"response": "B", "memory_index": [2, 0]}}
        expected  {"reward": 1, "recall": 0.5}
    """
    [example] = read_trajectory(FORTY_MESSAGES, case["input"]["target_step_id"])
    action = case["input"]["action"]

    ours = {
        "reward": reward(example, action["response"]),
        "recall": recall_of_target_steps(example, action["memory_index"]),
    }

    expected = case["expected"]
    assert_matches_authors_code(ours, {"reward": expected["reward"], "recall": expected["recall"]})


@pytest.mark.cases_from_authors_code("membench", "mb-cp-*")
def test_the_capacity_run_asks_at_the_same_moments_as_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, read_trajectory: ReadTrajectory
) -> None:
    """With `capacity=1` the same question is asked several times while the history grows.

    It is asked after step 1, 2 and 3 in the example. Each pair of "tokens_and_correct" has the
    length of the history in words, and 1 if the answer is "B".

    Example of a case:
        input     {"message_list": ["a", "b", "c"], "ground_truth": "B", "answers": ["B",
                  "A", "B"]}
        expected  {"asked_with_step_id": [1, 2, 3], "tokens_and_correct": [[1, 1], [2, 0],
                  [3, 1]]}
    """
    messages = case["input"]["message_list"]
    examples = read_trajectory(messages, case["input"]["target_step_id"], capacity=1)
    asked_at_steps: list[int] = []
    tokens_and_correct: list[list[float]] = []

    for example, answer in zip(examples, case["input"]["answers"], strict=True):
        texts = [turn.text for turn, _ in example.history.turns.values()]
        asked_at_steps.append(len(texts))
        number_of_words = len(" ".join(texts).split())
        tokens_and_correct.append([number_of_words, reward(example, answer)])

    assert_matches_authors_code(
        {"asked_with_step_id": asked_at_steps, "tokens_and_correct": tokens_and_correct}
    )


def evidence_texts(example: Example) -> list[str]:
    turns = example.history.turns
    return [turns[turn_id][0].text for turn_id in example.evidence]


@pytest.mark.cases_from_authors_code("membench", "mb-sp-*")
def test_target_steps_are_the_same_messages_before_and_after_the_authors_loader(
    case: Case, assert_matches_authors_code: AssertMatches, read_trajectory: ReadTrajectory
) -> None:
    """The released loader puts noise between the messages, and moves the steps.

    A case has a trajectory before and after that; the evidence has to be the same texts in both.

    Example of a case:
        input     {"message_list": [{"message": "x", "place": "Faro", "time": "'noon'"},
                  {"message": "y", "place": "Faro", "time": "'noon'"}],
                  "target_step_id": [0, 1]}
        expected  {"message_list": ["n0a", "n0b", "n0c", "x (place: Faro; time'noon')",
                  "y (place: Faro; time'noon')", "n1a", "n1b", "n1c"], "target_step_id": [3,
                  4]}
    """
    before = case["input"]
    after = case["expected"]

    [example_before] = read_trajectory(before["message_list"], before["target_step_id"])
    [example_after] = read_trajectory(after["message_list"], after["target_step_id"])

    assert_matches_authors_code(evidence_texts(example_after), evidence_texts(example_before))


@pytest.mark.cases_from_authors_code("membench", "mb-cl-*", "r2-op-*")
def test_a_reply_chooses_the_same_option_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    r"""A reply that chooses no option, or several, is None.

    Example of a case:
        input     {"reply": " B \n"}
        expected  "B"
    """
    choices = case["input"].get("choices", CHOICES) or {}
    options = [f"({letter}) {text}" for letter, text in choices.items()]

    letter = chosen_letter(case["input"]["reply"], options)

    # "(b)" here is "B" in the cases.
    assert_matches_authors_code(letter.strip("()").upper() if letter else letter)


@pytest.mark.cases_from_authors_code("membench", "r2-ex-*")
def test_answers_of_memory_r2_are_read_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    r"""Memory-R2 is a method that uses MemBench too. Its model writes "Answer:" first.

    Example of a case:
        input     {"reply": "**Answer:** Faro\nbecause of the sea"}
        expected  "Faro\nbecause of the sea"
    """
    assert_matches_authors_code(
        read_answer(AnswerFromMemories, case["input"]["reply"]).outputs["answer"]
    )


@pytest.mark.cases_from_authors_code("membench", "r2-f1-*")
def test_f1_of_memory_r2_is_that_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches
) -> None:
    """F1 compares the words of an answer with those of the right one, without "the".

    Example of a case:
        input     {"prediction": "The old town, the old port.", "reference": "old town"}
        expected  {"f1": 0.6666666666666666}
    """
    example = Example(answer=case["input"]["reference"])
    prediction = Prediction(answer=case["input"]["prediction"])

    assert_matches_authors_code(TokenF1().score(example, prediction).value, case["expected"]["f1"])


@pytest.mark.cases_from_authors_code("membench", "r2-tu-*")
def test_turns_of_memory_r2_are_those_of_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, read_trajectory: ReadTrajectory
) -> None:
    """A session of MemBench is cut into turns with the ids "D3:1", "D3:2" and so on.

    In the case, `session_index` is 2, so two empty sessions come before it.
    """
    empty_sessions: list[Any] = [[]] * case["input"]["session_index"]
    [example] = read_trajectory([*empty_sessions, case["input"]["session"]], [])

    # We write place and time in brackets behind a message, the released code does not.
    ours = [[turn.text.partition(" (")[0], turn.id] for turn, _ in example.history.turns.values()]

    assert_matches_authors_code(ours, [[turn["text"], turn["dia_id"]] for turn in case["expected"]])


@pytest.mark.cases_from_authors_code("membench", "r2-it-*")
def test_items_of_memory_r2_are_scored_as_in_the_authors_code(
    case: Case, assert_matches_authors_code: AssertMatches, read_trajectory: ReadTrajectory
) -> None:
    """An answer counts if it is the letter of the right option: "Faro" does not, if that is "B".

    A case of Memory-R2 has questions of MemBench, which are called items, and the answers to them.
    It expects `option_acc` of each item: 1.0 where the answer counts, otherwise 0.0.
    """
    # What our question is about does not matter, as long as its right option is that of the case.
    [example] = read_trajectory(messages=["word"], target_step_ids=[0])
    scores: list[dict[str, float]] = []

    for item in case["input"]["items"]:
        assert item["ground_truth"] == RIGHT_OPTION
        scores.append({"option_acc": reward(example, answer=item["response"])})

    assert_matches_authors_code(scores)
