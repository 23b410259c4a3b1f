"""What the store reads: rows of a user as records, inside a transaction that the store has opened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Select, case, distinct, exists, func, or_, select

from ..errors import StoreError
from ..records import AnyItem, Item, Session, Turn
from . import store_tables as t
from .deltas import patch
from .store_tables import of
from .stored import LONGEST_LEASE, Change, Document, Log, Owner, Stamp, StoredItem, Summary

_ITEM: TypeAdapter[Any] = TypeAdapter(AnyItem)
BATCH = 500
"""Ids per query; SQLite takes some 30,000 variables."""


def open_sessions(db: Connection, owner: Owner) -> list[Session]:
    """The sessions of a user that have not ended, with their turns so far, in order of their first turn."""
    c = t.open_turns.c
    parts: dict[str, list[Turn]] = {}
    for row in db.execute(select(c.session, c.json).where(*of(t.open_turns, owner)).order_by(c.added, c.number)):
        parts.setdefault(row.session, []).append(Turn.model_validate_json(row.json))
    return [Session(id=id, time=turns[0].time, turns=tuple(turns)) for id, turns in parts.items()]


def items(db: Connection, owner: Owner, after: int | None = None) -> list[StoredItem]:
    """The items of a user in order: all of them, or those behind a position and those that were never remembered."""
    c = t.items.c
    query = select(t.items).where(*of(t.items, owner)).order_by(c.position)
    query = query if after is None else query.where(or_(c.position > after, c.state.in_(("queued", "failed"))))
    return [
        StoredItem(row.position, _ITEM.validate_json(row.json), row.state, row.attempts, row.error)
        for row in db.execute(query)
    ]


def turns(db: Connection, owner: Owner, ids: Sequence[str]) -> dict[str, tuple[Turn, Item]]:
    """Turns of remembered and waiting items by id, each with its item; unknown ids are skipped."""
    positions: set[int] = set()
    for n in range(0, len(ids), BATCH):
        mine = (*of(t.turns, owner), t.turns.c.turn.in_(ids[n : n + BATCH]))
        positions |= set(db.execute(select(t.turns.c.position).where(*mine)).scalars())
    query = select(t.items.c.json).where(*of(t.items, owner), t.items.c.position.in_(positions))
    found = [_ITEM.validate_json(text) for text in db.execute(query).scalars()]
    wanted = set(ids)
    return {turn.id: (turn, item) for item in found for turn in item.turns if turn.id in wanted}


def stamp(row: Any) -> Stamp | None:
    """Who wrote the memory of a row; None without a row."""
    return Stamp(row.writer, row.program, row.embedder, row.schema) if row is not None and row.writer else None


def head(db: Connection, owner: Owner) -> Any:
    """The row of a user's memory, without its text; None if there is no memory."""
    columns = [column for column in t.memories.c if column.name not in ("json", "settled")]
    return db.execute(select(*columns).where(*of(t.memories, owner))).first()


def document(db: Connection, owner: Owner, head: Any) -> Document | None:
    """The memory of a user with its text; None without a head.

    Raises:
        StoreError: What is stored of it does not fit together.
    """
    made = stamp(head)
    if made is None:
        return None
    columns, c = (t.texts.c.memory, t.texts.c.settled), t.changes.c
    text = db.execute(select(*columns).where(*of(t.texts, owner))).first()
    if text is None:
        # Stored before there were changes.
        columns = (t.memories.c.json, t.memories.c.settled)
        text = db.execute(select(*columns).where(*of(t.memories, owner))).one()
    rows = db.execute(select(c.memory, c.settled).where(*of(t.changes, owner)).order_by(c.number)).all()
    try:
        memory, settled = text_after(text[0], text[1], [Change(*row) for row in rows])
    except (LookupError, TypeError, ValueError) as error:
        raise StoreError(
            f"the stored memory of user {owner.user!r} does not fit together ({type(error).__name__}); "
            f"run: mempiler rebuild PROGRAM --user {owner.user!r} --force"
        ) from error
    log = Log(len(text[0]) + len(text[1] or ""), sum(len(row[0]) + len(row[1] or "") for row in rows), len(rows))
    names = tuple(json.loads(head.speakers))
    return Document(memory, head.position, settled, head.settled_position, names, made, log=log)


