"""Turns of one dialogue get shares of the scores of their neighbours (`search.neighbours`).

In "Did you hear jazz?" - "Yes, at the river." a search for "jazz" finds only the first turn. With
a share of its score the second one is found, too. A row is the place of an entry in an index.
"""

import numpy as np
import pytest
from mempiler.memory.search.neighbours import Neighbours

SHARE_OF_PREVIOUS_TURN = 0.5
SHARE_OF_NEXT_TURN = 0.2


@pytest.fixture
def neighbours() -> Neighbours:
    """Five rows: 0 and 3 are turns of dialogue "a", 1 is a turn of "b", 2 and 4 are no turns."""
    neighbours = Neighbours({1: SHARE_OF_PREVIOUS_TURN, -1: SHARE_OF_NEXT_TURN})
    for row, dialogue in enumerate(["a", "b", "", "a", ""]):
        neighbours.set_dialogue(row, dialogue)
    return neighbours


def test_turn_gets_a_share_of_the_score_of_the_turn_before_it(neighbours: Neighbours) -> None:
    scores = np.array([10.0, 10.0, 10.0, 0.0, 0.0])

    smoothed_scores = neighbours.smoothing().smoothed(scores)

    # Row 3 gets half of what row 0 scores.
    assert smoothed_scores.tolist() == [10.0, 10.0, 10.0, 5.0, 0.0]


def test_scores_of_some_rows_in_any_order_are_shared_times_a_factor(neighbours: Neighbours) -> None:
    """A search may smooth the scores of some rows alone. Here they are rows 3, 0 and 2."""
    rows = np.array([3, 0, 2])
    scores_of_rows = np.array([0.0, 10.0, 10.0])

    smoothed_scores = neighbours.smoothing().smoothed(scores_of_rows, rows, factor=2.0)

    # The factor doubles the share, so row 3 gets all that row 0 scores.
    assert smoothed_scores.tolist() == [10.0, 10.0, 10.0]


def test_smoothing_does_not_see_rows_that_change_after_it_was_created(
    neighbours: Neighbours,
) -> None:
    """A search that has begun must not be disturbed by later changes of the index."""
    earlier_smoothing = neighbours.smoothing()
    neighbours.set_dialogue(3, "b")
    neighbours.set_dialogue(5, "a")
    later_smoothing = neighbours.smoothing()

    earlier_scores = earlier_smoothing.smoothed(np.array([10.0, 10.0, 10.0, 0.0, 0.0]))
    later_scores = later_smoothing.smoothed(np.array([10.0, 10.0, 10.0, 0.0, 0.0, 0.0]))

    assert earlier_scores.tolist() == [10.0, 10.0, 10.0, 5.0, 0.0]
    # Row 3 now follows row 1, and the new row 5 follows row 0.
    assert later_scores.tolist() == [10.0, 10.0, 10.0, 5.0, 0.0, 5.0]
