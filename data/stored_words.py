"""The words of what a memory stores, cut once for all questions about the memory.

Cutting a thousand entries takes a tenth of a second, and a benchmark may ask hundreds of questions
about one memory.

    stored_words = StoredWords()
    stored_words.entries(memory, stems_of)[0].stems        # ("rex", "dog")
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cachetools import LRUCache

from ..records import Hit
from ..records.shared_by_copies import SharedByCopies

_MAX_ENTRIES = 50_000
"""Entries whose words are kept, of all memories together: about 25 MB."""


class StoredEntry(Protocol):
    """An entry of a memory, as `memory.entry.Entry` is."""

    def hit(self) -> Hit:
        """Return the entry as a search would return it."""
        ...


class StoredMemory(Protocol):
    """A memory whose entries are looked at, as `memory.memory.Memory` is."""

    @property
    def names_sources(self) -> bool:
        """Whether it stores entries of its own; a user's system keeps them elsewhere."""
        ...

    def entries(self) -> Sequence[StoredEntry]:
        """Return all that can be recalled."""
        ...


@dataclass(frozen=True, slots=True)
class EntryWords:
    """What one entry says."""

    id: str
    text: str
    """What it says, with its date and its label."""
    sources: tuple[str, ...]
    """Ids of the turns that it rests on."""
    stems: tuple[str, ...]
    """What is compared of its words, each once."""


@dataclass(frozen=True)
class _MemoryWords:
    """The words of one memory, as they are kept."""

    memory: weakref.ref[StoredMemory]
    entries: tuple[EntryWords, ...]


class StoredWords(SharedByCopies):
    """Cuts the entries of memories into words, and keeps them. Many threads may use it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[int, _MemoryWords] = LRUCache(
            _MAX_ENTRIES, lambda kept: max(1, len(kept.entries))
        )

    def __reduce__(self) -> tuple[type[StoredWords], tuple[()]]:
        # What another process keeps begins empty.
        return StoredWords, ()

    def entries(
        self, memory: StoredMemory, stems_of: Callable[[str], Iterable[str]]
    ) -> tuple[EntryWords, ...]:
        """Return the words of all entries of a memory.

        Args:
            memory: The memory. It is told from others by its identity, as memories do not change.
            stems_of: Returns what is compared of the words of a text. For one object of this class
                it is always the same function.
        """
        key = id(memory)
        # The lock is held while entries are cut: threads that ask about one memory at the same time
        # would each cut all of it.
        with self._lock:
            kept = self._kept.get(key)
            # A new memory may have the id of one that is gone.
            if kept is not None and kept.memory() is memory:
                return kept.entries

            entries = _entry_words(memory, stems_of)
            if len(entries) <= _MAX_ENTRIES:
                self._kept[key] = _MemoryWords(weakref.ref(memory), entries)
            return entries


def _entry_words(
    memory: StoredMemory, stems_of: Callable[[str], Iterable[str]]
) -> tuple[EntryWords, ...]:
    """Return the words of all entries of a memory, without looking for kept ones."""
    words: list[EntryWords] = []
    for entry in memory.entries():
        hit = entry.hit()
        text = hit.dated_text
        # Entries share most of their words, so each word is held in memory once.
        stems = tuple(sys.intern(stem) for stem in dict.fromkeys(stems_of(text)))
        words.append(EntryWords(hit.id, text, hit.sources, stems))
    return tuple(words)
