"""PAL-Bench and PraMem: what their released code gives for metrics, selections and predictions."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from dspy import Example, Prediction
from dspy.utils.exceptions import AdapterParseError
from mempiler.data.catalog import benchmark
from mempiler.data.confusion import Confusion
from mempiler.data.omnibehavior.benchmark import OPTIONS, FieldAccuracy
from mempiler.data.omnibehavior.records import QUESTIONS, TABLE_NAMES
from mempiler.data.palbench.benchmark import (
    GenerationBleu,
    NeedPoints,
    NeedsJudge,
    RestatementBleu,
    SelectionPoints,
)
from mempiler.data.palbench.dialogue import NeedUnderstandingJudge, compare
from mempiler.data.palbench.topics import Candidate, Topic
from mempiler.programs.adapter import adapter
from mempiler.reading.answer import read_answer
from mempiler.reading.repairs import UnreadableError
from mempiler.records import Failure
from mempiler.runs.rows import Row
from mempiler.signatures.behavior import chosen_option
from mempiler.signatures.pal import SelectSolutions

from tests.runs.evaluations import row

Agrees = Callable[..., None]
SOLUTIONS = [f"S{n}: solution {n}" for n in range(1, 9)]


def about(answer: str = "S1", **topic: Any) -> Example:
    """A question about a topic of which only this is known."""
    whole = {"user_query": "?", "needs": ("rest", "quiet"), "requirement": "", **topic}
    return Example(asked=SimpleNamespace(topic=Topic.model_construct(**whole)), answer=[answer])


def candidates(feedback: list[Any]) -> tuple[Candidate, ...]:
    """Candidates by what the user thinks of each."""
    return tuple(
        Candidate(solution=f"solution {n}", feedback=kind) for n, kind in enumerate(feedback, 1)
    )


def rows(found: list[Mapping[str, float]]) -> list[Any]:
    return [SimpleNamespace(parts=parts, failure=None) for parts in found]


def named(columns: Mapping[str, float]) -> dict[str, float]:
    """Columns of a table, 0 to 100, by the released names, 0 to 1."""
    return {name.lower(): value / 100 for name, value in columns.items()}


@pytest.mark.vectors("pal_metrics", "bleu-*", "restate-batch-*")
def test_bleu_is_the_released_one(case: dict[str, Any], agrees: Agrees) -> None:
    scorer, given = RestatementBleu("bleu1"), case["input"]
    pairs = (
        [row[2:] for row in given["rows"]]
        if "rows" in given
        else [(given["reference"], given["candidate"])]
    )
    found = [
        scorer.score(about(requirement=gold), Prediction(answer=said)).parts for gold, said in pairs
    ]
    agrees(named(scorer.aggregate(rows(found))))


@pytest.mark.vectors("pal_metrics", "generate-*")
def test_bleu_of_solutions_is_the_released_one(case: dict[str, Any], agrees: Agrees) -> None:
    scorer, given = GenerationBleu("bleu1"), case["input"]
    found = [
        scorer.score(about(positives=liked), Prediction(answer=said)).parts
        for said, liked in zip(given["generations"], given["liked_references"], strict=True)
    ]
    agrees(named(scorer.aggregate(rows(found))))


@pytest.mark.vectors("pal_metrics", "needs-points-*")
def test_points_that_a_judge_may_give(case: dict[str, Any], agrees: Agrees, scripted: Any) -> None:
    topic = about().asked.topic
    judge = NeedsJudge(scripted(lambda *call: case["input"]["reply"]), adapter())
    agrees(accepted(lambda: judge(topic, "to sleep well")), case["expected"]["accepted"])


@pytest.mark.vectors("pal_metrics", "g-score-*")
def test_g_score_is_the_released_one(case: dict[str, Any], agrees: Agrees, scripted: Any) -> None:
    points = [found for user in case["input"]["points_by_user"].values() for found in user]
    given = iter(points)
    judge = NeedsJudge(
        scripted(lambda *call: json.dumps({"analysis": "-", "score": next(given)})), adapter()
    )
    scorer = NeedPoints().with_judges(lambda kind: judge)
    found = [scorer.score(about(), Prediction(answer="to sleep well")).parts for _ in points]
    agrees(scorer.aggregate(rows(found))["G-score"])


@pytest.mark.vectors("pal_metrics", "select-read-*")
def test_selections_are_read_as_released(case: dict[str, Any], agrees: Agrees) -> None:
    chosen: list[str] = []
    with suppress(UnreadableError):
        chosen = read_answer(SelectSolutions, case["input"]["reply"], {"options": SOLUTIONS})[0][
            "answer"
        ]
    valid = (
        SelectionPoints()
        .score(about(candidates=candidates(["pos"] * 8)), Prediction(answer=chosen))
        .parts["valid"]
    )
    agrees({"selected": chosen if valid else None}, {"selected": case["expected"]["selected"]})


@pytest.mark.vectors("pal_metrics", "s-score-*")
def test_s_score_is_the_released_one(case: dict[str, Any], agrees: Agrees) -> None:
    topic = about(candidates=candidates(case["input"]["feedback"]))
    found = [
        SelectionPoints().score(topic, Prediction(answer=chosen)).parts
        for user in case["input"]["chosen_by_user"].values()
        for chosen in user
    ]
    agrees(SelectionPoints().aggregate(rows(found))["S-score"])


@pytest.mark.vectors("pal_metrics", "dialogue-judge-*")
def test_scores_that_a_judge_may_give(case: dict[str, Any], agrees: Agrees, scripted: Any) -> None:
    reply = json.dumps(dict(in_our_form(json.loads(case["input"]["reply"]))))
    judge = NeedUnderstandingJudge(scripted(lambda *call: reply), adapter())
    persona = benchmark("palbench.restate").examples[0].asked.persona
    agrees(accepted(lambda: judge(persona, "USER: a", "USER: b", 1)), case["expected"]["accepted"])


@pytest.mark.vectors("pal_metrics", "win-tie-lose-*")
def test_outcomes_are_the_released_ones(case: dict[str, Any], agrees: Agrees) -> None:
    counts, means = {"win": 0, "tie": 0, "lose": 0}, dict[str, list[float]]()
    persona = benchmark("palbench.restate").examples[0].asked.persona
    for name, scores in case["input"]["scores_test_baseline"].items():
        found = compare(Judged(scores), persona, "own", "other")
        counts[found.outcome] += 1
        means[name] = [found.own, found.other]
    agrees({"counts": counts, "means": means})


class Judged:
    """A judge whose scores are known: three with the own dialogue first, three with the other."""

    hash = "known"

    def __init__(self, scores: list[tuple[float, float]]) -> None:
        self.scores = scores

    def __call__(self, persona: Any, first: str, second: str, rollout: int) -> tuple[float, float]:
        own, other = self.scores[rollout - 1 if first == "own" else rollout + 2]
        return (own, other) if first == "own" else (other, own)


def accepted(ask: Callable[[], Any]) -> bool:
    """Whether a judge's reply can be read."""
    try:
        ask()
    except AdapterParseError:
        return False
    return True


