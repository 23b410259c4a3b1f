"""BEAM and MemBench: scores and readings agree with those of the released code.

BEAM asks questions about long chats. The right answer is a rubric, a list of items, each of which a
model (the judge) scores; for some questions the items are events, whose order counts. MemBench asks
multiple-choice questions about messages of a user; the target steps are the messages that hold the
answer.

A case (of a file `.jsonl`) was made by running the released code: it has an input, and the expected
result. `assert_agrees` compares our result with it; see `conftest.py`.
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

from .conftest import AssertAgrees, Case

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


@pytest.mark.vectors("beam", "beam-al-*")
def test_lines_are_aligned_with_events_as_released(case: Case, assert_agrees: AssertAgrees) -> None:
    """Each line of an answer is aligned with the first event that the judge calls the same.

    A case has events ("plant the seeds"), lines ("sow"), and the pairs that are the same; it
    expects the aligned texts, and how many pairs the judge was asked about.
    """
    events = case["input"]["reference"]
    lines = case["input"]["system"]
    judge = KnownPairs(events, lines, case["input"]["same"])

    aligned = align(events, lines, judge)

    assert_agrees({"aligned": aligned, "pairs_asked": judge.number_of_questions})


@pytest.mark.vectors("beam", "beam-eo-*")
def test_the_order_of_events_is_scored_as_released(case: Case, assert_agrees: AssertAgrees) -> None:
    """A case has events and lines, and expects how well their orders agree.

    The figures are precision, recall, F1, and Kendall's tau.
    """
    events = case["input"]["reference"]
    lines = case["input"]["system"]
    aligned = align(events, lines, KnownPairs(events, lines, case["input"]["same"]))

    scores = order_scores(events, aligned)

    # A figure that is undefined is NaN here, and null in the vectors.
    assert_agrees({name: None if math.isnan(value) else value for name, value in scores.items()})


@pytest.mark.vectors("beam", "beam-eq-*")
def test_the_verdict_on_a_pair_is_read_as_released(
    case: Case, assert_agrees: AssertAgrees, scripted: Any
) -> None:
    """A judge says whether an event and a line of an answer are the same.

    The reply "YES" is read as True. A reply that cannot be read is None.
    """
    completion = f"[[ ## verdict ## ]]\n{case['input']['reply']}"
    judge = SameEventJudge(scripted(lambda *call: completion), adapter())

    try:
        verdict = judge("sowing", "I sowed")
    except AdapterParseError:
        verdict = None

    assert_agrees(verdict)


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


@pytest.mark.vectors("beam", "beam-jd-*")
def test_items_of_a_rubric_are_scored_as_released(
    case: Case, assert_agrees: AssertAgrees, scripted: Any
) -> None:
    """A case has the judge's replies, such as {"score": "1"}, and expects the mean score.

    Each reply is about one item of the rubric; None is expected where a reply cannot be read.
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

    assert_agrees(ours)


@pytest.mark.vectors("beam", "beam-ev-*")
def test_an_answer_about_the_order_of_events_is_scored_as_released(
    case: Case, assert_agrees: AssertAgrees, scripted: Any
) -> None:
    """The released scores are those of the order, and the judge's scores of the items."""
    rubric = case["input"]["rubric"]
    answer = case["input"]["answer"]
    lines = answer.split("\n")
    pair_judge = KnownPairs(rubric, lines, case["input"]["same"])
    judge = rubric_judge(scripted, case["input"]["replies"])

    parts = score_parts(rubric, "event_ordering", answer, judge, pair_judge)

    order = order_scores(rubric, align(rubric, lines, pair_judge))
    assert parts["official"] == pytest.approx(order["tau_norm"])
    assert_agrees({**order, "llm_judge_score": parts["rubric_items"]})


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


@pytest.mark.vectors("beam", "beam-ag-*")
def test_the_table_is_that_of_the_released_code(case: Case, assert_agrees: AssertAgrees) -> None:
    """The table has a row for each file of results.

    A row has the mean score of each ability over all chats.
    """
    table: list[dict[str, Any]] = []
    for name in case["input"]["row_names"]:
        rows = rows_of_results(case["input"]["chats"], name)
        means = official_table(cast("Any", rows), "score")
        means_by_ability = {ability: means.get(ability) for ability in ABILITIES}
        table.append({"RowName": name, **means_by_ability})

    assert_agrees(table)


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


@pytest.mark.vectors("membench", "mb-rc-*")
def test_recall_of_target_steps_is_the_released_one(
    case: Case, assert_agrees: AssertAgrees, read_trajectory: ReadTrajectory
) -> None:
    """Two target steps, 2 and 7, of which a memory found only step 2 make a recall of 0.5."""
    [example] = read_trajectory(FORTY_MESSAGES, case["input"]["target_step_id"])

    assert_agrees(recall_of_target_steps(example, case["input"]["memory_index"]))


