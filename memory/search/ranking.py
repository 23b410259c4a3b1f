"""Rankings: the best rows of a search in their order, and the hits that are made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...records import Hit
from ..entry import Entry, EntryFilter
from .fusion import QueryScores
from .repeats import RepeatFilter
from .scores import best_rows

ScoredRow = tuple[int, float]
"""A row and its score."""


class Candidate(NamedTuple):
    """An entry that may become a hit."""

    row: int
    """Its row in the index when the search was made."""
    entry: Entry
    score: float

    def with_score(self, score: float) -> Candidate:
        return self._replace(score=score)


@dataclass(frozen=True)
class Ranking:
    """The candidates of one search, best first."""

    best: Sequence[Candidate]
    """Those that say something new."""
    repeats: Sequence[Candidate]
    """Turns that only repeat the query or a turn before them. As hits they come after `best`."""

    def hits(self, limit: int) -> list[Hit]:
        """Return the first hits, at most `limit`, in descending order of their scores."""
        candidates = list(self.best)
        # A repeat may have scored more than all of `best`. It comes after them, so lower its score.
        lowest_score = min((candidate.score for candidate in self.best), default=math.inf)
        for repeat in self.repeats:
            candidates.append(repeat.with_score(min(repeat.score, lowest_score)))
        return [candidate.entry.hit(candidate.score) for candidate in candidates[:limit]]


def rank_rows(
    entries: Sequence[Entry | None],
    query_scores: QueryScores,
    limit: int,
    where: EntryFilter | None = None,
    repeat_filter: RepeatFilter | None = None,
) -> Ranking:
    """Return the ranking of the rows that are hits.

    Args:
        entries: The entry of each row; None for an empty row.
        query_scores: The scores of these rows.
        limit: How many candidates that say something new are wanted, at most.
        where: Only entries for which it returns True are candidates.
        repeat_filter: Sets repeats apart; None keeps them where they are.
    """
    # It is not known how many rows a filter leaves out, so it may need all in order.
    likely_count = limit if where is None else len(query_scores.scores)
    rows = rows_in_order(query_scores.scores, query_scores.lowest_hit_score, likely_count)

    best: list[Candidate] = []
    repeats: list[Candidate] = []
    for row, score in rows:
        entry = entries[row]
        if entry is None or (where is not None and not where(entry)):
            continue

        candidate = Candidate(row, entry, score)
        if repeat_filter is not None and not repeat_filter.register(entry):
            repeats.append(candidate)
            continue

        best.append(candidate)
        if len(best) == limit:
            break
    return Ranking(best, repeats)


def rows_in_order(scores: np.ndarray, lowest: float, likely_count: int) -> Iterator[ScoredRow]:
    """Yield all rows that score `lowest` or more, best first.

    Args:
        scores: One score for each row.
        lowest: The least score that counts.
        likely_count: How many rows the caller will probably take. It gets these quickly; if it asks
            for another, all rows are sorted.
    """
    first_rows = best_rows(scores, lowest, likely_count)
    yield from _with_scores(first_rows, scores)

    # If there were fewer than `likely_count`, these were all.
    if len(first_rows) == likely_count:
        all_rows = best_rows(scores, lowest, len(scores))
        yield from _with_scores(all_rows[likely_count:], scores)


def _with_scores(rows: np.ndarray, scores: np.ndarray) -> Iterator[ScoredRow]:
    """Return each of some rows with its score."""
    # Converted to Python's numbers all at once: one by one takes ten times as long.
    return zip(rows.tolist(), scores[rows].tolist(), strict=True)