def in_our_form(reply: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The released form of a judge's reply with our names: the order of its parts stays."""
    names = {"assistant-1": "analysis_1", "assistant-2": "analysis_2", "overall": "comparison"}
    for key, value in reply.items():
        if key == "analysis" and isinstance(value, Mapping):
            yield from ((names[name], text) for name, text in value.items())
        else:
            yield (
                key,
                {name.replace("-", "_"): n for name, n in value.items()}
                if key == "scores"
                else value,
            )


NAMES = {"Accuracy": "ACC", "F1": "F1"}


def answered(question: dict[str, Any], failed: bool, n: int) -> Row:
    """A question of a report as a row; a probability of a half or more is the answer Yes, as released."""
    value, gold = question["predicted_value"], OPTIONS[not question["true_value"]]
    answer = "hard to tell" if value is None else OPTIONS[value < 0.5]
    failure = Failure(kind="error", where="answer", message="no answer") if failed else None
    return row(
        str(n), category=question["field"], gold=gold, answer=answer, parts={}, failure=failure
    )


def table(found: dict[str, float]) -> dict[str, float | None]:
    """The layout of the released table, in percent."""
    scenes = {**TABLE_NAMES, "avg": "Overall"}
    places = [
        (f"{scene}_{theirs}", f"{name} {ours}")
        for scene, name in scenes.items()
        for theirs, ours in NAMES.items()
    ]
    return {theirs: 100 * found[ours] if ours in found else None for theirs, ours in places}


@pytest.mark.vectors("behavior_metrics", "aggregate-*")
def test_fields_scenes_and_the_table_are_the_released_ones(case, agrees):
    rows = [
        answered(question, not record["success"], n)
        for n, record in enumerate(case["input"]["records"])
        if not record.get("filtered")
        for question in record["questions"]
    ]
    found = FieldAccuracy().aggregate(rows)
    fields = {field for field in QUESTIONS if f"{field.replace('_', ' ')} ACC" in found}
    ours = {
        field: {theirs: found[f"{field.replace('_', ' ')} {own}"] for theirs, own in NAMES.items()}
        for field in fields
    }
    wanted = case["expected"]["fields"]
    # Fields of no scene of the table are not asked here; precision and recall are not reported.
    theirs = {
        field: {name: wanted[field][name] for name in NAMES}
        for field in wanted
        if field in QUESTIONS
    }
    agrees(ours, theirs)
    # The released table is made of rounded fields.
    agrees(table(found), case["expected"]["table_percent"], within=0.006)


@pytest.mark.vectors("behavior_metrics", "field-*")
def test_the_metrics_of_a_field_are_the_released_ones(case, agrees):
    gold, said = (
        [OPTIONS[not value] for value in case["input"][key]] for key in ("gold", "predicted")
    )
    matrix = Confusion.of(OPTIONS, zip(gold, said, strict=True))
    ours = {"Accuracy": matrix.accuracy, "F1": matrix.f1("Yes")}
    agrees(ours, {name: case["expected"][name] for name in ours})


@pytest.mark.vectors("behavior_metrics", "table-*")
def test_an_empty_and_a_sparse_table_are_the_released_ones(case, agrees):
    rows = []
    for field, metrics in case["input"]["binary_metrics"].items():
        # Two answers with these metrics: F1 is 0 or missing without a Yes that is right.
        right = math.isclose(metrics["Accuracy"], 100)
        pairs = [(1, 1.0), (0, 0.0)] if right else [(0, 0.0), (0, 1.0)]
        rows += [
            answered({"field": field, "true_value": g, "predicted_value": p}, False, n)
            for n, (g, p) in enumerate(pairs)
        ]
    agrees(table(FieldAccuracy().aggregate(rows)), within=0.006)


@pytest.mark.vectors("behavior_metrics", "read-*")
def test_a_reply_is_read_as_released(case, agrees):
    agrees(chosen_option(case["input"]["reply"], OPTIONS))
