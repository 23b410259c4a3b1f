"""Memories as they were: every commit is a moment, and what it wrote is kept beside what is there now.

    texts, changes ── a text is written anew ──> past_texts, past_changes      moved, not copied from the memory
    moments        one row a commit: when, which text, how many of its changes

A memory that is deleted (a rebuild, a forgotten session) ends its past: a moment without a text says since when there
is one again. What is kept is as large as all texts and changes ever written: about three times the memory.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, literal, select

from ..errors import UserError
from . import store_tables as t
from .prepared import Prepared
from .store_tables import given, key_of, mine, of, whose
from .stored import Change, Owner

NEW = -1
"""The number of a moment before which nothing is kept."""
_OWNER = ("tenant", "user")
_MOMENT, _MOMENT_ON_SERVER = Prepared(insert(t.moments)), insert(t.moments).values(at=t.SERVER_CLOCK)
_M, _P = t.moments.c, t.past_texts.c
_LATEST = _M.at.desc(), _M.number.desc()
_THEN = select(t.moments).where(*mine(t.moments), _M.at <= given("then")).order_by(*_LATEST).limit(1)
_FIRST = select(_M.at, _M.number).where(*mine(t.moments), _M.number > NEW).order_by(_M.at, _M.number).limit(1)
_NEWLY = select(t.moments.c.number).where(*mine(t.moments), _M.number == NEW)
_TEXT = select(t.texts.c.memory, t.texts.c.settled).where(*mine(t.texts), t.texts.c.base == given("base"))
_PAST_TEXT = select(_P.memory, _P.settled).where(*mine(t.past_texts), _P.base == given("base"))
_BASE = select(t.texts.c.base).where(*mine(t.texts))
_OLD_TEXT = insert(t.past_texts).from_select(
    [*_OWNER, "base", "memory", "settled"],
    select(*(t.texts.c[name] for name in (*_OWNER, "base", "memory", "settled"))).where(*mine(t.texts)),
)
_OLD_CHANGES = insert(t.past_changes).from_select(
    [*_OWNER, "base", "number", "memory", "settled"],
    select(
        t.changes.c.tenant,
        t.changes.c.user,
        _BASE.scalar_subquery(),
        *(t.changes.c[name] for name in ("number", "memory", "settled")),
    ).where(*mine(t.changes)),
)


class Then(NamedTuple):
    """A memory as it was."""

    base: str
    number: int
    position: int
    """Of the last item in it."""
    memory: str
    settled: str | None
    changes: tuple[Change, ...]


def note(db: Connection, owner: Owner, base: str, number: int, position: int) -> None:
    """Notes a commit: from now on the memory is this one."""
    row = {**key_of(owner), "base": base, "number": number, "position": position}
    if db.dialect.name == "postgresql":
        db.execute(_MOMENT_ON_SERVER, row)
    else:
        _MOMENT(db, {**row, "at": time.time()})


def begin(db: Connection, owner: Owner) -> None:
    """Notes that nothing is kept of before, and deletes it."""
    for table in t.PAST:
        db.execute(delete(table).where(*of(table, owner)))
    note(db, owner, "", NEW, 0)


def keep(db: Connection, owner: Owner) -> None:
    """Keeps a text and its changes that are about to be written anew."""
    if db.execute(_BASE, whose(owner)).first() is not None:
        db.execute(_OLD_TEXT, whose(owner))
        db.execute(_OLD_CHANGES, whose(owner))
        if db.execute(select(literal(1)).where(*of(t.moments, owner)).limit(1)).first() is None:
            # A store of before there were moments.
            note(db, owner, "", NEW, 0)


def read(db: Connection, owner: Owner, then: float, made: bool) -> Then | None:
    """The memory as it was at a time; None where there was none.

    Args:
        db: A transaction.
        owner: Whose.
        then: Seconds since 1970.
        made: Whether there is a memory now.

    Raises:
        UserError: It is not kept.
    """
    row = db.execute(_THEN, whose(owner, then=then)).first()
    if row is None:
        first = db.execute(_FIRST, whose(owner)).first()
        # A memory begins with a text: a change as the first moment is of a store of before there were any.
        began = first.number == 0 if first else not made
        if not began or db.execute(_NEWLY, whose(owner)).first() is not None:
            since = first.at if first else None
            raise UserError(f"as_of: the memory of user {owner.user!r} is not kept from {_said(since)}")
        return None
    if row.number == NEW:
        return None
    now = db.execute(_TEXT, whose(owner, base=row.base)).first()
    text = now or db.execute(_PAST_TEXT, whose(owner, base=row.base)).first()
    if text is None:
        raise UserError(f"as_of: the memory of user {owner.user!r} is not kept from {_said(None)}")
    changes = _changes(db, owner, t.changes if now else t.past_changes, row)
    return Then(row.base, row.number, row.position, text.memory, text.settled, changes)


def _changes(db: Connection, owner: Owner, table: Any, row: Any) -> tuple[Change, ...]:
    of_text: Sequence[Any] = (table.c.base == row.base,) if table is t.past_changes else ()
    query = select(table.c.memory, table.c.settled).where(*of(table, owner), *of_text, table.c.number <= row.number)
    return tuple(Change(*found) for found in db.execute(query.order_by(table.c.number)))


def _said(first: float | None) -> str:
    if first is None:
        return "that time; ask without it"
    return f"that time, but from {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(first))}; ask for that or later"
