"""H2Memory's extraction: windows, links and groups of logs; spans that tile a dialogue; aspects in any form."""

import mempiler.signatures.h2memory as prompts
import pytest
from mempiler.programs.h2memory.extraction import accepted, components, tiled
from mempiler.programs.h2memory.memory import Link
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
        ([claimed("l21", ("l10",))], []),
        ([claimed("l20", ("l19",))], []),
        ([claimed("x9", ("l19", "l18"))], []),
    ],
    ids=["both kinds", "caused_by first", "later", "not shown", "not asked about", "unknown"],
)
def test_links_that_cannot_be_are_left_out(claims: list[LogLinks], links: list[tuple]) -> None:
    assert accepted(IDS[10:30], 10, claims) == [link(*row) for row in links]


def test_two_logs_are_in_one_group_where_a_way_of_links_joins_them() -> None:
    links = [link(later, "follows", earlier) for later, earlier in (("l3", "l1"), ("l5", "l2"), ("l4", "l3"))]
    assert components(IDS[:6], links) == [["l1", "l3", "l4"], ["l2", "l5"], ["l6"]]


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
    ("starts", "found"),
    [
        ((1, 5), [(1, 4), (5, 8)]),
        ((2, 5), [(1, 4), (5, 8)]),
        ((None, 4, None), [(1, 3), (4, 8), (4, 8)]),
        ((5, 1), [(1, 8), (1, 8)]),
        ((8, 8, 8), [(1, 7), (8, 8), (8, 8)]),
    ],
    ids=["good", "begins late", "not named", "wrong order", "all last"],
)
def test_topics_tile_the_dialogue_by_where_they_begin(starts: tuple, found: list) -> None:
    turns = IDS[:8]
    named = [["x", "l8", f"l{start}"] if start else [] for start in starts]
    assert tiled(named, turns) == [tuple(turns[first - 1 : last]) for first, last in found]
