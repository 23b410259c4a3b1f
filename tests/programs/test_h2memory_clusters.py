"""Clusters of needs, and how later needs join them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.programs.h2memory.clusters import assigned, clusters, sampled

TWO_HEAPS = [[0, 0], [9, 9], [0, 1], [9, 8], [1, 0]]


@pytest.mark.parametrize(
    ("rows", "count", "groups"),
    [
        ([], 8, []),
        ([[1, 2]], 8, [[0]]),
        ([[0, 0], [5, 5], [9, 0]], 8, [[0], [1], [2]]),
        ([[0, 0], [5, 5], [0, 0], [5, 5]], 8, [[0, 2], [1, 3]]),
        ([[1, 1]] * 4, 3, [[0, 1, 2, 3]]),
        (TWO_HEAPS, 2, [[0, 2, 4], [1, 3]]),
        (TWO_HEAPS, 1, [[0, 1, 2, 3, 4]]),
    ],
    ids=["nothing", "one", "fewer than clusters", "fewer different ones", "all the same", "two heaps", "one cluster"],
)
def test_there_are_no_more_clusters_than_different_needs(rows: list, count: int, groups: list) -> None:
    assert clusters(np.array(rows, dtype=np.float32), count, seed=0) == groups


def test_the_seed_decides() -> None:
    rows = np.random.default_rng(3).normal(size=(40, 6))
    cut = [clusters(rows, 8, seed) for seed in (0, 0, 1, 2, 3)]
    assert cut[0] == cut[1]
    assert any(other != cut[0] for other in cut[2:])


def test_a_later_need_joins_the_nearest_centre_which_moves() -> None:
    # By hand: (0,4) joins (0,1) of two: (2*(0,1) + (0,4)) / 3 = (0,2). (4,5) is then 5 from (0,2) and 5.66 from (8,9).
    # It moves it to (3*(0,2) + (4,5)) / 4 = (1, 2.75). (8,7) joins (8,9) of one: (8,8).
    centres = [np.array([0.0, 1.0]), np.array([8.0, 9.0])]
    places, moved = assigned(np.array([[0, 4], [4, 5], [8, 7]]), centres, [2, 1])
    assert places == [0, 0, 1]
    assert [centre.tolist() for centre in moved] == [[1.0, 2.75], [8.0, 8.0]]
    assert [centre.tolist() for centre in centres] == [[0.0, 1.0], [8.0, 9.0]]


def test_a_centre_that_moved_takes_in_what_it_would_not_have() -> None:
    centres = [np.array([0.0]), np.array([10.0])]
    assert assigned(np.array([[5.5]]), centres, [1, 1])[0] == [1]
    assert assigned(np.array([[4.9], [4.9], [5.5]]), centres, [1, 1])[0] == [0, 0, 0]


def test_of_equally_near_centres_the_first_is_joined() -> None:
    assert assigned(np.array([[0.0]]), [np.array([1.0]), np.array([-1.0])], [1, 1])[0] == [0]


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=12), st.lists(st.floats(-9, 9), min_size=1, max_size=4))
def test_a_centre_is_always_the_mean_of_its_members(rows: list[float], first: list[float]) -> None:
    places, moved = assigned(np.array(rows)[:, None], [np.array([one]) for one in first], [1] * len(first))
    for n, one in enumerate(first):
        members = [one, *(row for row, place in zip(rows, places, strict=True) if place == n)]
        assert moved[n][0] == pytest.approx(np.mean(members), abs=1e-9)


def test_a_sample_keeps_the_order_and_is_drawn_by_its_seed() -> None:
    members = list(range(30))
    assert sampled(members, 30, 0) == members
    drawn = sampled(members, 10, 0)
    assert drawn == sorted(drawn) == sampled(members, 10, 0)
    assert len(set(drawn)) == 10
    assert any(sampled(members, 10, seed) != drawn for seed in (1, 2, 3))
