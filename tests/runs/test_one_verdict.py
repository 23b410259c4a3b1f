"""One verdict: compile, the registry, `compare` with its gate, and pages say the same of the same rows."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.errors import UserError
from mempiler.runs.compare import Recorded, compare, refusal
from mempiler.runs.compile import Compiled, Troubles
from mempiler.runs.manifest import Manifest
from mempiler.runs.pages.page import difference_line
from mempiler.runs.promotion import promotion
from mempiler.runs.publish import gate
from mempiler.runs.results import Evaluation, difference

from .evaluations import evaluation as made
from .evaluations import row

Scored = list[tuple[float, float, int]]
"""Before, after, group."""


def evaluation(scores: list[tuple[str, float, str]]) -> Evaluation:
    """An evaluation of questions by id, score and group."""
    return made(row(id, score, category="1", group=group) for id, score, group in scores)


def manifest(start: Evaluation, compiled: Evaluation, promoted: bool, min_n: int) -> Manifest:
    """What a compile keeps for the gate of the registry."""
    decided, gap = promotion(start, compiled, min_n=min_n), difference(start.counted, compiled.counted, min_n)
    rest = (Path(), (), {}, None, Path(), "", None, decided, Troubles("labeled", None, 0, 0, False))
    outcome = Compiled(start, compiled, (start, compiled), gap, promoted, *rest)
    return Manifest(method="", task="", scores={"gate": outcome.gate()}, manifest_sha256=str(promoted))


def scored() -> st.SearchStrategy[Scored]:
    """Rows in which nothing, little or almost everything changes for the better or worse."""
    gaps = st.sampled_from([[0.0, 0.5, -0.5], [0.0, 0.5, 0.5, 0.5, -0.5], [0.3, 0.5], [-0.5, -0.3]])
    groups = st.sampled_from([1, 4, 5, 6, 12])

    def rows(drawn: tuple[list[float], int]) -> st.SearchStrategy[Scored]:
        one = st.tuples(st.sampled_from(drawn[0]), st.integers(0, drawn[1] - 1))
        return st.lists(one.map(lambda each: (0.5, 0.5 + each[0], each[1])), min_size=5, max_size=30)

    return st.tuples(gaps, groups).flatmap(rows)


@given(scored(), st.integers(1, 15), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_no_two_places_disagree_on_the_same_rows(rows: Scored, min_n: int, random: Any) -> None:
    start = evaluation([(f"q{n}", before, f"user {group}") for n, (before, _, group) in enumerate(rows)])
    compiled = evaluation([(f"q{n}", after, f"user {group}") for n, (_, after, group) in enumerate(rows)])
    verdict = difference(start.counted, compiled.counted, min_n).verdict

    assert (promotion(start, compiled, min_n=min_n).refused is None) is (verdict == "better")

    shuffled = evaluation([(row.id, row.score, row.group) for row in random.sample(compiled.rows, len(compiled.rows))])
    runs = [Recorded("a", start, {}), Recorded("b", shuffled, {})]
    page = compare(runs, min_n)
    assert page.total is not None
    assert page.total.difference.verdict == page.categories[0].difference.verdict == verdict
    assert refusal(runs[1], page.total.difference) == (verdict if verdict in ("worse", "too few to tell") else None)
    assert page.verdict.endswith(f": {verdict}")
    assert (page.total.difference.interval is not None) is (len(rows) > 1)
    assert difference_line(difference(start.rows, compiled.rows, min_n)).endswith(f": {verdict}")

    new, old = (manifest(start, compiled, promoted, min_n) for promoted in (True, False))
    try:
        passed = bool(gate(new, old, "models:/m@prod"))
    except UserError:
        passed = False
    assert passed is (verdict == "better")


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, None),
        ({"answers": {"task.answer": {"ok": 20, "lost": 10}}}, "The compiled program's score is of a broken run"),
        ({"stopped": "max-calls 100"}, "Not all dev questions were answered"),
    ],
)
def test_a_gain_of_a_broken_or_unfinished_run_is_none(changed: dict[str, Any], refused: str | None) -> None:
    start, compiled = (evaluation([(f"q{n}", score, "a") for n in range(30)]) for score in (0.0, 1.0))
    found = promotion(start, compiled.model_copy(update=changed)).refused
    assert found is None if refused is None else (found or "").startswith(refused)
