"""Turns of one dialogue get a part of the scores of their neighbours."""

import numpy as np
from mempiler.memory.search.neighbours import Neighbours


def neighbours_of(*dialogues: str) -> Neighbours:
    neighbours = Neighbours({1: 0.5, -1: 0.2})
    for row, dialogue in enumerate(dialogues):
        neighbours.set_dialogue(row, dialogue)
    return neighbours


def test_a_turn_gets_a_part_of_the_score_of_the_turn_before_it() -> None:
    smoothing = neighbours_of("a", "b", "", "a", "").smoothing()
    scores = smoothing.smoothed(np.array([10.0, 10, 10, 0, 0]))
    assert scores.tolist() == [10, 10, 10, 5, 0]


def test_only_some_rows_and_a_multiple_of_the_parts() -> None:
    smoothing = neighbours_of("a", "b", "", "a", "").smoothing()
    scores = smoothing.smoothed(np.array([0.0, 10, 10]), np.array([3, 0, 2]), factor=2.0)
    assert scores.tolist() == [10, 10, 10]


def test_a_smoothing_holds_for_the_rows_as_they_were_when_it_was_made() -> None:
    neighbours = neighbours_of("a", "b", "", "a", "")
    earlier = neighbours.smoothing()
    neighbours.set_dialogue(3, "b")
    neighbours.set_dialogue(5, "a")
    later = neighbours.smoothing()

    assert earlier.smoothed(np.array([10.0, 10, 10, 0, 0])).tolist() == [10, 10, 10, 5, 0]
    assert later.smoothed(np.array([10.0, 10, 10, 0, 0, 0])).tolist() == [10, 10, 10, 5, 0, 5]
