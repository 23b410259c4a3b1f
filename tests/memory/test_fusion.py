"""Scores of several signals are added."""

import numpy as np
import pytest
from mempiler.memory.search.fusion import score_by_words


@pytest.mark.parametrize("bonus", [None, np.array([2.0, 0.0, 0.0])], ids=["plain", "bonus"])
def test_a_row_that_scores_exactly_the_lowest_score_is_a_hit(bonus: np.ndarray | None) -> None:
    query_scores = score_by_words(np.array([1.0, 2.0, 3.0]), bonus, min_score=2.0)
    is_hit = query_scores.scores >= query_scores.lowest_hit_score
    assert is_hit.tolist() == [False, True, True]
