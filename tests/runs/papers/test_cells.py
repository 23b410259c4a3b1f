"""Cells: what each kind of column reads off the evaluations of a variant, its n, interval and spread."""

from pathlib import Path

import pytest
from mempiler.engines.spending import Spending
from mempiler.runs.papers.cells import VariantResult
from mempiler.runs.papers.paper import Column
from mempiler.runs.papers.reproduction import Reproduced, SectionResult

from ..evaluations import evaluation
from ..evaluations import row as a_row


def row(n, score, group, **values):
    plain = {"gold": "1", "answer": str(score), "parts": {}, "category": "x"}
    return a_row(str(n), score, group=group, **{**plain, **values})


def scored(scores, groups=6, **values):
    return evaluation((row(n, each, f"u{n % groups}") for n, each in enumerate(scores)), **values)


def best(rows):
    return {"best": max(row.score for row in rows)} if rows else {}


ROWS = [
    row(0, 1.0, "u0", parts={"f1": 0.5}, context_tokens=10, calls=1, recall_counts={"first": 4}),
    row(1, 0.0, "u1", parts={"f1": 0.1}, context_tokens=30, calls=3, category="y"),
    row(2, 1.0, "u2", counts=False, category="y", calls=2),
]


@pytest.mark.parametrize(
    ("of", "key", "value", "n"),
    [
        ("score", "", 0.5, 2),
        ("category", "y", 0.5, 2),
        ("part", "f1", 0.3, 2),
        ("tokens", "", 20.0, 2),
        ("count", "first", 4 / 3, 3),
        ("calls", "", 2.0, 3),
        ("metric", "best", 1.0, 3),
        ("minutes", "", 0.5, 3),
        ("category", "z", None, 0),
        ("metric", "other", None, 0),
    ],
)
def test_a_column_reads_its_part_of_an_evaluation(of, key, value, n):
    written = {"construction": Spending(seconds=60.0), "histories": 2}
    found = VariantResult("x", (evaluation(ROWS, aggregate={"best": 1.0}, **written),))
    cell = found.cell(Column(name="c", of=of, key=key))
    assert (cell.value, cell.n) == (pytest.approx(value), n)


@pytest.mark.parametrize(("groups", "unit"), [(6, "group"), (2, "question")])
def test_a_metric_of_all_answers_is_computed_anew_for_every_draw(groups, unit):
    """The best of twelve scores, of which one is 1: a draw without it has 0.5 at best."""
    found = VariantResult("x", (scored([0.5] * 11 + [1.0], groups, aggregate={"best": 1.0}),), aggregate=best)
    cell = found.cell(Column(name="best", of="metric", key="best"))
    assert (cell.value, cell.n, cell.interval, cell.unit) == (1.0, 12, (0.5, 1.0), unit)


def test_seeds_are_a_mean_with_a_spread():
    cell = VariantResult("x", (scored([0.0] * 6), scored([1.0] * 6))).cell(Column(name="all"), (38.1, "40"))
    assert (cell.value, cell.interval, cell.printed) == (0.5, (0.5, 0.5), (38.1, "40"))
    assert cell.spread == pytest.approx(0.7071, abs=1e-4)


def test_a_difference_is_paired_on_shared_questions():
    own, other = (VariantResult("x", (scored(scores),)) for scores in ([1.0] * 24, [0.0] * 21 + [1.0]))
    found = other.difference(own)
    assert (found.n, found.mean, found.wins, found.losses, found.ties) == (22, pytest.approx(-21 / 22), 0, 21, 1)
    assert found.verdict == "worse"


def test_a_variant_that_lost_too_many_calls_is_broken(make_paper):
    paper, whole = make_paper(), VariantResult("nothing", (scored([1.0]),))
    lost = VariantResult("three turns", (scored([1.0], answers={"task.answer": {"ok": 1, "lost": 1}}),))
    found = SectionResult(paper, paper.sections[0], "", (whole, lost), {}, {})
    assert found.broken == ("three turns",)
    assert Reproduced(paper, (found,), Path(), "", (), None).failed
