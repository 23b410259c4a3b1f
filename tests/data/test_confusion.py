"""Confusion matrices: hand-worked cases."""

import pytest
from mempiler.data.confusion import Confusion

LABELS = ("1", "2", "3")


def matrix(*rows):
    return Confusion(labels=LABELS, counts=tuple(rows))


@pytest.mark.parametrize(
    ("rows", "accuracy", "macro", "dominance"),
    [
        (((4, 0, 0), (0, 2, 0), (0, 0, 1)), 1.0, 1.0, 1.0),
        # F1 of "1": 2*3/(4+4) = 3/4; of "2": 2*1/(2+3) = 2/5; of "3": 2*1/(2+1) = 2/3.
        # Dominance: (3-1)/4, (1-1)/2, (1-1)/2.
        (((3, 1, 0), (1, 1, 0), (0, 1, 1)), 5 / 8, (3 / 4 + 2 / 5 + 2 / 3) / 3, (1 / 2 + 0 + 0) / 3),
        # Everything is called "1": a class that never occurs has F1 0 and no dominance.
        (((2, 0, 0), (2, 0, 0), (0, 0, 0)), 1 / 2, (2 / 3) / 3, (1 - 1) / 2),
        (((0, 0, 0),) * 3, 0.0, 0.0, 0.0),
    ],
)
def test_scores_of_a_matrix(rows, accuracy, macro, dominance):
    found = matrix(*rows)
    assert (found.accuracy, found.macro_f1, found.diagonal_dominance) == pytest.approx((accuracy, macro, dominance))


def test_answers_outside_the_classes_are_in_no_cell():
    found = Confusion.of(LABELS, [("1", "1"), ("1", "9"), ("2", "3")])
    assert found.counts == ((1, 0, 0), (0, 0, 1), (0, 0, 0))
    assert found.n == 2
