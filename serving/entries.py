"""Single entries of a user's memory: in pages, with the sessions that they come from; changed, and what became of them.

Ids never change and order the entries, numbers in them as numbers: a page goes on behind the last id of the page
before, whatever was added or deleted between the two.

Example:
    >>> from mempiler.serving.entries import in_order
    >>> sorted(["D2:1", "D1:10", "D1:9"], key=in_order)
    ['D1:9', 'D1:10', 'D2:1']
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from ..errors import ConflictError, UserError
from ..memory.amending import LONGEST_BY, Amendment, Amendments, in_force, plain_line, worded
from ..memory.entries import EntryChange, ListedEntry, Origin
from ..memory.index import Entry
from ..memory.stored import Owner
from ..programs.method import Method
from ..programs.recalling import leaving
from .memories import Memories
from .view import MOST, View

Change = Literal["update", "delete", "undo"]
TRIES = 50
"""How often a change is made anew because another one came first."""
_NUMBER = re.compile(r"([0-9]{1,18})")


def in_order(id: str) -> tuple[Any, ...]:
    """By what entries are ordered: `D1:9` comes before `D1:10`."""
    parts = [int(part) if n % 2 else part for n, part in enumerate(_NUMBER.split(id))]
    return (*parts, -1, id)


def page(ids: Iterable[str], cursor: str | None, limit: int) -> tuple[list[str], str | None]:
    """The ids of a page, and where the next one begins.

    Args:
        ids: Of all entries.
        cursor: What the page before said; None for the first.
        limit: Most entries.

    Raises:
        UserError: The limit is not a number from 1 to 1000, or the cursor is none.
    """
    if not 1 <= limit <= MOST:
        raise UserError(f"limit is {limit}; ask for 1 to {MOST} entries")
    if cursor is not None and not cursor:
        raise UserError("the cursor is empty; give `next` of the page before, or none for the first page")
    after = None if cursor is None else in_order(cursor)
    behind = [id for id in ids if after is None or in_order(id) > after]
    found = heapq.nsmallest(limit, behind, key=in_order)
    return found, found[-1] if len(behind) > limit else None


def listed(memories: Memories, view: View, found: Sequence[tuple[Entry, bool]]) -> tuple[ListedEntry, ...]:
    """Entries with the sessions that they come from.

    Args:
        memories: Whose store knows the sessions.
        view: Where the entries were found.
        found: Entries, each with whether it waits.
    """
    wanted = {turn for entry, _ in found for turn in entry.sources}
    stored = memories.store.sessions(view.snapshot.owner, sorted(wanted))
    of = {turn.id: Origin(id=item.id) for item in view.waiting.items for turn in item.turns if turn.id in wanted}
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


def change(
    memories: Memories, owner: Owner, since: int, what: Change, entry: str, by: str, text: str | None = None
) -> EntryChange | None:
    """Stores a change of an entry; it is made anew where another one came first. None if there is no such entry.

    Args:
        memories: Where it is.
        owner: Whose.
        since: What `Store.forgets` was when this began.
        what: What is done with it.
        entry: Its id.
        by: Who says so.
        text: What it says now.

    Raises:
        UserError: It cannot be changed so.
        ConflictError: The user was forgotten since, or others keep changing entries.
    """
    by = plain_line("by", by, LONGEST_BY) if by else ""
    for _ in range(TRIES):
        view = memories.look(owner)
        made = _undone(memories, owner, entry) if what == "undo" else _changed(memories, view, what, entry, text)
        if made is None:
            return None
        at = datetime.now(UTC).replace(tzinfo=None)
        made = replace(made, number=view.snapshot.amended + 1, at=at, by=by)
        if memories.store.amend(owner, made, since):
            return _line(made)
    raise ConflictError(f"entries of user {owner.user!r} are being changed all the time; try again")


def history(memories: Memories, owner: Owner, entry: str, found: ListedEntry | None) -> tuple[EntryChange, ...]:
    """What became of an entry; () if there is none.

    Args:
        memories: Where it is.
        owner: Whose.
        entry: Its id.
        found: What it is now.
    """
    rows = [row for row in memories.store.amendments(owner) if row.entry == entry]
    if not (rows or found):
        return ()
    text, turns = (rows[0].text, rows[0].sources) if rows else (found.text, found.turns) if found else ("", ())
    written = EntryChange(what="written", text=text, at=found.time if found else None, turns=turns)
    return written, *map(_line, rows)


def _line(row: Amendment) -> EntryChange:
    return EntryChange(what=row.what, text=row.text, new=row.new, at=row.at, by=row.by, turns=row.sources)


def _undone(memories: Memories, owner: Owner, entry: str) -> Amendment | None:
    rows = [row for row in in_force(memories.store.amendments(owner)) if row.entry == entry]
    return replace(rows[-1], what="undo", undoes=rows[-1].number) if rows else None


def _changed(
    memories: Memories, view: View, what: Literal["update", "delete"], entry: str, text: str | None
) -> Amendment | None:
    method = memories.program.method
    found = view.entry(method, entry)
    if found is None:
        return None
    was = found[0]
    new = worded(was, text) if text is not None else None
    if new == was.text:
        raise UserError(f"the {was.kind} {entry!r:.100} says this already; nothing is to be changed")
    made = Amendment(0, what, entry, was.kind, was.text, was.sources, new)
    _check(method, made, view)
    return made


def _check(method: Method, made: Amendment, view: View) -> None:
    """Refuses what would not show: an entry of which nothing can be changed by itself."""
    amend = Amendments([made])
    waiting = replace(view.waiting, items=amend.items(view.waiting.items))
    left = replace(view, settled=leaving(method, view.settled, amend), waiting=waiting).entry(method, made.entry)
    if (left is None) != (made.new is None) or (left and left[0].text == made.text != made.new):
        how = "update its turns" if made.new else "forget its session"
        raise UserError(f"the {made.kind} {made.entry!r:.100} cannot be changed by itself here; {how}")
