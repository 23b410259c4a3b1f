"""How much words weigh, and which of several scored candidates is chosen."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from .words import Stems

T = TypeVar("T")


class WordWeights:
    """Weigh words: the fewer sentences hold a word, the more it weighs.

    Args:
        sentences: The stems of all sentences.
    """

    def __init__(self, sentences: Sequence[Stems]) -> None:
        self._counts = Counter(stem for sentence in sentences for stem in sentence)
        self._total = len(sentences) + 1.0

    def weight(self, stems: Iterable[str]) -> float:
        """Return the sum of the weights of different stems."""
        # `math.fsum` is exact, so the sum does not depend on the order in which a set is walked.
        return math.fsum(self._weight_of_stem(stem) for stem in stems)

    def _weight_of_stem(self, stem: str) -> float:
        # `get` because a Counter that is indexed with a missing key looks it up more slowly.
        return math.log(1.0 + self._total / (self._counts.get(stem, 0) + 0.5))


@dataclass(frozen=True)
class Candidate(Generic[T]):
    """Something that may be chosen, and how well it fits."""

    score: float
    value: T


class Chooser:
    """Choose one of several candidates.

    Args:
        temperature: At 0 the best one is chosen. Above, noise is added to the scores, so that
            others are chosen now and then.
        seed: Decides the noise.
    """

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature = temperature
        self._random = random.Random(seed)

    def choose(self, candidates: Sequence[Candidate[T]]) -> T:
        """Return the best candidate's value, after noise; of equal ones the first."""
        scores = [candidate.score for candidate in candidates]
        spread = max(scores) - sum(scores) / len(scores)
        noise = self._temperature * max(spread, 0.1)

        noisy_scores = [score + noise * self._random.gauss() for score in scores]
        best = noisy_scores.index(max(noisy_scores))
        return candidates[best].value
