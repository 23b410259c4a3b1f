"""The entries of one user's memory, one by one: what `UserMemory` does beside adding and asking.

get(id), list(cursor)      what each entry says, when, and from which sessions and turns
"""

from __future__ import annotations

from collections.abc import Iterable

from ..memory.index import Entry
from ..memory.store import Store
from ..memory.stored import Owner
from .entries import PAGE, Listed, Origin, Page, entries_of, listed, page
from .live import View
from .program import MemoryProgram
from .threads import in_thread


class UserEntries:
    """What a `UserMemory` does with single entries."""

    program: MemoryProgram
    store: Store
    owner: Owner

    def look(self) -> View:
        """The memory and what is not in it yet."""
        raise NotImplementedError

    def get(self, entry: str, seen: View | None = None) -> Listed | None:
        """An entry by its id, of the memory or among the turns that are not in it yet; None if there is none.

        Args:
            entry: Its id, as `list`, `search` and the evidence of an answer give it.
            seen: Where it is looked for, of `look`; what is there now if None.
        """
        seen = seen or self.look()
        found = entries_of(self.program.method, seen.settled, seen.waiting).get(entry)
        return self._listed([found], seen)[0] if found else None

    def list(self, cursor: str | None = None, limit: int = PAGE, seen: View | None = None) -> Page:
        """Entries in the order of their ids, a page at a time.

        Pages are stable: an entry that is there all the time is listed once, whatever is added or deleted meanwhile.

        Args:
            cursor: `next` of the page before; None for the first.
            limit: Most entries, 1 to 1000.
            seen: What is listed, of `look`; what is there now if None.

        Raises:
            UserError: The limit or the cursor is none.
        """
        seen = seen or self.look()
        found = entries_of(self.program.method, seen.settled, seen.waiting)
        ids, following = page(found, cursor, limit)
        return Page(tuple(self._listed([found[id] for id in ids], seen)), following)

    async def aget(self, entry: str) -> Listed | None:
        """`get` for asyncio."""
        return await in_thread(lambda: self.get(entry))

    async def alist(self, cursor: str | None = None, limit: int = PAGE) -> Page:
        """`list` for asyncio."""
        return await in_thread(lambda: self.list(cursor, limit))

    def _listed(self, found: Iterable[tuple[Entry, bool]], seen: View) -> list[Listed]:
        """Entries with the sessions that they come from."""
        found = tuple(found)
        wanted = {turn for entry, _ in found for turn in entry.sources}
        of = {turn.id: item.id for item in seen.waiting.items for turn in item.turns if turn.id in wanted}
        of |= self.store.sessions(self.owner, sorted(wanted - of.keys()))
        rows: list[Listed] = []
        for entry, waiting in found:
            names = dict.fromkeys(of[turn] for turn in entry.sources if turn in of)
            rows.append(listed(entry, waiting, [Origin(name) for name in names]))
        return rows
