"""The signals of a search are added to one score for each row (`memory.search.fusion`)."""

import numpy as np
import pytest
from mempiler.memory.search.fusion import score_by_words


@pytest.mark.parametrize(
    "bonus",
    [
        pytest.param(None, id="without bonus"),
        # The first row scores 3 with its bonus, but the lowest score is compared without it.
        pytest.param(np.array([2.0, 0.0, 0.0]), id="with bonus"),
    ],
)
def test_row_that_scores_exactly_the_lowest_score_is_a_hit(bonus: np.ndarray | None) -> None:
    """A search leaves out rows below a lowest score, here 2.

    The rows score 1, 2 and 3 by words. A bonus is for the speaker or the month that a question
    names.
    """
    word_scores = np.array([1.0, 2.0, 3.0])

    query_scores = score_by_words(word_scores, bonus, min_score=2.0)

    is_hit = query_scores.scores >= query_scores.lowest_hit_score
    assert is_hit.tolist() == [False, True, True]
