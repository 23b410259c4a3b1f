"""What callers said of sessions, in the rows of one user: of items by position, of sessions that go on by name.

    append(metadata) ──> of the open session ── end ──> of the item ── turns_where(conditions) ──> turns of both

Of an open session every further turn may say more; a name that is said again has the last value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, delete, insert, select

from ..records import Session
from . import store_tables as t
from .metadata import Conditions, checked_metadata
from .store_reads import BATCH, open_sessions
from .store_tables import each, given, key_of, mine, of, whose
from .stored import Owner

_OF_ITEMS = select(t.metadata.c.position, t.metadata.c.json).where(*mine(t.metadata))
_OF_OPEN = select(t.open_metadata.c.session, t.open_metadata.c.json).where(*mine(t.open_metadata))


def of_items(db: Connection, owner: Owner, skipped: list[str] | None = None) -> dict[int, dict[str, Any]]:
    """What callers said of items, by position."""
    return dict(each(t.metadata, owner, "position", db.execute(_OF_ITEMS, whose(owner)), _said, skipped))


def of_open(db: Connection, owner: Owner, skipped: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """What callers said of open sessions, by their ids."""
    return dict(each(t.open_metadata, owner, "session", db.execute(_OF_OPEN, whose(owner)), _said, skipped))


def _said(row: Any) -> tuple[Any, dict[str, Any]]:
    return row[0], dict(json.loads(row.json))


def put(db: Connection, owner: Owner, metadata: Mapping[int, Mapping[str, Any]]) -> None:
    """Writes what callers said of items, by position."""
    rows = [{**key_of(owner), "position": position, "json": json.dumps(said)} for position, said in metadata.items()]
    if rows:
        db.execute(insert(t.metadata), rows)


def add(db: Connection, owner: Owner, session: str, said: Mapping[str, Any]) -> None:
    """Adds to what callers said of an open session.

    Raises:
        UserError: That would be too much.
    """
    before = of_open(db, owner).get(session)
    now = checked_metadata({**(before or {}), **said})
    if now == before:
        return
    drop(db, owner, session)
    db.execute(insert(t.open_metadata), {**key_of(owner), "session": session, "json": json.dumps(now)})


def drop(db: Connection, owner: Owner, session: str) -> None:
    """Deletes what callers said of an open session."""
    db.execute(delete(t.open_metadata).where(*of(t.open_metadata, owner), t.open_metadata.c.session == session))


_TURNS = select(t.turns.c.turn).where(*mine(t.turns), t.turns.c.position.in_(given("positions")))


def turns_where(db: Connection, owner: Owner, conditions: Conditions) -> frozenset[str]:
    """The ids of the turns of all items and open sessions that meet conditions."""
    found = sorted(position for position, said in of_items(db, owner).items() if conditions.met(said))
    ids = {turn.id for session, said in _opened(db, owner) if conditions.met(said) for turn in session.turns}
    for n in range(0, len(found), BATCH):
        ids.update(db.execute(_TURNS, whose(owner, positions=found[n : n + BATCH])).scalars())
    return frozenset(ids)


def _beside(table: Any) -> Any:
    return and_(*(table.c[name] == t.turns.c[name] for name in ("tenant", "user", "position")))


_FROM = (
    select(t.turns.c.turn, t.items.c.id, t.metadata.c.json)
    .join(t.items, _beside(t.items))
    .outerjoin(t.metadata, _beside(t.metadata))
    .where(*mine(t.turns), t.turns.c.turn.in_(given("ids")))
)


def sessions(db: Connection, owner: Owner, turns: Sequence[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Id and metadata of the session of each turn, by turn; not of unknown ones, nor of open sessions without any."""
    found = {turn.id: (session.id, said) for session, said in _opened(db, owner) for turn in session.turns}
    for n in range(0, len(turns), BATCH):
        rows = db.execute(_FROM, whose(owner, ids=turns[n : n + BATCH]))
        found |= dict(each(t.metadata, owner, "id", rows, _of_session))
    return found


def _of_session(row: Any) -> tuple[str, tuple[str, dict[str, Any]]]:
    return row.turn, (row.id, json.loads(row.json) if row.json else {})


def _opened(db: Connection, owner: Owner) -> list[tuple[Session, dict[str, Any]]]:
    """The open sessions of which something was said."""
    said = of_open(db, owner)
    return [(session, said[session.id]) for session in open_sessions(db, owner) if session.id in said] if said else []
