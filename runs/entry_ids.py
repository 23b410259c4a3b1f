"""Find entries of a memory, or of a recalled context, that have the same id.

A search finds only one of such entries. So the score would be too low, and nothing would say why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

import dspy

from ..errors import UserError
from ..programs.cache import CachedMemory
from ..programs.program import MemoryProgram
from ..programs.reader import Reader
from ..records import Context


class EntryIdCheck:
    """Refuses memories in which several entries have the same id.

    Args:
        program: The program whose memories are checked.
    """

    def __init__(self, program: MemoryProgram) -> None:
        self._program = program
        self._checked: WeakValueDictionary[int, CachedMemory] = WeakValueDictionary()
        """The checked memories by their `id()`. A memory that the cache has dropped is not kept
        here: another one may get its id."""

    def check(self, cached: CachedMemory) -> None:
        """Raise a UserError if two entries of a memory have the same id.

        Each memory is checked only once.
        """
        reader = self._program.method.reader
        if is_own_system(reader):
            # Its entries are inside the system. `duplicate_hit_id` looks at what it finds.
            return

        # When a memory is gone, a new one may get its `id()`. So the number alone proves nothing.
        was_checked = self._checked.get(id(cached)) is cached
        if was_checked:
            return
        self._checked[id(cached)] = cached

        try:
            entries = reader.entries(cached.memory)
        except (Exception, SystemExit):
            # `entries` may be code of the user's, which may also call `exit`. The error is not
            # lost: whatever needs the entries of this memory later fails with it.
            return
        duplicate = _first_duplicate(entry.id for entry in entries)
        if duplicate is not None:
            raise UserError(
                f"{self._program.name}: entries have the same id: {duplicate!r}; give every entry"
                " of a memory an id of its own (mempiler.testing.check_method checks this and more)"
            )


def duplicate_hit_id(program: MemoryProgram, example: dspy.Example, context: Context) -> str:
    """Return an id that several hits of a user's own system have; "" if there is none.

    Such hits may be one entry that was found twice. `Evaluation.repeated_id_warning` warns of them.
    """
    if not is_own_system(program.method.reader) or len(context.hits) < 2:
        return ""

    # A system may return several parts of one turn, each with the id of the turn.
    turns = example.history.turns
    ids_of_entries = [hit.id for hit in context.hits if hit.id not in turns]
    return _first_duplicate(ids_of_entries) or ""


def is_own_system(reader: Reader[Any]) -> bool:
    """Tell whether a reader asks a user's own memory system (`programs.external`).

    Every search of such a system may cost time or money, so its reader has `is_search_free` False.
    The system does not list its entries, either.
    """
    return not reader.is_search_free


def _first_duplicate(ids: Iterable[str]) -> str | None:
    """Return the first id that comes a second time; None if all are different."""
    previous_ids: set[str] = set()
    for entry_id in ids:
        if entry_id in previous_ids:
            return entry_id
        previous_ids.add(entry_id)
    return None
