"""The confusion matrix of a classification: which class was chosen where which was right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict


class Confusion(BaseModel):
    """A matrix of counts: `counts[g][p]` answers chose class p where class g was right."""

    model_config = ConfigDict(frozen=True)

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    """Shape [classes, classes], gold by predicted."""

    @classmethod
    def of(cls, labels: Sequence[str], pairs: Iterable[tuple[str, str]]) -> Confusion:
        """Count pairs of (gold, predicted); leave out a pair with a class beside `labels`."""
        counts_by_pair = Counter(pairs)
        rows: list[tuple[int, ...]] = []
        for gold in labels:
            row = tuple(counts_by_pair[gold, predicted] for predicted in labels)
            rows.append(row)
        return cls(labels=tuple(labels), counts=tuple(rows))

    @property
    def n(self) -> int:
        """Return how many answers are counted."""
        return sum(sum(row) for row in self.counts)

    @property
    def accuracy(self) -> float:
        """Return the share of answers on the diagonal; 0 without answers."""
        if not self.n:
            return 0.0
        correct = sum(row[index] for index, row in enumerate(self.counts))
        return correct / self.n

    def f1(self, label: str) -> float:
        """Return the F1 of one class against all others; 0 where it is undefined."""
        index = self.labels.index(label)
        num_gold = sum(self.counts[index])
        num_predicted = sum(row[index] for row in self.counts)
        if not num_gold + num_predicted:
            return 0.0
        return 2 * self.counts[index][index] / (num_gold + num_predicted)

    @property
    def macro_f1(self) -> float:
        """Return the unweighted mean of the F1 of all classes; a class that never occurs has 0."""
        if not self.labels:
            return 0.0
        return sum(self.f1(label) for label in self.labels) / len(self.labels)

    @property
    def diagonal_dominance(self) -> float:
        """Return how far the right class leads the most frequent wrong one: -1 to 1.

        For each gold class g, the lead is (counts[g][g] - max of counts[g][p] over p != g) divided
        by the sum of counts[g]. The result is the mean of the leads of all classes with answers; 0
        without answers. The formula is ours, since PraMem's section 4.1 and Figure 3 give none.
        """
        leads: list[float] = []
        for index, row in enumerate(self.counts):
            num_gold = sum(row)
            if num_gold:
                wrong_counts = row[:index] + row[index + 1 :]
                leads.append((row[index] - max(wrong_counts, default=0)) / num_gold)
        if not leads:
            return 0.0
        return sum(leads) / len(leads)
