"""Counts of gold against predicted classes, and what is read off them.

PraMem, section 4.1 and Figure 3, shows 5 x 5 matrices and mentions their diagonal dominance without a formula; ours is
the mean over the classes that occur of: share of its golds on the diagonal, minus the largest share that any other
class got. Answers that could not be read are in no cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from ..records import Failure


class Answered(Protocol):
    """An answer as whole-benchmark metrics see it; rows of an evaluation are such."""

    @property
    def id(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def gold(self) -> str: ...
    @property
    def answer(self) -> str: ...
    @property
    def parts(self) -> Mapping[str, float]: ...
    @property
    def failure(self) -> Failure | None: ...


class Confusion(BaseModel):
    """A matrix of counts: `counts[g][p]` answers chose class p where class g was right."""

    model_config = ConfigDict(frozen=True)

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    """Shape [classes, classes], gold by predicted."""

    @classmethod
    def of(cls, labels: Sequence[str], pairs: Iterable[tuple[str, str]]) -> Confusion:
        """Counts pairs of (gold, predicted); a pair with a class that is none of `labels` is left out."""
        found = Counter(pairs)
        return cls(labels=tuple(labels), counts=tuple(tuple(found[g, p] for p in labels) for g in labels))

    @property
    def n(self) -> int:
        """Answers counted."""
        return sum(map(sum, self.counts))

    @property
    def accuracy(self) -> float:
        """Share of answers on the diagonal; 0 without answers."""
        return sum(self.counts[k][k] for k in range(len(self.labels))) / self.n if self.n else 0.0

    def f1(self, label: str) -> float:
        """F1 of one class against all others; 0 where it is undefined."""
        k = self.labels.index(label)
        total = sum(self.counts[k]) + sum(row[k] for row in self.counts)
        return 2 * self.counts[k][k] / total if total else 0.0

    @property
    def macro_f1(self) -> float:
        """Unweighted mean of the F1 of every class, those that never occur included (with 0)."""
        return sum(self.f1(label) for label in self.labels) / len(self.labels) if self.labels else 0.0

    @property
    def diagonal_dominance(self) -> float:
        """See the module; from -1 to 1, 0 without answers."""
        gaps = []
        for k, row in enumerate(self.counts):
            others = [count for p, count in enumerate(row) if p != k]
            if sum(row):
                gaps.append((row[k] - max(others, default=0)) / sum(row))
        return sum(gaps) / len(gaps) if gaps else 0.0
