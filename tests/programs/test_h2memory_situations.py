"""Log graphs: windows, the links that can be, and the groups that links make."""

import mempiler.signatures.h2memory as prompts
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.programs.h2memory.situations import ASPECTS, Claim, Link, Window, accepted, components, windows

LINK_CASES = [
    *("both kinds", "caused_by first", "in any order", "later", "itself", "not shown", "not asked about"),
    *("unknown earlier", "unknown later", "as lists print ids", "nothing"),
]
IDS = [f"l{n}" for n in range(1, 31)]


def link(later: str, kind: str, earlier: str) -> Link:
    return Link.model_validate({"later": later, "kind": kind, "earlier": earlier})


@pytest.mark.parametrize(
    ("count", "size", "found"),
    [
        (0, 10, []),
        (1, 10, [(0, 0, 1)]),
        (10, 10, [(0, 0, 10)]),
        (11, 10, [(0, 0, 10), (0, 10, 11)]),
        (25, 10, [(0, 0, 10), (0, 10, 20), (10, 20, 25)]),
        (3, 1, [(0, 0, 1), (0, 1, 2), (1, 2, 3)]),
    ],
)
def test_a_window_is_ten_logs_that_see_the_ten_before(count: int, size: int, found: list[tuple[int, ...]]) -> None:
    assert windows(count, size) == [Window(*row) for row in found]


@given(st.integers(0, 200), st.integers(1, 30))
def test_every_log_is_asked_about_once(count: int, size: int) -> None:
    asked = [n for window in windows(count, size) for n in range(window.first, window.stop)]
    assert asked == list(range(count))
    assert all(window.stop - window.shown <= 2 * size for window in windows(count, size))


@pytest.mark.parametrize(
    ("claims", "links", "refused"),
    [
        ([Claim("l21", ("l20",), ("l11",))], [("l21", "follows", "l11"), ("l21", "caused_by", "l20")], 0),
        ([Claim("l21", ("l20",), ("l20",))], [("l21", "caused_by", "l20")], 1),
        ([Claim("l21", (), ("l20",)), Claim("l21", ("l20",))], [("l21", "caused_by", "l20")], 1),
        ([Claim("l21", ("l22",))], [], 1),
        ([Claim("l21", ("l21",))], [], 1),
        ([Claim("l21", ("l10",))], [], 1),
        ([Claim("l20", ("l19",))], [], 1),
        ([Claim("l21", ("x9",))], [], 1),
        ([Claim("x9", ("l19", "l18"))], [], 2),
        ([Claim("[l22]", ('"l21"', "l21 "))], [("l22", "caused_by", "l21")], 0),
        ([Claim("l22"), Claim("x9")], [], 0),
    ],
    ids=LINK_CASES,
)
def test_links_that_cannot_be_are_refused_and_counted(claims: list[Claim], links: list[tuple], refused: int) -> None:
    assert accepted(IDS, Window(10, 20, 30), claims) == ([link(*row) for row in links], refused)


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
    ("said", "aspects"),
    [
        (["Work", " LEISURE "], ["work", "leisure"]),
        ("health", ["health"]),
        ("family, work", ["work", "family"]),
        ("['family']", ["family"]),
        (["健康", "工作"], ["work", "health"]),
        (["money", "work", "work"], ["work"]),
        (None, []),
        ({"work": 1}, []),
    ],
)
def test_aspects_are_read_in_any_form(said: object, aspects: list[str]) -> None:
    assert prompts.DrawnSituation.model_validate({"situation": "x", "aspects": said}).aspects == aspects