def text_after(memory: str, settled: str | None, changes: Sequence[Change]) -> tuple[str, str | None]:
    """The JSON of a memory and of the settled one after some changes."""
    if not changes:
        return memory, settled
    document = json.loads(memory)
    last = max((n for n, change in enumerate(changes) if change.settled is not None), default=-1)
    for n, change in enumerate(changes):
        patch(document, json.loads(change.memory))
        if n == last:
            answered = json.loads(json.dumps(document))
            patch(answered, json.loads(change.settled or "{}"))
            settled = _compact(answered)
    return _compact(document), settled


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def idle(db: Connection, seconds: float) -> list[tuple[Owner, str]]:
    """Open sessions whose last turn is that old, or lies in the future, oldest first."""
    c, last, now = t.open_turns.c, func.max(t.open_turns.c.added), t.clock(db)
    query = select(c.tenant, c.user, c.session).group_by(c.tenant, c.user, c.session)
    found = db.execute(query.having(or_(last < now - seconds, last > now + LONGEST_LEASE)).order_by(last))
    return [(Owner.stored(row.user, row.tenant), row.session) for row in found]


def states(db: Connection) -> dict[str, int]:
    """How many items of all users are in each of the states that are counted."""
    c = t.items.c
    query = select(c.state, func.count().label("total")).where(c.state.in_(COUNTED)).group_by(c.state)
    return {**dict.fromkeys(COUNTED, 0), **{row.state: row.total for row in db.execute(query)}}


def sizes(db: Connection, owner: Owner) -> tuple[int, int]:
    """How many sessions a user has, open ones included, and how many turns."""
    opened = func.count(distinct(t.open_turns.c.session))
    counts = (func.count(t.items.c.id), t.items), (opened, t.open_turns), (func.count(t.turns.c.turn), t.turns)
    found = [int(db.execute(select(count).where(*of(table, owner))).scalar() or 0) for count, table in counts]
    return found[0] + found[1], found[2]


COUNTED = ("queued", "partial", "failed")
"""States of items that summaries count."""


def summaries(db: Connection, tenant: str | None, user: str | None) -> list[Summary]:
    """What is stored of every user, in order of tenant and name."""

    def mine(c: Any) -> list[Any]:
        wanted = ((c.tenant, tenant), (c.user, user))
        return [column == value for column, value in wanted if value is not None]

    i, o, u, m = t.items.c, t.open_turns.c, t.users.c, t.memories.c
    count = {state: func.sum(case((i.state == state, 1), else_=0)).label(state) for state in COUNTED}
    grouped = (
        select(i.tenant, i.user, func.count().label("total"), *count.values())
        .where(*mine(i))
        .group_by(i.tenant, i.user)
    )
    counts = {(row.tenant, row.user): row for row in db.execute(grouped)}
    opened = select(o.tenant, o.user, func.count().label("turns")).where(*mine(o)).group_by(o.tenant, o.user)
    still = {(row.tenant, row.user): row.turns for row in db.execute(opened)}
    about = select(u.tenant, u.user, m.position, m.writer, m.program, m.embedder, m.schema, m.updated)
    both = (u.tenant == m.tenant) & (u.user == m.user)
    query = about.select_from(t.users.outerjoin(t.memories, both)).order_by(u.tenant, u.user)
    query = query.where(*mine(u))
    return [
        _summary(row, counts.get((row.tenant, row.user)), still.get((row.tenant, row.user), 0))
        for row in db.execute(query)
    ]


def _summary(row: Any, counts: Any, open_turns: int) -> Summary:
    return Summary(
        owner=Owner.stored(row.user, row.tenant),
        items=counts.total if counts else 0,
        queued=int(counts.queued) if counts else 0,
        partial=int(counts.partial) if counts else 0,
        failed=int(counts.failed) if counts else 0,
        open_turns=open_turns,
        position=row.position or 0,
        stamp=stamp(row),
        updated=row.updated,
    )


def claimable(worker: str, stamp: Stamp, owner: Owner | None, now: Any, partial: bool = False) -> Select[Any, Any, Any]:
    """The unclaimed user with queued work, or `partial` items, that has waited longest; locks its row."""
    u, i, m = t.users.c, t.items.c, t.memories.c

    def same(c: Any) -> tuple[Any, Any]:
        return c.tenant == u.tenant, c.user == u.user

    queued = exists().where(*same(i), i.state.in_(("queued", "partial") if partial else ("queued",)))
    ours = (m.writer == stamp.writer) & (m.embedder == stamp.embedder) & (m.schema == stamp.schema)
    unsettled = exists().where(*same(m), m.settled_position < m.position)
    foreign = exists().where(*same(m), ~ours)
    query = select(u.tenant, u.user, u.version).where(or_(queued, unsettled), ~foreign)
    free = or_(u.worker.in_(("", worker)), u.claimed_until < now, u.claimed_until > now + LONGEST_LEASE)
    query = query.where(free)
    query = query.where(*of(t.users, owner)) if owner else query
    return query.order_by(u.claimed_until).limit(1).with_for_update(skip_locked=True)
