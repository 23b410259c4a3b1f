"""The table of claims: it has every setting of the methods, and its verdicts are those of the intervals."""

import inspect
from dataclasses import replace

import pytest
from mempiler.data.catalog import benchmark
from mempiler.programs.catalog import method_class
from mempiler.runs.recipes.claims.catalog import CLAIMS
from mempiler.runs.recipes.claims.claim import MARGIN, Arm, Claim, Claims, Found, found
from mempiler.runs.results import Row
from mempiler.runs.statistics import Difference, Interval

ROW = Row(
    id="", group="", category="", counts=True, question="", gold="", answer="", score=1.0, parts={}, recall={},
    sources=(), seconds=0.0,
)  # fmt: skip


def rows(**scores):
    """Questions of categories, each of a user of its own."""
    return [
        replace_row(id=f"{name}{n}", group=str(n), category=name, score=score)
        for name, values in scores.items()
        for n, score in enumerate(values)
    ]


def replace_row(**values):
    return ROW.model_copy(update=values)


@pytest.mark.parametrize("paper", CLAIMS)
def test_every_setting_is_needed_somewhere_or_named_apart(paper):
    """A setting of which nobody says what it is for is in neither."""
    claims = CLAIMS[paper]
    known = set(inspect.signature(method_class(claims.method).__init__).parameters) - {"self", "embedder"}
    needed = {name for claim in claims.claims if claim.lowers for name in claim.settings}
    assert known - needed - set(claims.apart) == set()
    assert set(claims.apart) & known & needed == set()


@pytest.mark.parametrize("paper", CLAIMS)
def test_claims_are_of_categories_that_there_are_and_have_names_of_their_own(paper):
    claims = CLAIMS[paper]
    names = [claim.name for claim in claims.claims]
    assert len(names) == len(set(names))
    known = {str(example.category) for example in benchmark(claims.world, users=3).examples}
    for claim in claims.claims:
        assert {*claim.lowers, *claim.raises, *(claim.keeps or ())} <= known, claim.name
        assert not set(claim.lowers) & set(claim.raises), claim.name


@pytest.mark.parametrize(
    ("predicted", "span", "verdict"),
    [
        ("lower", (-0.4, -0.2), "as predicted"),
        ("lower", (-0.4, 0.0), "cannot be told"),
        ("lower", (0.0, 0.0), "not"),
        ("lower", (0.1, 0.3), "not"),
        ("higher", (0.1, 0.3), "as predicted"),
        ("higher", (-0.1, 0.3), "cannot be told"),
        ("higher", (-0.3, 0.0), "not"),
        ("same", (0.0, 0.0), "as predicted"),
        ("same", (-MARGIN, MARGIN), "as predicted"),
        ("same", (-0.05, 0.2), "cannot be told"),
        ("same", (0.11, 0.2), "not"),
        ("same", (-0.3, -0.11), "not"),
        ("same", None, "cannot be told"),
    ],
)
def test_a_verdict_is_that_of_the_interval(predicted, span, verdict):
    interval = None if span is None else Interval(*span, "group")
    assert Found("x", "all", predicted, Difference(0.0, interval, 0, 0, 0, 1.0), 8).verdict == verdict


def test_changes_that_cancel_out_are_not_the_same():
    before = rows(a=[1.0] * 6, b=[0.0] * 6, c=[1.0] * 6, d=[1.0] * 6)
    after = rows(a=[0.0] * 6, b=[1.0] * 6, c=[1.0] * 6, d=[0.0] * 6)
    told = [(each.questions, each.predicted, each.verdict) for each in found(Claim("x", ("d",)), before, after)]
    assert told == [
        ("d", "lower", "as predicted"),
        ("a", "same", "not"),
        ("b", "same", "not"),
        ("c", "same", "as predicted"),
    ]
    assert [each.questions for each in found(Claim("x"), before, before)] == ["all"]


def test_what_is_compared_differs_in_the_change_alone():
    claims = Claims("pgr", "world.pgr", (), {})
    claim = Claim("x", settings={"k": 2}, beside={"min_new": 1})
    assert claims.arms(claim) == (Arm("pgr", {"min_new": 1}), Arm("pgr", {"min_new": 1, "k": 2}))
    other = replace(claim, settings={}, method="fact-store", silent=frozenset({"answer"}))
    assert claims.arms(other)[1] == Arm("fact-store", {}, frozenset({"answer"}))