@pytest.mark.vectors("membench", "mb-ep-*")
def test_reward_and_recall_of_an_action_are_the_released_ones(
    case: Case, assert_agrees: AssertAgrees, read_trajectory: ReadTrajectory
) -> None:
    """An action has an answer, and the steps that it found.

    The answer "B" gets the reward 1, "B." gets none; without any steps the recall is 0.
    """
    [example] = read_trajectory(FORTY_MESSAGES, case["input"]["target_step_id"])
    action = case["input"]["action"]

    ours = {
        "reward": reward(example, action["response"]),
        "recall": recall_of_target_steps(example, action["memory_index"]),
    }

    expected = case["expected"]
    assert_agrees(ours, {"reward": expected["reward"], "recall": expected["recall"]})


@pytest.mark.vectors("membench", "mb-cp-*")
def test_the_capacity_run_asks_at_the_released_moments(
    case: Case, assert_agrees: AssertAgrees, read_trajectory: ReadTrajectory
) -> None:
    """With `capacity=1` the same question is asked several times while the history grows.

    A case has one answer for each time. It expects after which steps it was asked, how long the
    history was, and whether the answer was right.
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

    assert_agrees({"asked_with_step_id": asked_at_steps, "tokens_and_correct": tokens_and_correct})


def evidence_texts(example: Example) -> list[str]:
    turns = example.history.turns
    return [turns[turn_id][0].text for turn_id in example.evidence]


@pytest.mark.vectors("membench", "mb-sp-*")
def test_target_steps_are_the_same_messages_before_and_after_the_released_loader(
    case: Case, assert_agrees: AssertAgrees, read_trajectory: ReadTrajectory
) -> None:
    """The released loader puts noise between the messages, and moves the steps.

    A case has a trajectory before and after that; the evidence has to be the same texts in both.
    """
    before = case["input"]
    after = case["expected"]

    [example_before] = read_trajectory(before["message_list"], before["target_step_id"])
    [example_after] = read_trajectory(after["message_list"], after["target_step_id"])

    assert_agrees(evidence_texts(example_after), evidence_texts(example_before))


@pytest.mark.vectors("membench", "mb-cl-*", "r2-op-*")
def test_a_reply_chooses_the_released_option(case: Case, assert_agrees: AssertAgrees) -> None:
    """The reply "C" chooses the option C. A reply that chooses none is None."""
    choices = case["input"].get("choices", CHOICES) or {}
    options = [f"({letter}) {text}" for letter, text in choices.items()]

    letter = chosen_letter(case["input"]["reply"], options)

    # "(b)" here is "B" in the vectors.
    assert_agrees(letter.strip("()").upper() if letter else letter)


@pytest.mark.vectors("membench", "r2-ex-*")
def test_answers_of_memory_r2_are_read_as_released(case: Case, assert_agrees: AssertAgrees) -> None:
    """Memory-R2 is a method that is trained on MemBench as well.

    From "**Answer:** Faro" the answer "Faro" is read.
    """
    assert_agrees(read_answer(AnswerFromMemories, case["input"]["reply"]).outputs["answer"])


@pytest.mark.vectors("membench", "r2-f1-*")
def test_f1_of_memory_r2_is_the_released_one(case: Case, assert_agrees: AssertAgrees) -> None:
    """The answer "The old town, the old port." has an F1 of 2/3 where "old town" is right."""
    example = Example(answer=case["input"]["reference"])
    prediction = Prediction(answer=case["input"]["prediction"])

    assert_agrees(TokenF1().score(example, prediction).value, case["expected"]["f1"])


@pytest.mark.vectors("membench", "r2-tu-*")
def test_turns_of_memory_r2_are_the_released_ones(
    case: Case, assert_agrees: AssertAgrees, read_trajectory: ReadTrajectory
) -> None:
    """A session of MemBench is cut into turns with the ids "D3:1", "D3:2" and so on.

    In the case, `session_index` is 2, so two empty sessions come before it.
    """
    empty_sessions: list[Any] = [[]] * case["input"]["session_index"]
    [example] = read_trajectory([*empty_sessions, case["input"]["session"]], [])

    # We write place and time in brackets behind a message, the released code does not.
    ours = [[turn.text.partition(" (")[0], turn.id] for turn, _ in example.history.turns.values()]

    assert_agrees(ours, [[turn["text"], turn["dia_id"]] for turn in case["expected"]])


@pytest.mark.vectors("membench", "r2-it-*")
def test_items_of_memory_r2_are_scored_as_released(
    case: Case, assert_agrees: AssertAgrees, read_trajectory: ReadTrajectory
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

    assert_agrees(scores)
