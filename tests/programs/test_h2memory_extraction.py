"""H2Memory's extraction: windows, links and groups of logs; spans that tile a dialogue; aspects in any form."""

from itertools import pairwise

import mempiler.signatures.h2memory as prompts
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.programs.h2memory.extraction import Window, accepted, components, tiled, windows
from mempiler.programs.h2memory.memory import ASPECTS, Link
from mempiler.signatures.h2memory import LogLinks

IDS = [f"l{n}" for n in range(1, 31)]


def claimed(log: str, caused_by: tuple[str, ...] = (), follows: tuple[str, ...] = ()) -> LogLinks:
    return LogLinks(log_id=log, caused_by=list(caused_by), follows=list(follows))


def link(later: str, kind: str, earlier: str) -> Link:
    return Link.model_validate({"later": later, "kind": kind, "earlier": earlier})


@pytest.mark.parametrize(
    ("claims", "links"),
    [
        ([claimed("l21", ("l20",), ("l11",))], [("l21", "follows", "l11"), ("l21", "caused_by", "l20")]),
        ([claimed("l21", ("l20",), ("l20",))], [("l21", "caused_by", "l20")]),
        ([claimed("l21", ("l22",))], []),
        ([claimed("l21", ("l21",))], []),
        ([claimed("l21", ("l10",))], []),
        ([claimed("l20", ("l19",))], []),
        ([claimed("l21", ("x9",))], []),
        ([claimed("x9", ("l19", "l18"))], []),
        ([claimed("[l22]", ('"l21"', "l21 "))], [("l22", "caused_by", "l21")]),
    ],
    ids=[
        *("both kinds", "caused_by first", "later", "itself", "not shown", "not asked about"),
        *("unknown earlier", "unknown later", "as lists print ids"),
    ],
)
def test_links_that_cannot_be_are_left_out(claims: list[LogLinks], links: list[tuple]) -> None:
    window = windows(len(IDS), 10)[2]
    assert window == Window(10, 20, 30)
    assert accepted(IDS, window, claims) == [link(*row) for row in links]


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda pair: pair[0] > pair[1]), max_size=15))
def test_two_logs_are_in_one_group_where_a_way_of_links_joins_them(pairs: list[tuple[int, int]]) -> None:
    groups = components(IDS[:12], [link(IDS[a], "caused_by", IDS[b]) for a, b in pairs])
    assert sorted(id for group in groups for id in group) == sorted(IDS[:12])
    near = {n: {n} for n in range(12)}
    for _ in range(12):
        for a, b in pairs:
            near[a] = near[b] = near[a] | near[b]
            for other in near[a]:
                near[other] = near[a]
    assert {frozenset(group) for group in groups} == {frozenset(IDS[n] for n in reached) for reached in near.values()}


def test_memory_and_prompts_have_the_same_aspects() -> None:
    assert prompts.ASPECTS == ASPECTS


@pytest.mark.parametrize(
    ("form", "field", "said", "read"),
    [
        (prompts.DrawnSituation, "aspects", ["Work", " LEISURE "], ["work", "leisure"]),
        (prompts.DrawnSituation, "aspects", "family, work", ["work", "family"]),
        (prompts.DrawnSituation, "aspects", ["健康", "money", "工作", "work"], ["work", "health"]),
        (prompts.DrawnSituation, "aspects", None, []),
        (prompts.DraftOutline, "turn_span", "D1:1 - D1:4", ["D1:1", "D1:4"]),
        (prompts.DraftOutline, "turn_span", {"start": "D1:1", "end": 4}, ["D1:1", "4"]),
        (prompts.DraftOutline, "turn_span", None, []),
        (prompts.ProposedSolution, "feedback_type", "positive", "pos"),
        (prompts.ProposedSolution, "feedback_type", " Neg", "neg"),
        (prompts.ProposedSolution, "feedback_type", None, "others"),
    ],
)
def test_what_prompts_ask_for_is_read_in_any_form(form, field, said, read) -> None:
    others = {"situation": "x", "requirement": "x", "solution": "x"}
    given = {name: value for name, value in others.items() if name in form.model_fields}
    assert getattr(form.model_validate({**given, field: said}), field) == read


@pytest.mark.parametrize(
    ("given", "turns", "found"),
    [
        ([(0, 3), (4, 7)], 8, [(0, 3), (4, 7)]),
        ([(0, 2), (5, 7)], 8, [(0, 4), (5, 7)]),
        ([(0, 5), (3, 7)], 8, [(0, 2), (3, 7)]),
        ([(1, 3), (4, 6)], 8, [(0, 3), (4, 7)]),
        ([None, None], 8, [(0, 3), (4, 7)]),
        ([(0, 1), None, (6, 7)], 8, [(0, 2), (3, 5), (6, 7)]),
        ([(4, 7), (0, 3)], 8, [(0, 0), (1, 7)]),
        ([(7, 7), (7, 7), (7, 7)], 8, [(0, 5), (6, 6), (7, 7)]),
    ],
    ids=["good", "gap", "overlap", "ends missing", "none given", "one missing", "wrong order", "all last"],
)
def test_spans_are_repaired_to_tile_the_dialogue(given: list, turns: int, found: list) -> None:
    assert tiled(given, turns) == found


SPANS = st.tuples(st.integers(0, 11), st.integers(0, 11)).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(st.one_of(st.none(), SPANS), min_size=1, max_size=15), st.integers(1, 12))
def test_whatever_is_given_the_spans_tile(given: list, turns: int) -> None:
    found = tiled([one if one is None or one[1] < turns else None for one in given], turns)
    assert (found[0][0], found[-1][1]) == (0, turns - 1)
    assert all(first <= last for first, last in found)
    assert {n for first, last in found for n in range(first, last + 1)} == set(range(turns))
    if len(found) <= turns:
        assert all(b[0] == a[1] + 1 for a, b in pairwise(found))
    assert tiled(found, turns) == found
