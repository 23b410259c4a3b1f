"""Forced rebuilds that go on after a kill: who is still to be written anew is kept in the store.

    plan ──> one row per user ── the memory is deleted: begun ── everything written: the row goes

Rebuilds that are not forced need no notes: what is to be done stands in the stamp of each memory, and in the queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, exists, select

from . import store_tables as t
from .store_rows import upsert
from .store_tables import key_of, of
from .stored import Owner, Rebuild


def plan(db: Connection, owners: Sequence[Owner], writer: str) -> None:
    """Notes that memories are to be written anew by a writer."""
    for owner in owners:
        upsert(db, t.rebuilds, key_of(owner), {"writer": writer, "begun": 0, "since": t.clock(db)})


def planned(db: Connection, writer: str, tenant: str | None, user: str | None) -> list[Rebuild]:
    """What a writer still has to write anew, in order of the names."""
    c = t.rebuilds.c
    query = select(t.rebuilds).where(c.writer == writer).order_by(c.tenant, c.user)
    for column, value in ((c.tenant, tenant), (c.user, user)):
        query = query if value is None else query.where(column == value)
    return [Rebuild(Owner.stored(row.user, row.tenant), bool(row.begun), row.since) for row in db.execute(query)]


def begin(db: Connection, owner: Owner, writer: str) -> None:
    """Notes that a user's old memory is gone, in the transaction that deletes it."""
    since = db.execute(select(t.rebuilds.c.since).where(*of(t.rebuilds, owner))).scalar()
    upsert(db, t.rebuilds, key_of(owner), {"writer": writer, "begun": 1, "since": since or t.clock(db)})


def finish(db: Connection, owner: Owner) -> None:
    """Takes a user off the list, if nothing of theirs is queued any more."""
    c = t.items.c
    queued = exists().where(*of(t.items, owner), c.state == "queued")
    db.execute(delete(t.rebuilds).where(*of(t.rebuilds, owner), ~queued))
