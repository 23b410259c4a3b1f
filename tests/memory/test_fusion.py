"""The signals of a search are added to one score for each row (`memory.search.fusion`)."""

import numpy as np
import pytest
from mempiler.memory.search.fusion import score_by_words


@pytest.mark.parametrize(
    "bonus",
    [
        pytest.param(None, id="without bonus"),
        pytest.param(np.array([2.0, 0.0, 0.0]), id="with bonus"),
    ],
)
def test_row_that_scores_exactly_the_lowest_score_is_a_hit(bonus: np.ndarray | None) -> None:
    """The rows score 1, 2 and 3 by words, and the lowest score of a hit is 2.

    A row may have a bonus, since the question names its speaker or its month. The bonus counts for
    the order of hits, but makes no row a hit.
    """
    word_scores = np.array([1.0, 2.0, 3.0])

    query_scores = score_by_words(word_scores, bonus, min_score=2.0)

    is_hit = query_scores.scores >= query_scores.lowest_hit_score
    assert is_hit.tolist() == [False, True, True]
