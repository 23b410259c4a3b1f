"""Single entries of a user's memory: listing by page, editing, and their history.

Ids never change and order the entries, numbers in them as numbers (`D1:9` before `D1:10`): a page goes on behind the
last id of the page before, whatever was added or deleted between the two.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, Unpack

from ..errors import ConflictError, UserError
from ..memory.amending import LONGEST, LONGEST_BY, Amendment, Amendments, active_amendments
from ..memory.entries import MOST, PAGE, EntryChange, EntryPage, ListedEntry, Origin
from ..memory.incoming import plain_line
from ..memory.index import Entry
from ..memory.store import Store
from ..memory.stored import Owner
from ..validation import check_number
from .bodies import EntryChoice
from .memories import Memories
from .memory_view import MemoryView

TRIES = 50
"""How often a change is made anew because another one came first."""
LONGEST_PAGE = 1_000_000
"""Most characters of the texts of a page of entries, or of hits over HTTP."""
_NUMBER = re.compile(r"([0-9]{1,18})")


def in_order(id: str) -> tuple[Any, ...]:
    """By what entries are ordered: `D1:9` comes before `D1:10`."""
    parts = [int(part) if n % 2 else part for n, part in enumerate(_NUMBER.split(id))]
    return (*parts, -1, id)


def number_that_fits(texts: Iterable[str]) -> int:
    """Return how many of the first texts have at most `LONGEST_PAGE` characters together; the first one always fits."""
    number = 0
    characters = 0
    for text in texts:
        characters += len(text)
        if number and characters > LONGEST_PAGE:
            break
        number += 1
    return number


class UserEntries:
    """What a `UserMemory` does with entries, one by one."""

    memories: Memories
    owner: Owner
    store: Store
    view: Callable[[], MemoryView]
    _since: int | None

    def get(self, entry: str) -> ListedEntry | None:
        """An entry by its id, of the memory or among the turns that are not in it yet; None if there is none.

        Args:
            entry: Its id, as `list`, `search` and the evidence of an answer give it.
        """
        view = self.view()
        found = view.entries().get(entry)
        return self._listed(view, [found])[0] if found else None

    def list(self, cursor: str | None = None, limit: int = PAGE, **choice: Unpack[EntryChoice]) -> EntryPage:
        """Entries in the order of their ids, a page at a time.

        Pages are stable: an entry that is there all the time is listed once, whatever is added or deleted meanwhile.

        Args:
            cursor: `next` of the page before; None for the first.
            limit: Most entries, 1 to 1000; fewer where their texts are long.
            **choice: `where`, `since` and `until`, as in `ask`.

        Raises:
            UserError: The limit, the cursor or a condition is none.
        """
        check_number("limit", limit, 1, MOST)
        if cursor is not None and not cursor:
            raise UserError("the cursor is empty; give `next` of the page before, or none for the first page")
        within, view = self.memories.filter_for(self.owner, **choice), self.view()
        found = view.entries()
        after = None if cursor is None else in_order(cursor)
        inside = [id for id, (entry, _) in found.items() if within.is_empty or within.edited(entry)]
        behind = [id for id in inside if after is None or in_order(id) > after]
        ids = heapq.nsmallest(limit, behind, key=in_order)
        ids = ids[: number_that_fits(found[id][0].text for id in ids)]
        following = ids[-1] if len(behind) > len(ids) else None
        return EntryPage(entries=self._listed(view, [found[id] for id in ids]), next=following)

    def update(self, entry: str, text: str, by: str = "") -> EntryChange | None:
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
        return self._change("update", entry, by, text)

    def delete(self, entry: str, by: str = "") -> EntryChange | None:
        """Takes an entry out, with what else holds the same, until it is undone; None if there is no such entry.

        `docs/production/python.md` says what a deletion reaches; `forget_session` erases what was said.

        Args:
            entry: Its id.
            by: Who says so, for the history.

        Raises:
            UserError: The method's entries cannot be taken out one by one.
            ConflictError: As of `update`.
        """
        return self._change("delete", entry, by)

    def undo(self, entry: str, by: str = "") -> EntryChange | None:
        """Takes the last change of an entry back that stands; None if there is none.

        Args:
            entry: Its id, at the time of the change.
            by: Who says so, for the history.

        Raises:
            ConflictError: As of `update`.
        """
        return self._change("undo", entry, by)

    def history(self, entry: str, after: int | None = None, limit: int = PAGE) -> tuple[EntryChange, ...]:
        """What became of an entry: from which turns it was written, and each change since; () if there is none.

        Args:
            entry: Its id.
            after: The `number` of the last change of the page before; None for the first page.
            limit: Most changes, 1 to 1000.

        Raises:
            UserError: The limit is none.
        """
        check_number("limit", limit, 1, MOST)
        found, rows = self.get(entry), [row for row in self.store.amendments(self.owner) if row.entry == entry]
        if not (rows or found):
            return ()
        text, turns = (rows[0].text, rows[0].sources) if rows else (found.text, found.turns) if found else ("", ())
        written = EntryChange(what="written", text=text, at=found.time if found else None, turns=turns)
        changes = (written, *map(_line, rows))
        return tuple(one for one in changes if after is None or one.number > after)[:limit]

    def _listed(self, view: MemoryView, found: Sequence[tuple[Entry, bool]]) -> tuple[ListedEntry, ...]:
        """Entries, each with whether it waits, with the sessions that they come from."""
        wanted = {turn for entry, _ in found for turn in entry.sources}
        stored = self.store.sessions(self.owner, sorted(wanted))
        of = {turn.id: Origin(id=item.id) for item in view.pending.items for turn in item.turns if turn.id in wanted}
        of |= {turn: Origin(id=id, metadata=metadata) for turn, (id, metadata) in stored.items()}
        return tuple(
            ListedEntry(
                id=entry.id,
                text=entry.text,
                kind=entry.kind,
                time=entry.time,
                speaker=entry.speaker,
                turns=entry.sources,
                sessions=tuple({of[turn].id: of[turn] for turn in entry.sources if turn in of}.values()),
                waiting=waiting,
            )
            for entry, waiting in found
        )

    def _change(
        self, what: Literal["update", "delete", "undo"], entry: str, by: str, text: str | None = None
    ) -> EntryChange | None:
        """Stores a change of an entry; it is made anew where another one came first. None if there is no such entry."""
        since = self.store.forgets() if self._since is None else self._since
        by = plain_line("by", by, LONGEST_BY) if by else ""
        for _ in range(TRIES):
            view = self.memories.view(self.owner)
            made = self._undone(entry) if what == "undo" else self._changed(view, what, entry, text)
            if made is None:
                return None
            at = datetime.now(UTC).replace(tzinfo=None)
            made = replace(made, number=view.snapshot.amended + 1, at=at, by=by)
            if self.store.amend(self.owner, made, since):
                return _line(made)
        raise ConflictError(f"entries of user {self.owner.user!r} are being changed all the time; try again")

    def _undone(self, entry: str) -> Amendment | None:
        rows = [row for row in active_amendments(self.store.amendments(self.owner)) if row.entry == entry]
        return replace(rows[-1], what="undo", undoes=rows[-1].number) if rows else None

    def _changed(
        self, view: MemoryView, what: Literal["update", "delete"], entry: str, text: str | None
    ) -> Amendment | None:
        """The change of an entry; refused where it would not show, since the entry has no text of its own."""
        was, _ = view.entries().get(entry, (None, False))
        if was is None:
            return None
        new = _worded(was, text) if text is not None else None
        if new == was.text:
            raise UserError(f"the {was.kind} {entry!r:.100} says this already; nothing is to be changed")
        made = Amendment(0, what, entry, was.kind, was.text, was.sources, new)
        amend = Amendments([made])
        waiting = replace(view.pending, items=amend.amended_items(view.pending.items))
        settled = view.method.apply_edits(view.finalized, amend)
        left, _ = replace(view, finalized=settled, pending=waiting).entries().get(entry, (None, False))
        if (left is None) != (new is None) or (left and left.text == was.text):
            how = "update its turns" if new else "forget its session"
            raise UserError(f"the {was.kind} {entry!r:.100} cannot be changed by itself here; {how}")
        return made


def _line(row: Amendment) -> EntryChange:
    about = {name: getattr(row, name) for name in ("what", "text", "new", "at", "by", "number")}
    return EntryChange(**about, turns=row.sources)


def _worded(entry: Entry, text: str) -> str:
    """The new text of an entry, as a `plain_line`; that of a turn begins with who said it."""
    said = plain_line("text", text, LONGEST)
    speaker = f"{entry.speaker}: "
    return f"{speaker}{said}" if entry.text.startswith(speaker) and not said.startswith(speaker) else said
