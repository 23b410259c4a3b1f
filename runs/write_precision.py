"""Write precision: how much of what a memory stores is of use, beside how much of it is recalled.

Two figures stand beside the metric `support`:

- "unused_entries": the share of stored entries that no question recalls within the budget, and that
  no later entry changes or cites;
- "stored_words_per_said_word": words of the stored entries for each word of the histories.

The first depends on how many questions are asked about a history, so it only compares programs that
were asked the same questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dspy

from ..memory.entry import Entry
from ..memory.word_count import count_memory_words, count_words
from ..programs.cache import CachedMemory
from ..programs.program import MemoryProgram
from ..records import History
from .rows import Row

UNUSED_ENTRIES = "unused_entries"
STORED_WORDS = "stored_words_per_said_word"


@dataclass(frozen=True)
class StoredEntries:
    """The entries in the memory of one history."""

    ids: frozenset[str]
    used_by_entries: frozenset[str]
    """Ids of those that a later item has changed, or that another entry cites."""
    words: int
    """Words of all entries."""
    said_words: int
    """Words of the history."""


def read_stored_entries(program: MemoryProgram, history: History) -> StoredEntries | None:
    """Return what the memory of a history holds; None if it failed, or lists no entries.

    The memory is in the cache already if any question asked for it.
    """
    try:
        last_memory = program.remember(history)
    except (Exception, SystemExit):
        # SystemExit too: code of the user's may call `exit`. The same error has failed all
        # questions about the history, and is counted as their failure.
        return None

    memory = last_memory.memory
    # A user's own system does not show what it stores.
    if not memory.names_sources or not memory.lists_entries():
        return None

    entries = memory.entries()
    ids = frozenset(entry.id for entry in entries)
    # An entry that a later one rests on, or that was changed by what was said later, was of use to
    # the writer, even if no question recalls it.
    useful_ids = _cited_ids(entries) | _changed_ids(last_memory)
    return StoredEntries(
        ids=ids,
        used_by_entries=ids & useful_ids,
        words=count_memory_words(memory),
        said_words=_count_said_words(history),
    )


def _count_said_words(history: History) -> int:
    """Return the number of words of all turns of a history."""
    said_words = 0
    for item in history.items:
        said_words += sum(count_words(turn.content) for turn in item.turns)
    return said_words


def _cited_ids(entries: Iterable[Entry]) -> set[str]:
    """Return what entries name as their sources or in their tags, ids of other entries among it."""
    cited_ids: set[str] = set()
    for entry in entries:
        cited_ids.update({*entry.sources, *entry.tags.values()} - {entry.id})
    return cited_ids


def _changed_ids(last_memory: CachedMemory) -> set[str]:
    """Return the ids of entries whose text a later item has changed."""
    changed_ids: set[str] = set()
    texts: dict[str, str] = {}
    for cached in last_memory.ancestors():
        # Finalizing is no item: it may write the same entries in another form.
        if cached.item is None:
            continue
        for entry in cached.memory.entries():
            if texts.setdefault(entry.id, entry.text) != entry.text:
                changed_ids.add(entry.id)
    return changed_ids


def write_precision(
    examples: Sequence[dspy.Example],
    rows: Mapping[str, Row],
    entries_by_history: Mapping[History, StoredEntries],
) -> dict[str, float]:
    """Return the figures of all histories together; none if no memory lists its entries.

    Args:
        examples: The questions that were asked.
        rows: Their rows, by the id of the question.
        entries_by_history: What was stored, by the history of the examples.
    """
    used_ids: dict[History, set[str]] = {}
    for history, entries in entries_by_history.items():
        used_ids[history] = set(entries.used_by_entries)
    for example in examples:
        row = rows.get(str(example.id))
        if row is not None and example.history in used_ids:
            used_ids[example.history].update(row.counted_entries)

    num_entries = 0
    num_unused = 0
    words = 0
    said_words = 0
    for history, entries in entries_by_history.items():
        num_entries += len(entries.ids)
        num_unused += len(entries.ids - used_ids[history])
        words += entries.words
        said_words += entries.said_words

    figures: dict[str, float] = {}
    if num_entries:
        figures[UNUSED_ENTRIES] = num_unused / num_entries
    if said_words:
        figures[STORED_WORDS] = words / said_words
    return figures
