"""What the store reads: rows of a user as records, inside a transaction that the store has opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, get_args

from pydantic import TypeAdapter
from sqlalchemy import (
    CompoundSelect,
    Connection,
    Select,
    Table,
    and_,
    case,
    distinct,
    exists,
    func,
    literal,
    or_,
    select,
    text,
    union_all,
)

from ..errors import StoreError
from ..records import AnyItem, Item, Session, Turn
from . import store_tables as t
from .deltas import patch
from .store_tables import each, given, mine, of, skip, whose
from .stored import LONGEST_LEASE, Change, Document, Log, Measures, Owner, Parsed, Stamp, State, StoredItem, Summary

_ITEM: TypeAdapter[Any] = TypeAdapter(AnyItem)
_STATE: TypeAdapter[State] = TypeAdapter(State)
NOTHING = Log()
BATCH = 500
"""Ids per query; SQLite takes some 30,000 variables."""


_ABOUT = [column for column in t.memories.c if column.name not in ("json", "settled")]
_HEAD = select(
    select(t.users.c.version).where(*mine(t.users)).scalar_subquery().label("version"),
    select(t.meta.c.value).where(t.meta.c.name == "forgets").scalar_subquery().label("forgets"),
    select(func.max(t.amendments.c.number)).where(*mine(t.amendments)).scalar_subquery().label("amended"),
    *_ABOUT,
).select_from(select(literal(1)).subquery().outerjoin(t.memories, and_(*mine(t.memories))))


def head(db: Connection, owner: Owner) -> Any:
    """What there is to know of a user and their memory beside its text.

    Returns:
        A row: the `version`, None for an unknown user; how often anybody was forgotten (`forgets`); the number of the
        last amendment (`amended`), None without one; and the columns of the memory, None where there is none.
    """
    row = db.execute(_HEAD, whose(owner)).one()
    return row


_OPEN = (
    select(t.open_turns.c.session, t.open_turns.c.json)
    .where(*mine(t.open_turns))
    .order_by(t.open_turns.c.added, t.open_turns.c.number)
)


def open_sessions(db: Connection, owner: Owner, skipped: list[str] | None = None) -> list[Session]:
    """The sessions of a user that have not ended, with their turns so far, in order of their first turn."""
    said: dict[str, list[Turn]] = {}
    for id, turn in each(t.open_turns, owner, "session", db.execute(_OPEN, whose(owner)), _turn, skipped):
        said.setdefault(id, []).append(turn)
    return [_session(id, turns) for id, turns in said.items()]


def _turn(row: Any) -> tuple[str, Turn]:
    return row.session, Turn.model_validate_json(row.json)


def _session(id: str, turns: Sequence[Turn]) -> Session:
    return Session(id=id, time=turns[0].time, turns=tuple(turns))


_ITEMS = select(t.items).where(*mine(t.items)).order_by(t.items.c.position)


def items(db: Connection, owner: Owner, skipped: list[str] | None = None) -> list[StoredItem]:
    """All items of a user, in order."""
    return each(t.items, owner, "position", db.execute(_ITEMS, whose(owner)), _item, skipped)


def _item(row: Any) -> StoredItem:
    state = _STATE.validate_python(row.state)
    return StoredItem(row.position, _ITEM.validate_json(row.json), state, row.attempts, row.error)


def _waiting() -> CompoundSelect[*tuple[Any, ...]]:
    """One statement for all that is not in a memory: items behind a position, those before it, open turns."""
    i, o = t.items.c, t.open_turns.c
    item = select(
        i.position, i.json, i.state, i.attempts, i.error, literal("").label("session"), literal(0.0).label("at")
    )
    behind = item.where(*mine(t.items), i.position > given("after"))
    # SQLite would read all items of the user for these.
    left = item.with_hint(t.items, "INDEXED BY mempiler_items_state", "sqlite")
    left = left.where(
        *mine(t.items),
        i.state.in_(("queued", "failed")),
        i.position <= given("after"),
    )
    turn = select(o.number, o.json, literal("open"), literal(0), literal(""), o.session, o.added)
    return union_all(behind, left, turn.where(*mine(t.open_turns))).order_by("at", "position")


_WAITING = _waiting()


def waiting(
    db: Connection, owner: Owner, after: int, parsed: Parsed
) -> tuple[tuple[StoredItem, ...], tuple[Session, ...]]:
    """The items behind a position and those that were never remembered, in order; and the open sessions."""
    found = db.execute(_WAITING, whose(owner, after=after)).all()
    items = [row for row in found if row.state != "open"]
    opened: dict[str, list[str]] = {}
    for row in found[len(items) :]:
        opened.setdefault(row.session, []).append(row.json)
    read_turn = partial(_one, t.open_turns, owner, Turn.model_validate_json)
    turns = parsed.turns.all({row.json: partial(read_turn, row) for row in found[len(items) :]})
    sessions = {id: (id, *said) for id, said in opened.items()}
    read_item = partial(_one, t.items, owner, _ITEM.validate_json)
    wanted: dict[Hashable, Callable[[], Any]] = {row.json: partial(read_item, row) for row in items}
    for id, key in sessions.items():
        wanted[key] = partial(_session, id, [turns[text] for text in opened[id]])
    values = parsed.items.all(wanted)
    kept = tuple(StoredItem(row.position, values[row.json], row.state, row.attempts, row.error) for row in items)
    return kept, tuple(values[key] for key in sessions.values())


def _one(table: Table, owner: Owner, read: Callable[[str], Any], row: Any) -> Any:
    """What the JSON of a row says."""
    return each(table, owner, "position", [row], lambda row: read(row.json))[0]


def _said(wanted: Any) -> Select[*tuple[Any, ...]]:
    """The items of the turns of some ids."""
    places = select(t.turns.c.position).where(*mine(t.turns), t.turns.c.turn.in_(wanted))
    return select(t.items.c.position, t.items.c.json).where(*mine(t.items), t.items.c.position.in_(places))


_SAID = _said(given("ids"))


def turns(db: Connection, owner: Owner, ids: Sequence[str]) -> dict[str, tuple[Turn, Item]]:
    """Turns of remembered and waiting items by id, each with its item; unknown ids are skipped."""
    rows: dict[int, Any] = {}
    for n in range(0, len(ids), BATCH):
        rows |= {row.position: row for row in db.execute(_SAID, whose(owner, ids=ids[n : n + BATCH]))}
    found = [_one(t.items, owner, _ITEM.validate_json, row) for row in rows.values()]
    wanted = set(ids)
    return {turn.id: (turn, item) for item in found for turn in item.turns if turn.id in wanted}


def stamp(row: Any) -> Stamp | None:
    """Who wrote the memory of a row; None without a row."""
    return Stamp(row.writer, row.program, row.embedder, row.schema) if row is not None and row.writer else None


_BASE = select(t.texts.c.base).where(*mine(t.texts))
_TEXT = select(t.texts.c.memory, t.texts.c.settled, t.texts.c.base).where(*mine(t.texts))
# Of a memory that was stored before there were changes.
_EARLIER = select(t.memories.c.json, t.memories.c.settled, literal("")).where(*mine(t.memories))
_CHANGES = (
    select(t.changes.c.memory, t.changes.c.settled)
    .where(*mine(t.changes), t.changes.c.number > given("count"))
    .order_by(t.changes.c.number)
)


def document(db: Connection, owner: Owner, head: Any, since: Log = NOTHING) -> Document | None:
    """The memory of a user, with its text or with the changes since what the caller has; None without one.

    Raises:
        StoreError: What is stored of it does not fit together.
    """
    made = stamp(head)
    if made is None:
        return None
    known = since.base and db.execute(_BASE, whose(owner)).scalar() == since.base
    text = ("", None, "") if known else db.execute(_TEXT, whose(owner)).first()
    text = text or db.execute(_EARLIER, whose(owner)).one()
    log = since if known else Log(text[2], len(text[0]) + len(text[1] or ""))
    changes = tuple(Change(*row) for row in db.execute(_CHANGES, whose(owner, count=log.count)))
    length = sum(len(change.memory) + len(change.settled or "") for change in changes)
    log = replace(log, changes=log.changes + length, count=log.count + len(changes))
    reached = head.settled_position
    try:
        names = tuple(json.loads(head.speakers))
        if known:
            return Document("", head.position, None, reached, names, made, since=changes, log=log)
        memory, settled = text_after(text[0], text[1], changes)
    except (LookupError, TypeError, ValueError) as error:
        raise StoreError(
            f"the stored memory of user {owner.user!r} does not fit together ({type(error).__name__}); "
            f"run: mempiler rebuild PROGRAM --user {owner.user!r} --force"
        ) from None
    return Document(memory, head.position, settled, reached, names, made, log=log)


def whole_document(db: Connection, owner: Owner, head: Any, skipped: list[str] | None) -> Document | None:
    """The memory of a user, whose text was looked at; None without one, or where it is damaged and skipped.

    Raises:
        StoreError: It is damaged, and `skipped` is None.
    """
    try:
        found = document(db, owner, head)
        for stored in (found.memory, found.settled or "{}") if found else ():
            json.loads(stored)
        return found
    except (StoreError, ValueError):
        tables = f"{t.memories.name}, {t.texts.name} or {t.changes.name}"
        skip(f"{tables}: user {owner.user!r}", skipped)
        return None


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


def measures(db: Connection) -> Measures:
    """How much there is of all users together."""
    c = t.items.c
    users = int(db.execute(select(func.count()).select_from(t.users)).scalar() or 0)
    found = db.execute(select(c.state, func.count().label("total")).group_by(c.state))
    states = {**dict.fromkeys(get_args(State), 0), **{row.state: row.total for row in found}}
    return Measures(users, states, int(db.execute(_BYTES[db.dialect.name]).scalar() or 0))


_BYTES = {
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
    "postgresql": text("SELECT pg_database_size(current_database())"),
}


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

    def wanted(c: Any) -> list[Any]:
        both = ((c.tenant, tenant), (c.user, user))
        return [column == value for column, value in both if value is not None]

    i, o, u, m = t.items.c, t.open_turns.c, t.users.c, t.memories.c
    count = {state: func.sum(case((i.state == state, 1), else_=0)).label(state) for state in COUNTED}
    grouped = (
        select(i.tenant, i.user, func.count().label("total"), *count.values())
        .where(*wanted(i))
        .group_by(i.tenant, i.user)
    )
    counts = {(row.tenant, row.user): row for row in db.execute(grouped)}
    opened = select(o.tenant, o.user, func.count().label("turns")).where(*wanted(o)).group_by(o.tenant, o.user)
    still = {(row.tenant, row.user): row.turns for row in db.execute(opened)}
    about = select(u.tenant, u.user, m.position, m.writer, m.program, m.embedder, m.schema, m.updated)
    both = (u.tenant == m.tenant) & (u.user == m.user)
    query = about.select_from(t.users.outerjoin(t.memories, both)).order_by(u.tenant, u.user)
    query = query.where(*wanted(u))
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


@cache
def claimable(server: bool, one: bool, partial: bool) -> Select[*tuple[Any, ...]]:
    """Finds the unclaimed users with something to do that have waited longest, and locks their rows.

    Its values are `most`, `worker`, `writer`, `embedder`, `schema`, `now` where there is no server, and `whose` for one
    user.

    Args:
        server: Whether PostgreSQL runs it, whose clock decides then.
        one: Whether one user is asked for.
        partial: Whether items of which turns could not be taken in are something to do.
    """
    u, i, m = t.users.c, t.items.c, t.memories.c
    now = t.SERVER_CLOCK if server else given("now")

    def same(c: Any) -> tuple[Any, Any]:
        return c.tenant == u.tenant, c.user == u.user

    queued = exists().where(*same(i), i.state.in_(["queued", *(["partial"] if partial else [])]))
    ours = and_(*(m[name] == given(name) for name in ("writer", "embedder", "schema")))
    unsettled = exists().where(*same(m), m.settled_position < m.position)
    foreign = exists().where(*same(m), ~ours)
    query = select(u.tenant, u.user, u.version).where(or_(queued, unsettled), ~foreign)
    free = or_(u.worker.in_(("", given("worker"))), u.claimed_until < now, u.claimed_until > now + LONGEST_LEASE)
    query = query.where(free, *(mine(t.users) if one else ()))
    return query.order_by(u.claimed_until).limit(given("most")).with_for_update(skip_locked=True)
