"""The rows of an index: its entries by number, with what each signal of a search knows of them.

Everything that a search compares is an array with one element for each row. A new entry gets the
next row, and keeps it when another version replaces it. When an entry is removed, its row stays
empty. So a change costs as much as what it changes, and rows are in the order in which entries were
added. When most rows are empty, `compacted` numbers them anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..entry import DIALOGUE, Entry, SpeakerIs
from ..text_slots import split_for_slots, text_slot
from .bm25 import BM25Index
from .months import month_nearness, month_number
from .neighbours import Neighbours, NeighbourSmoothing
from .speakers import Speakers
from .vectors import VectorTable
from .weights import SignalWeights

SPARE_ROWS = 1000
"""How many more rows may be empty than are filled before rows are numbered anew."""

_UNKNOWN_SPEAKER = -1
"""The number of a speaker without entries, and of an empty row."""


class EntryRows:
    """The entries of an index in numbered rows. Not safe under threads without a lock.

    Args:
        neighbour_shares: `SignalWeights.neighbour_shares`.
        has_words: Whether entries are searched by words.
    """

    def __init__(self, neighbour_shares: Mapping[int, float], has_words: bool) -> None:
        self._neighbour_shares = neighbour_shares
        self._has_words = has_words

        self.entries: list[Entry | None] = []
        """The entry of each row; None for an empty row."""
        self._row_by_id: dict[str, int] = {}
        self._words = BM25Index()
        self._neighbours = Neighbours(neighbour_shares)
        self.vectors = VectorTable()
        self.speakers = Speakers()
        self._speaker_numbers: array[int] = array("q")
        """The number in `speakers` of who said the entry of each row."""
        self._months: array[int] = array("q")
        """The `month_number` of each row."""

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._row_by_id)

    def put(
        self, entries: Sequence[Entry], passage_counts: Sequence[int], vectors: np.ndarray | None
    ) -> None:
        """Add entries, each in a row of its own; an entry replaces the one with the same id.

        Args:
            entries: The entries, each id once.
            passage_counts: How many vectors each entry has, one for each passage of its text.
            vectors: The vectors of the first entry, then those of the second, and so on; None if
                entries have none.
        """
        # Splitting texts into words is slow. So in a service it is done in batches, and waits
        # before each batch for its turn.
        for batch in split_for_slots(entries, _text_length):
            batch_length = sum(map(_text_length, batch))
            with text_slot(batch_length):
                for entry in batch:
                    self._put_entry(entry)

        if vectors is not None:
            rows = [self._row_by_id[entry.id] for entry in entries]
            self.vectors.set_vectors(rows, passage_counts, vectors)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove the entries of these ids; their rows stay empty. Unknown ids are ignored."""
        for entry_id in ids:
            row = self._row_by_id.pop(entry_id, None)
            if row is None:
                continue

            old_entry = self.entries[row]
            self.entries[row] = None
            self.vectors.remove(row)
            if old_entry is None:
                continue

            # A name that no entry has any more must not be looked for in queries, nor be kept.
            self.speakers.unregister(old_entry.speaker)
            self._speaker_numbers[row] = _UNKNOWN_SPEAKER
            if self._has_words:
                self._words.set_text(row, None, old_entry.text)
                # The row leaves its dialogue, so the turns before and after it become neighbours.
                self._neighbours.set_dialogue(row, "")

    def is_filled(self) -> np.ndarray | None:
        """Return for each row whether it has an entry; booleans [rows]. None if all rows have."""
        if len(self) == len(self.entries):
            return None
        return np.array([entry is not None for entry in self.entries])

    def is_mostly_empty(self) -> bool:
        """Return whether so many rows or vectors are unused that `compacted` is worth its time."""
        empty_count = len(self.entries) - len(self)
        unused_count = max(empty_count, self.vectors.removed_count)
        return unused_count > len(self) + SPARE_ROWS

    def compacted(self) -> EntryRows:
        """Return a copy with the same entries and vectors, but without the empty rows between them.

        A row is the number of an entry, so entries get other rows.
        """
        rows: list[int] = []
        entries: list[Entry] = []
        for row, entry in enumerate(self.entries):
            if entry is not None:
                rows.append(row)
                entries.append(entry)

        passage_counts, vectors = self.vectors.vectors_of(rows)
        compacted = EntryRows(self._neighbour_shares, self._has_words)
        compacted.put(entries, passage_counts, vectors if len(vectors) else None)
        return compacted

    def word_scores(self, query: str, neighbour_factor: float = 1.0) -> np.ndarray:
        """Return how well the words of each row match a query; rarer words count more.

        A row that is a turn of a dialogue also gets shares of the scores of the turns around it: an
        answer often lacks the words of the question. Rows without any match score 0.

        Args:
            query: The query.
            neighbour_factor: The shares are multiplied by it.
        """
        scores = self._words.scores(query)
        return self.smoothing().smoothed(scores, factor=neighbour_factor)

    def word_rarity(self, word: str) -> float:
        """Return how rare a word is in the entries; 0 for function words such as "the"."""
        return self._words.rarity(word)

    def smoothing(self) -> NeighbourSmoothing:
        """Return an object that gives each turn of a dialogue a share of its neighbours' scores.

        It is for the rows as they are now; later changes do not affect it.
        """
        return self._neighbours.smoothing()

    def speaker_filter(self, where: SpeakerIs) -> np.ndarray:
        """Return for each row whether its entry passes a filter by speaker; booleans [rows]."""
        # A speaker without entries has the number -1, which no row with an entry has.
        number = self.speakers.numbers.get(where.speaker, _UNKNOWN_SPEAKER)
        is_by_speaker = self._row_speakers() == number
        return is_by_speaker if where.same else ~is_by_speaker

    def is_wanted_speaker(self, query: str) -> np.ndarray | None:
        """Return for each row whether a query asks what its speaker said; booleans [rows].

        None if the query asks for nobody's words.
        """
        speakers = self.speakers.target_speakers(query)
        if not speakers:
            return None
        return np.isin(self._row_speakers(), speakers)

    def month_nearness(self, query: str, weights: SignalWeights) -> np.ndarray | None:
        """Return how near the month of each row is to the months that a query names, from 0 to 1.

        None if the query names no month and no year.
        """
        months = np.frombuffer(self._months, np.int64)
        return month_nearness(
            query,
            months,
            next_month_nearness=weights.next_month,
            same_year_nearness=weights.year,
        )

    def _put_entry(self, entry: Entry) -> None:
        """Store an entry in its row, a new one if its id is new, with all but its vectors."""
        row = self._row_by_id.get(entry.id)
        if row is None:
            row = self._add_row(entry.id)
        old_entry = self.entries[row]

        self.entries[row] = entry
        self._speaker_numbers[row] = self.speakers.register(entry.speaker)
        if old_entry is not None:
            self.speakers.unregister(old_entry.speaker)
        self._months[row] = month_number(entry.time)
        if self._has_words:
            self._words.set_text(row, entry.text, old_entry.text if old_entry else None)
            self._neighbours.set_dialogue(row, entry.tags.get(DIALOGUE, ""))

    def _add_row(self, entry_id: str) -> int:
        """Append an empty row for a new entry, and return its number. `_put_entry` fills it."""
        row = len(self.entries)
        self._row_by_id[entry_id] = row
        self.entries.append(None)
        self._speaker_numbers.append(0)
        self._months.append(0)
        return row

    def _row_speakers(self) -> np.ndarray:
        """Return the number of each row's speaker; an array that is valid until the next change."""
        return np.frombuffer(self._speaker_numbers, np.int64)


def _text_length(entry: Entry) -> int:
    return len(entry.text)
