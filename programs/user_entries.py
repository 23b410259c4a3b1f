"""The entries of one user's memory, one by one: what `UserMemory` does beside adding and asking.

get(id), list(cursor, where)      what each entry says, when, and from which sessions and turns
update(id, text), delete(id)      amendments: one row each, applied whenever the memory is read
undo(id), history(id)             taken back; who changed what, and when
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from ..engines.threads import in_thread
from ..errors import ConflictError, UserError
from ..memory.amending import LONGEST_BY, Amendment, Amendments, in_force, plain_line, worded
from ..memory.index import Entry
from ..memory.listed import PAGE, EntryEvent, Listed, Origin, Page
from ..memory.metadata import Conditions
from ..memory.store import Store
from ..memory.stored import Owner
from .entries import entries_of, entry_of, listed, page
from .live import View
from .program import MemoryProgram
from .recalling import leaving
from .searching import Within

TRIES = 50
"""How often an amendment is made anew because another one came first."""


class UserEntries:
    """What a `UserMemory` does with single entries."""

    program: MemoryProgram
    store: Store
    owner: Owner
    _since: int | None

    def look(self) -> View:
        """The memory and what is not in it yet, or as it was."""
        raise NotImplementedError

    def get(self, entry: str, seen: View | None = None) -> Listed | None:
        """An entry by its id, of the memory or among the turns that are not in it yet; None if there is none.

        Args:
            entry: Its id, as `list`, `search` and the evidence of an answer give it.
            seen: Where it is looked for, of `look`; what is there now if None.
        """
        seen = seen or self.look()
        found = entry_of(self.program.method, seen.settled, seen.waiting, entry)
        return self._listed([found], seen)[0] if found else None

    def list(
        self,
        cursor: str | None = None,
        limit: int = PAGE,
        seen: View | None = None,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Page:
        """Entries in the order of their ids, a page at a time.

        Pages are stable: an entry that is there all the time is listed once, whatever is added or deleted meanwhile.

        Args:
            cursor: `next` of the page before; None for the first.
            limit: Most entries, 1 to 1000.
            seen: What is listed, of `look`; what is there now if None.
            where: Conditions of the metadata of sessions (`memory.metadata`): only what rests on such a session.
            since: Only what is of this moment or later; moments without a zone are in UTC.
            until: Only what is from before this moment.

        Raises:
            UserError: The limit, the cursor or a condition is none; or the memory as it was then is not kept.
        """
        within, seen = self._within(where, since, until), seen or self.look()
        found = entries_of(self.program.method, seen.settled, seen.waiting)
        if not within.everything:
            found = {id: (entry, waits) for id, (entry, waits) in found.items() if within.own(entry)}
        ids, following = page(found, cursor, limit)
        return Page(tuple(self._listed([found[id] for id in ids], seen)), following)

    def update(self, entry: str, text: str, by: str = "") -> Amendment | None:
        """Gives an entry another text, from now on and after every further session; None if there is no such entry.

        Args:
            entry: Its id.
            text: What it says now, on one line; of a turn without its speaker.
            by: Who says so, for the history.

        Raises:
            UserError: The text is empty, too long or the one of now, or the entry is made of others and has no text of
                its own.
            ConflictError: The user was forgotten meanwhile, or others keep changing entries.
        """
        return self._amend("update", entry, text, by)

    def delete(self, entry: str, by: str = "") -> Amendment | None:
        """Takes an entry out, with what else holds the same, until it is undone; None if there is no such entry.

        `docs/production.md` says what a deletion reaches; `forget_session` erases what was said.

        Args:
            entry: Its id.
            by: Who says so, for the history.

        Raises:
            UserError: The method's entries cannot be taken out one by one.
            ConflictError: The user was forgotten meanwhile, or others keep changing entries.
        """
        return self._amend("delete", entry, None, by)

    def undo(self, entry: str, by: str = "") -> Amendment | None:
        """Takes the last change of an entry back that stands; None if there is none.

        Args:
            entry: Its id, at the time of the change.
            by: Who says so, for the history.

        Raises:
            ConflictError: The user was forgotten meanwhile, or others keep changing entries.
        """

        def row(seen: View) -> Amendment | None:
            rows = [row for row in in_force(self.store.amendments(self.owner)) if row.entry == entry]
            return replace(rows[-1], what="undo", undoes=rows[-1].number) if rows else None

        return self._written(row, by)

    def history(self, entry: str) -> tuple[EntryEvent, ...]:
        """What became of an entry: from which turns it was written, and each change since; () if there is none."""
        rows = [row for row in self.store.amendments(self.owner) if row.entry == entry]
        found = self.get(entry)
        if not rows:
            return (EntryEvent("written", found.text, at=found.time, turns=found.turns),) if found else ()
        first = rows[0]
        written = EntryEvent("written", first.text, at=found.time if found else None, turns=first.sources)
        return written, *(EntryEvent(row.what, row.text, row.new, row.at, row.by, row.sources) for row in rows)

    def _amend(self, what: Literal["update", "delete"], entry: str, text: str | None, by: str) -> Amendment | None:
        def row(seen: View) -> Amendment | None:
            found = entry_of(self.program.method, seen.settled, seen.waiting, entry)
            if found is None:
                return None
            was = found[0]
            new = worded(was, text) if text is not None else None
            if new == was.text:
                raise UserError(f"the {was.kind} {entry!r:.100} says this already; nothing is to be changed")
            made = Amendment(0, what, entry, was.kind, was.text, was.sources, new)
            self._check(made, seen)
            return made

        return self._written(row, by)

    def _written(self, make: Callable[[View], Amendment | None], by: str) -> Amendment | None:
        """Stores the amendment that is made of what is there; made anew where another one came first."""
        by = plain_line("by", by, LONGEST_BY) if by else ""
        since = self.store.forgets() if self._since is None else self._since
        for _ in range(TRIES):
            seen = self.look()
            made = make(seen)
            if made is None:
                return None
            at = datetime.now(UTC).replace(tzinfo=None)
            made = replace(made, number=seen.snapshot.amended + 1, at=at, by=by)
            if self.store.amend(self.owner, made, since):
                return made
        raise ConflictError(f"entries of user {self.owner.user!r} are being changed all the time; try again")

    def _check(self, made: Amendment, seen: View) -> None:
        """Refuses what would not show: an entry of which nothing can be changed by itself."""
        method = self.program.method
        amend = Amendments([made], method.reader.entries(seen.settled))
        waiting = replace(seen.waiting, items=amend.items(seen.waiting.items))
        left = entry_of(method, leaving(method, seen.settled, amend), waiting, made.entry)
        if (left is None) != (made.new is None) or (left and left[0].text == made.text != made.new):
            how = "update its turns" if made.new else "forget its session"
            raise UserError(f"the {made.kind} {made.entry!r:.100} cannot be changed by itself here; {how}")

    async def aupdate(self, entry: str, text: str, by: str = "") -> Amendment | None:
        """`update` for asyncio."""
        return await in_thread(lambda: self.update(entry, text, by))

    async def adelete(self, entry: str, by: str = "") -> Amendment | None:
        """`delete` for asyncio."""
        return await in_thread(lambda: self.delete(entry, by))

    async def aundo(self, entry: str, by: str = "") -> Amendment | None:
        """`undo` for asyncio."""
        return await in_thread(lambda: self.undo(entry, by))

    async def ahistory(self, entry: str) -> tuple[EntryEvent, ...]:
        """`history` for asyncio."""
        return await in_thread(lambda: self.history(entry))

    async def aget(self, entry: str) -> Listed | None:
        """`get` for asyncio."""
        return await in_thread(lambda: self.get(entry))

    async def alist(
        self,
        cursor: str | None = None,
        limit: int = PAGE,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Page:
        """`list` for asyncio."""
        return await in_thread(lambda: self.list(cursor, limit, None, where, since, until))

    def _within(self, where: Mapping[str, Any] | None, since: datetime | None, until: datetime | None) -> Within:
        """What is looked at."""
        conditions = Conditions.parse(where)
        turns = self.store.turns_where(self.owner, conditions) if conditions else None
        return Within(since, until, turns)

    def _listed(self, found: Iterable[tuple[Entry, bool]], seen: View) -> list[Listed]:
        """Entries with the sessions that they come from."""
        found = tuple(found)
        wanted = {turn for entry, _ in found for turn in entry.sources}
        stored = self.store.sessions(self.owner, sorted(wanted))
        of = {turn.id: Origin(item.id) for item in seen.waiting.items for turn in item.turns if turn.id in wanted}
        of |= {turn: Origin(*session) for turn, session in stored.items()}
        rows: list[Listed] = []
        for entry, waiting in found:
            origins = {of[turn].id: of[turn] for turn in entry.sources if turn in of}
            rows.append(listed(entry, waiting, tuple(origins.values())))
        return rows
