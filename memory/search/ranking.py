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
    """The number of the entry in the index when the search was made."""
    entry: Entry
    score: float

    def with_score(self, score: float) -> Candidate:
        """Return a copy with another score."""
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

        # Repeats come last, but may have higher scores than the others. Lower these, so that scores
        # descend. Without others, infinity lowers nothing.
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
    """Put the entries that fit a query in order, best first, and set apart those that repeat.

    A repeat is a turn that only says what the query or a better hit says. The ranking ends when
    `limit` other entries are in it.

    Args:
        entries: The entry of each row of the index; None for an empty row.
        query_scores: How well each row fits the query.
        limit: The most entries that are no repeats.
        where: Only entries for which it returns True are ranked; None if there is no filter.
        repeat_filter: Recognizes repeats; None if they are ranked like all others.
    """
    # Nobody knows how many rows `where` will leave out, so all of them may be needed in order.
    likely_count = limit if where is None else len(query_scores.scores)
    rows = rows_in_order(query_scores.scores, query_scores.lowest_hit_score, likely_count)

    best: list[Candidate] = []
    repeats: list[Candidate] = []
    for row, score in rows:
        entry = entries[row]
        if entry is None or (where is not None and not where(entry)):
            continue

        candidate = Candidate(row, entry, score)
        if repeat_filter is not None and not repeat_filter.register_utterance(entry.utterance):
            repeats.append(candidate)
            continue

        best.append(candidate)
        if len(best) == limit:
            break
    return Ranking(best, repeats)


def rows_in_order(scores: np.ndarray, lowest: float, likely_count: int) -> Iterator[ScoredRow]:
    """Yield all rows that score `lowest` or more, each with its score, best first.

    Sorting all rows is slow. So it is done only if the caller takes more than `likely_count`.

    Args:
        scores: One score for each row.
        lowest: Rows with a lower score are left out.
        likely_count: How many rows the caller will probably take.
    """
    first_rows = best_rows(scores, lowest, likely_count)
    yield from _with_scores(first_rows, scores)

    # If there were fewer than `likely_count`, these were all.
    if len(first_rows) == likely_count:
        all_rows = best_rows(scores, lowest, len(scores))
        yield from _with_scores(all_rows[likely_count:], scores)


def _with_scores(rows: np.ndarray, scores: np.ndarray) -> Iterator[ScoredRow]:
    """Return pairs of a row and its score.

    Args:
        rows: The numbers of some rows.
        scores: The scores of all rows.
    """
    # `tolist` converts numpy's numbers all at once: one by one takes ten times as long.
    return zip(rows.tolist(), scores[rows].tolist(), strict=True)
