"""ACC and F1 by field, scene and overall, and how a reply is read as Yes or No."""

import math
from typing import Any

import pytest
from mempiler.data.omnibehavior.benchmark import OPTIONS, FieldsPredicted
from mempiler.data.omnibehavior.records import QUESTIONS, TABLE_NAMES
from mempiler.data.scorer import Confusion
from mempiler.records import Failure
from mempiler.runs.rows import Row
from mempiler.signatures.behavior import chosen_option

NAMES = {"Accuracy": "ACC", "F1": "F1"}


def answered(question: dict[str, Any], failed: bool, n: int) -> Row:
    """A question of a report as a row; a probability of a half or more is the answer Yes, as released."""
    value = question["predicted_value"]
    answer = "hard to tell" if value is None else OPTIONS[value < 0.5]
    failure = Failure(kind="error", where="answer", message="no answer") if failed else None
    gold = OPTIONS[not question["true_value"]]
    return Row(
        id=str(n), group="u", category=question["field"], counts=True, question="", gold=gold, answer=answer,
        score=0.0, parts={}, recall={}, sources=(), seconds=0.0, failure=failure,
    )  # fmt: skip


def table(found: dict[str, float]) -> dict[str, float | None]:
    """The layout of the released table, in percent."""
    scenes = {**TABLE_NAMES, "avg": "Overall"}
    places = [
        (f"{scene}_{theirs}", f"{name} {ours}") for scene, name in scenes.items() for theirs, ours in NAMES.items()
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
    found = FieldsPredicted().aggregate(rows)
    fields = {field for field in QUESTIONS if f"{field.replace('_', ' ')} ACC" in found}
    ours = {
        field: {theirs: found[f"{field.replace('_', ' ')} {own}"] for theirs, own in NAMES.items()} for field in fields
    }
    wanted = case["expected"]["fields"]
    # Fields of no scene of the table are not asked here; precision and recall are not reported.
    theirs = {field: {name: wanted[field][name] for name in NAMES} for field in wanted if field in QUESTIONS}
    agrees(ours, theirs)
    # The released table is made of rounded fields.
    agrees(table(found), case["expected"]["table_percent"], within=0.006)


@pytest.mark.vectors("behavior_metrics", "field-*")
def test_the_metrics_of_a_field_are_the_released_ones(case, agrees):
    gold, said = ([OPTIONS[not value] for value in case["input"][key]] for key in ("gold", "predicted"))
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
    agrees(table(FieldsPredicted().aggregate(rows)), within=0.006)


@pytest.mark.vectors("behavior_metrics", "read-*")
def test_a_reply_is_read_as_released(case, agrees):
    agrees(chosen_option(case["input"]["reply"], OPTIONS))
