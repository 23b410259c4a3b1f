"""Find entries of a memory, or of a recalled context, that have the same id.

A search finds only one of such entries. So the score would be too low, and nothing would say why.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

import dspy

from ..errors import UserError
from ..programs.cache import CachedMemory
from ..programs.program import MemoryProgram
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
        # A search that is not free is that of a user's own system. The entries of its memory are
        # not checked: they are the turns of the history.
        is_own_system = not reader.is_search_free
        if is_own_system:
            return

        if self._checked.get(id(cached)) is cached:
            return
        self._checked[id(cached)] = cached

        try:
            entries = reader.entries(cached.memory)
        except (Exception, SystemExit):
            # Whatever needs the entries of this memory later fails with the same error.
            return
        duplicate = _first_duplicate(entry.id for entry in entries)
        if duplicate is not None:
            raise UserError(
                f"{self._program.name}: entries have the same id: {duplicate!r}; give every entry"
                " of a memory an id of its own (mempiler.testing.check_method checks this and more)"
            )


def duplicate_hit_id(program: MemoryProgram, example: dspy.Example, context: Context) -> str:
    """Return an id that several hits of a user's own system have; "" if there is none.

    Hits with the id of a turn are parts of that turn, so several of them are fine.
    """
    if program.method.reader.is_search_free or len(context.hits) < 2:
        return ""
    turns = example.history.turns
    return _first_duplicate(hit.id for hit in context.hits if hit.id not in turns) or ""


def _first_duplicate(ids: Iterable[str]) -> str | None:
    """Return the first id that comes a second time; None if all are different."""
    previous_ids: set[str] = set()
    for entry_id in ids:
        if entry_id in previous_ids:
            return entry_id
        previous_ids.add(entry_id)
    return None
