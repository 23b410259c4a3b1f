"""What the signals of a search weigh, and what ranks the first hits again.

The weights were chosen on LoCoMo's conv-26 and conv-30 (`perf/retrieval.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

NEIGHBOUR_WEIGHT = {1: 0.5, 2: 0.2, -1: 0.2}
"""The part of its score that a turn lends its neighbours, by how many turns these come after it."""
WHO, WHEN = 2.0, 2.0
"""Deviations that a turn of the speaker, and one of the month, gains."""
NEXT_MONTH, YEAR = 0.4, 0.3
"""What the month after the one named gains, as a part of it, and any of a year that is named alone."""
COSINES = 0.6
"""The part of what turns lend one another by their words that they lend by their cosines."""
FIRST, PASSAGES, BESIDE = 100, 150, 0.3
"""Hits that are ranked again, how many passages of them at most, and what words and cosines weigh beside a reranker."""


class Reranker(Protocol):
    """Compares a question with each of a few texts by more than their vectors; `engines.rerankers` has some."""

    name: str

    def words(self, query: str) -> Sequence[str]:
        """The words of a question that count as much as they are rare."""
        ...

    def scores(
        self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]
    ) -> np.ndarray:
        """One score a text, shape [texts]; higher is nearer.

        Args:
            query: The question, without the names of speakers.
            texts: Texts, each as its passages.
            weights: How rare each of `words` is in the memory.
        """
        ...
