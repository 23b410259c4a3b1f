"""Turns of one dialogue get shares of the scores of their neighbours (`search.neighbours`).

In "Did you hear jazz?" - "Yes, at the river." a search for "jazz" finds only the first turn. With
a share of its score the second one is found, too. A row is the place of an entry in an index.
"""

import numpy as np
from mempiler.memory.search.neighbours import Neighbours

NO_DIALOGUE = ""
"""The dialogue of a row that is no turn."""


def rows_of_dialogues(*dialogues: str) -> Neighbours:
    """Return rows of these dialogues; a turn gets half of the score of the turn before it."""
    neighbours = Neighbours({1: 0.5})
    for row, dialogue in enumerate(dialogues):
        neighbours.set_dialogue(row, dialogue)
    return neighbours


def test_turn_gets_a_share_of_the_score_of_the_turn_before_it() -> None:
    """The share is a half, and counts within a dialogue only."""
    rows = rows_of_dialogues("a", "b", "a", NO_DIALOGUE)
    scores = np.array([10.0, 0.0, 0.0, 0.0])

    smoothed_scores = rows.smoothing().smoothed(scores)

    # Row 0 and row 2 are the two turns of dialogue "a".
    assert smoothed_scores.tolist() == [10.0, 0.0, 5.0, 0.0]


def test_scores_of_some_rows_in_any_order_are_shared() -> None:
    """A search may smooth the scores of some rows alone."""
    rows = rows_of_dialogues("a", "b", "a")

    smoothed_scores = rows.smoothing().smoothed(np.array([0.0, 10.0]), rows=np.array([2, 0]))

    # Row 2 scored 0, and gets half of the 10 that row 0 scored.
    assert smoothed_scores.tolist() == [5.0, 10.0]


def test_smoothing_does_not_see_rows_that_change_after_it_was_created() -> None:
    """A search that has begun must not be disturbed by later changes of the index."""
    rows = rows_of_dialogues("a", "a")
    earlier_smoothing = rows.smoothing()
    rows.set_dialogue(1, "b")
    later_smoothing = rows.smoothing()

    earlier_scores = earlier_smoothing.smoothed(np.array([10.0, 0.0]))
    later_scores = later_smoothing.smoothed(np.array([10.0, 0.0]))

    assert earlier_scores.tolist() == [10.0, 5.0]
    assert later_scores.tolist() == [10.0, 0.0]
