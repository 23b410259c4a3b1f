"""Topic outlines: spans that tile a dialogue, and what is shown of a topic."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.programs.h2memory.outlines import Solution, Topic, span, tiled
from mempiler.signatures.h2memory import DraftOutline, ProposedSolution

OUTLINE_CASES = [
    *("good", "gap", "overlap", "ends missing", "none given", "one missing", "wrong order"),
    *("all last", "more topics than turns"),
]
IDS = [f"t{n}" for n in range(1, 9)]


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (["t2", "t5"], (1, 4)),
        (["t5", "t2"], (1, 4)),
        (["t3", "x"], (2, 2)),
        (["t1", "t4", "t6"], (0, 5)),
        (["x", "y"], None),
        ([], None),
    ],
)
def test_a_span_is_read_from_what_ids_are_known(named: list[str], found: object) -> None:
    assert span(named, IDS) == found


@pytest.mark.parametrize(
    ("given", "turns", "found", "repaired"),
    [
        ([(0, 3), (4, 7)], 8, [(0, 3), (4, 7)], 0),
        ([(0, 2), (5, 7)], 8, [(0, 4), (5, 7)], 1),
        ([(0, 5), (3, 7)], 8, [(0, 2), (3, 7)], 1),
        ([(1, 3), (4, 6)], 8, [(0, 3), (4, 7)], 2),
        ([None, None], 8, [(0, 3), (4, 7)], 2),
        ([(0, 1), None, (6, 7)], 8, [(0, 2), (3, 5), (6, 7)], 2),
        ([(4, 7), (0, 3)], 8, [(0, 0), (1, 7)], 2),
        ([(7, 7), (7, 7), (7, 7)], 8, [(0, 5), (6, 6), (7, 7)], 2),
        ([(0, 0), (0, 0), (0, 0)], 1, [(0, 0), (0, 0), (0, 0)], 0),
    ],
    ids=OUTLINE_CASES,
)
def test_spans_are_repaired_to_tile_the_dialogue(given: list, turns: int, found: list, repaired: int) -> None:
    assert tiled(given, turns) == (found, repaired)


SPANS = st.tuples(st.integers(0, 11), st.integers(0, 11)).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(st.one_of(st.none(), SPANS), min_size=1, max_size=15), st.integers(1, 12))
def test_whatever_is_given_the_spans_tile(given: list, turns: int) -> None:
    found, repaired = tiled([one if one is None or one[1] < turns else None for one in given], turns)
    assert (found[0][0], found[-1][1]) == (0, turns - 1)
    assert all(first <= last for first, last in found)
    assert {n for first, last in found for n in range(first, last + 1)} == set(range(turns))
    if len(found) <= turns:
        assert all(b[0] == a[1] + 1 for a, b in pairwise(found))
    assert tiled(found, turns) == (found, 0)
    assert 0 <= repaired <= len(given)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("needs", "Need: sleep"),
        ("solutions", "Need: sleep | Proposed: tea (liked: nice); pills (rejected) | Preference: gentle"),
        (None, "Need: sleep | Proposed: tea (liked: nice); pills (rejected) | Preference: gentle"),
    ],
)
def test_the_need_alone_or_everything_is_shown(content: object, text: str) -> None:
    solutions = (Solution(text="tea", feedback="nice", kind="pos"), Solution(text="pills", kind="neg"))
    topic = Topic(need="sleep", solutions=solutions, preference="gentle")
    assert topic.text(content) == text  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("said", "ids"),
    [
        (["D1:1", "D1:4"], ["D1:1", "D1:4"]),
        ("D1:1 - D1:4", ["D1:1", "D1:4"]),
        ("[D1:1, D1:4]", ["D1:1", "D1:4"]),
        ("turn_1 to turn_4", ["turn_1", "turn_4"]),
        ({"start": "D1:1", "end": "D1:4"}, ["D1:1", "D1:4"]),
        (None, []),
        (["[D1:1]", 4], ["D1:1", "4"]),
    ],
)
def test_a_turn_span_is_read_in_any_form(said: object, ids: list[str]) -> None:
    assert DraftOutline.model_validate({"turn_span": said, "requirement": "x"}).turn_span == ids


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("POS", "pos"),
        ("positive", "pos"),
        (" Neg", "neg"),
        ("negative.", "neg"),
        ("unclear", "others"),
        (None, "others"),
    ],
)
def test_feedback_is_positive_negative_or_other(said: object, kind: str) -> None:
    assert ProposedSolution.model_validate({"solution": "x", "feedback_type": said}).feedback_type == kind
