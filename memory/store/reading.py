"""Reads users, items, turns, memories, vectors and amendments from a store."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import unicodedata
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, get_args

from pydantic import TypeAdapter
from sqlalchemy import Connection

from ...errors import StoreError
from ...records import AnyItem, Session, Turn
from ..edits import Amendment
from .old_database import OWN, Database, read_row, run, select_in
from ..changes import apply_changes
from ..results import MemoryStatus
from ..metadata import MetadataRange, meets
from .documents import MemoryChange, Document, ChangeLog, Stamp
from .owner import Owner
from .records import (
    MAX_LEASE,
    UserDump,
    IdleSession,
    SessionInfo,
    Snapshot,
    State,
    StoredItem,
    StoredTurn,
)

_ITEM: TypeAdapter[Any] = TypeAdapter(AnyItem)
_STORED, _AMENDMENT = TypeAdapter(StoredItem), TypeAdapter(Amendment)
NOTHING = ChangeLog()
COUNTED = ("queued", "partial", "failed")
"""States of items that summaries count."""
# By its number alone is a turn before another one of its session: the clock may have been set back in between.
_SESSION_BEGAN = "first_value(added) OVER (PARTITION BY session ORDER BY number)"
"""When the first turn of an open session was stored."""
_HEAD = f"""
    SELECT m.*, (SELECT version FROM mempiler_users WHERE {OWN}) AS version,
        (SELECT value FROM mempiler_meta WHERE name = 'forgets') AS forgets,
        (SELECT max(number) FROM mempiler_amendments WHERE {OWN}) AS amended
    FROM (SELECT 1 AS one) one LEFT JOIN mempiler_memories m ON m.tenant = :tenant AND m."user" = :user"""
"""What there is to know of a user and their memory beside its text: NULL where there is none."""
PART = 64
"""Users of a queue that are looked at together."""
_NAMES = """
    WITH RECURSIVE names(name) AS (
        SELECT min({0}) FROM mempiler_items WHERE state = :state AND {1} AND {0} > :last
        UNION ALL SELECT (SELECT min({0}) FROM mempiler_items WHERE state = :state AND {1} AND {0} > name)
            FROM names WHERE name IS NOT NULL)
    SELECT name FROM names WHERE name IS NOT NULL LIMIT :most"""
"""Tenants or users with items in a state, each found by the index behind the one before, however many items it has."""


class Reading(Database):
    """What a `Store` reads."""

    def read(
        self,
        owner: Owner,
        known: Callable[[str], bool] = lambda version: False,
        parsed: Mapping[Hashable, Any] = MappingProxyType({}),
        since: ChangeLog = NOTHING,
    ) -> Snapshot:
        """Return what the store holds of a user at this moment, read in one transaction.

        Args:
            owner: The user.
            known: Says of a version whether the caller has its memory, so that it is not read again.
            parsed: `Snapshot.parsed` of the last snapshot. Items that still wait are the same objects then.
            since: How far the caller has the memory. If the store has the changes since, it reads these alone.

        Raises:
            StoreError: The store cannot be reached, or a row of the memory is damaged. A damaged item is set aside
                as `failed` instead.
        """
        # SQLite would read all items of the user for those before the finalized ones.
        by_state = "" if self._server else "INDEXED BY mempiler_items_state"
        columns = "position, json, state, attempts, error, digest"
        statement = f"""
            SELECT {columns}, '' AS session, 0.0 AS at FROM mempiler_items WHERE {OWN} AND position > :after
            UNION ALL SELECT {columns}, '', 0.0 FROM mempiler_items {by_state}
                WHERE {OWN} AND state IN ('queued', 'failed') AND position <= :after
            UNION ALL SELECT number, json, 'open', 0, '', '', session, {_SESSION_BEGAN}
                FROM mempiler_open_turns WHERE {OWN}
            ORDER BY at, position"""
        with self._read() as db:
            head = run(db, _HEAD, owner).one()
            rows = run(db, statement, owner, after=head.finalized_position or 0).all()
            stamp = _stamp(head)
            made = _document(db, owner, head, stamp, since) if stamp and not known(head.version) else None
        values, waiting, opened = dict[Hashable, Any](), list[StoredItem](), dict[str, list[Any]]()
        for row in rows:
            value: Any = parsed.get(row.json)
            if row.state == "open":
                value = value or read_row("open_turns", owner, row, lambda row: Turn.model_validate_json(row.json))
                opened.setdefault(row.session, []).append(row.json)
            else:
                try:
                    stored = read_row("items", owner, row, lambda row, known=value: _item(row, known))
                except StoreError as error:
                    if row.state in ("remembered", "partial"):
                        raise
                    if row.state != "failed":
                        self._set_aside(owner, row, error)
                    continue
                waiting.append(stored)
                value = stored.item
            values[row.json] = value
        sessions = list[Session]()
        for id, said in opened.items():
            turns, key = tuple(values[one] for one in said), (id, *said)
            values[key] = parsed.get(key) or Session(id=id, time=turns[0].time, turns=turns)
            sessions.append(values[key])
        about = int(head.forgets or 0), head.amended or 0
        version = head.version or ""
        return Snapshot(owner, version, stamp, made, tuple(waiting), tuple(sessions), *about, values)

    def _set_aside(self, owner: Owner, row: Any, error: StoreError) -> None:
        """Keeps an item that cannot be read as failed, so that the user's others are written."""
        logging.getLogger("mempiler").warning("%s: it is set aside", error)
        if not self.writable:
            return
        statement = f"""UPDATE mempiler_items SET state = 'failed', error = 'the row is damaged'
            WHERE {OWN} AND position = :position AND state = :state"""
        with self._write() as db:
            run(db, statement, owner, position=row.position, state=row.state)

    def forgets(self) -> int:
        """Return how often anybody was forgotten in this store.

        Take it when work for a user begins, and pass it to what stores the result: a write is refused if its user was
        forgotten since. A process that sees it grow drops what it keeps of users.
        """
        with self._look() as db:
            return int(run(db, "SELECT value FROM mempiler_meta WHERE name = 'forgets'").scalar() or 0)

    def items(self, owner: Owner) -> list[StoredItem]:
        """Return all raw items of a user, by position."""
        with self._read() as db:
            return _items(db, owner)

    def turns(self, owner: Owner, ids: Sequence[str]) -> dict[str, StoredTurn]:
        """Return turns by id, e.g. the sources of a recalled context. Unknown ids, and open sessions, are left out."""
        statement = f"""SELECT position, json FROM mempiler_items WHERE {OWN} AND position IN
            (SELECT position FROM mempiler_turns WHERE {OWN} AND turn IN :these)"""
        with self._look() as db:
            rows = {row.position: row for row in select_in(db, statement, owner, ids)}
        found = [read_row("items", owner, row, lambda row: _ITEM.validate_json(row.json)) for row in rows.values()]
        wanted = set(ids)
        return {turn.id: StoredTurn(turn, item) for item in found for turn in item.turns if turn.id in wanted}

    def turns_where(self, owner: Owner, conditions: Mapping[str, MetadataRange]) -> frozenset[str]:
        """Return the ids of the turns of all sessions, open ones too, whose metadata meet conditions."""
        statement = f"""SELECT turn FROM mempiler_turns WHERE {OWN} AND position IN
            (SELECT position FROM mempiler_items WHERE {OWN} AND id IN :these)"""
        with self._read() as db:
            found = [session for session, said in metadata_of(db, owner).items() if meets(said, conditions)]
            opened = (session for session, said in _opened(db, owner) if meets(said, conditions))
            turns = {turn.id for session in opened for turn in session.turns}
            return frozenset(turns.union(row.turn for row in select_in(db, statement, owner, found)))

    def sessions(self, owner: Owner, turns: Sequence[str]) -> dict[str, SessionInfo]:
        """Return the session of each turn, by the turn's id. Unknown turns are left out, open sessions without metadata too."""
        statement = """SELECT turn, i.id, m.json FROM mempiler_turns t
            JOIN mempiler_items i ON i.tenant = t.tenant AND i."user" = t."user" AND i.position = t.position
            LEFT JOIN mempiler_metadata m ON m.tenant = t.tenant AND m."user" = t."user" AND m.session = i.id
            WHERE t.tenant = :tenant AND t."user" = :user AND turn IN :these"""
        with self._read() as db:
            found = {
                turn.id: SessionInfo(session.id, said)
                for session, said in _opened(db, owner)
                for turn in session.turns
            }
            rows = select_in(db, statement, owner, turns)
        return found | {row.turn: SessionInfo(row.id, read_row("metadata", owner, row, _said, "id")) for row in rows}

    def vectors(self, owner: Owner, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return those vectors of a user's texts that are stored, by key."""
        statement = f"SELECT key, vector FROM mempiler_vectors WHERE {OWN} AND key IN :these"
        with self._look() as db:
            return {bytes(row.key): bytes(row.vector) for row in select_in(db, statement, owner, keys)}

    def amendments(self, owner: Owner) -> list[Amendment]:
        """Return all amendments of a user, oldest first; undone ones and undos included."""
        with self._look() as db:
            return amendments_of(db, owner)

    def idle(self, seconds: float) -> list[IdleSession]:
        """Return the open sessions without a turn for so many seconds, oldest first.

        A last turn in the future was dated by a wrong clock: its session is idle as well, or it would never end.
        """
        statement = """SELECT tenant, "user", session FROM mempiler_open_turns GROUP BY tenant, "user", session
            HAVING max(added) < :now - :seconds OR max(added) > :now + :longest ORDER BY max(added)"""
        with self._read() as db:
            found = run(db, statement, seconds=seconds, longest=MAX_LEASE)
            return [IdleSession(Owner.stored(row.user, row.tenant), row.session) for row in found]

    def users(
        self, tenant: str | None = None, user: str | None = None, after: str = "", limit: int | None = None
    ) -> list[MemoryStatus]:
        """Every user, or those of one tenant or one name, by name; or so many of a tenant behind the name `after`."""
        wanted = {"tenant": tenant, "user": user}
        named = {name: unicodedata.normalize("NFC", value) for name, value in wanted.items() if value is not None}
        these = " AND ".join(["1 = 1", *(f'"{name}" = :{name}' for name in named)])
        if limit is not None:
            these += """ AND "user" > :after AND "user" <= (SELECT max("user") FROM (SELECT "user" FROM mempiler_users
                WHERE tenant = :tenant AND "user" > :after ORDER BY "user" LIMIT :limit) page)"""
        counts = ", ".join(f"sum(CASE state WHEN '{state}' THEN 1 ELSE 0 END) AS {state}" for state in COUNTED)
        statement = f"""
            SELECT u.tenant, u."user", i.total, queued, partial, failed, open_turns,
                m.position, writer, program, embedder, schema, updated
            FROM (SELECT tenant, "user" FROM mempiler_users WHERE {these}) u
            LEFT JOIN (SELECT tenant, "user", count(*) AS total, {counts} FROM mempiler_items WHERE {these}
                GROUP BY tenant, "user") i ON i.tenant = u.tenant AND i."user" = u."user"
            LEFT JOIN (SELECT tenant, "user", count(*) AS open_turns FROM mempiler_open_turns WHERE {these}
                GROUP BY tenant, "user") o ON o.tenant = u.tenant AND o."user" = u."user"
            LEFT JOIN mempiler_memories m ON m.tenant = u.tenant AND m."user" = u."user"
            ORDER BY u.tenant, u."user" """
        with self._read() as db:
            return [_status(row) for row in run(db, statement, after=after, limit=limit, **named)]

    def failed(self) -> int:
        """How many sessions of all users are set aside, by the index of states."""
        with self._read() as db:
            return int(run(db, "SELECT count(*) FROM mempiler_items WHERE state = 'failed'").scalar() or 0)

    def counts(self) -> dict[str, int]:
        """How many `users` there are of all tenants together, and how many of their sessions in each state."""
        with self._read() as db:
            users = int(run(db, "SELECT count(*) FROM mempiler_users").scalar() or 0)
            found = run(db, "SELECT state, count(*) AS total FROM mempiler_items GROUP BY state")
            return {"users": users, **dict.fromkeys(get_args(State), 0), **{row.state: row.total for row in found}}

    def dump(self, owner: Owner) -> UserDump:
        """Everything of a user at one moment."""
        with self._read() as db:
            items, opened, said = _items(db, owner), open_sessions(db, owner), metadata_of(db, owner)
            head, rows = run(db, _HEAD, owner).one(), amendments_of(db, owner)
            stamp = _stamp(head)
            made = _document(db, owner, head, stamp, whole=True) if stamp else None
            of_items = {item.position: said[item.item.id] for item in items if item.item.id in said}
            of_open = {session.id: said[session.id] for session in opened if session.id in said}
            return UserDump(owner, tuple(items), tuple(opened), made, tuple(rows), of_items, of_open)

    def _queued(self, db: Connection, states: Sequence[str]) -> Iterator[dict[str, list[str]]]:
        """Names of users who may have something to do, by tenant: of a long queue a part, from where the last ended."""
        found, left = dict[str, list[str]](), dict[tuple[str, str], int]()
        for row in run(db, 'SELECT tenant, "user" FROM mempiler_memories WHERE finalized_position < position'):
            found.setdefault(row.tenant, []).append(row.user)
        for state in states:
            for tenant in run(db, _NAMES.format("tenant", "1 = 1"), state=state, last="", most=sys.maxsize).scalars():
                left[state, tenant] = 1 + ((state, tenant) in self._passed)
        while found or left:
            for queue in list(left):
                about = {"state": queue[0], "tenant": queue[1], "last": self._passed.pop(queue, ""), "most": PART}
                users = run(db, _NAMES.format('"user"', "tenant = :tenant"), **about).scalars().all()
                found.setdefault(queue[1], []).extend(users)
                if len(users) == PART:
                    self._passed[queue] = users[-1]
                elif left[queue] > 1:
                    left[queue] -= 1
                else:
                    del left[queue]
            yield found
            found = {}


def open_sessions(db: Connection, owner: Owner) -> list[Session]:
    """The sessions of a user that have not ended, with their turns so far, in order of their first turn."""
    statement = f"SELECT session, json FROM mempiler_open_turns WHERE {OWN} ORDER BY {_SESSION_BEGAN}, number"
    rows = run(db, statement, owner)
    said: dict[str, list[Turn]] = {}
    for row in rows:
        said.setdefault(row.session, []).append(
            read_row("open_turns", owner, row, lambda row: Turn.model_validate_json(row.json), "session")
        )
    return [Session(id=id, time=turns[0].time, turns=tuple(turns)) for id, turns in said.items()]


def metadata_of(db: Connection, owner: Owner, ids: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """What callers said of sessions, by their ids; of all of a user's if None are given."""
    statement = f"SELECT session, json FROM mempiler_metadata WHERE {OWN}"
    if ids is None:
        rows = run(db, statement, owner).all()
    else:
        rows = select_in(db, f"{statement} AND session IN :these", owner, ids)
    return {row.session: read_row("metadata", owner, row, _said, "session") for row in rows}


def _opened(db: Connection, owner: Owner) -> list[tuple[Session, dict[str, Any]]]:
    opened = open_sessions(db, owner)
    said = metadata_of(db, owner, [session.id for session in opened])
    return [(session, said[session.id]) for session in opened if session.id in said]


def amendments_of(db: Connection, owner: Owner) -> list[Amendment]:
    """All amendments of a user, in order."""
    rows = run(db, f"SELECT * FROM mempiler_amendments WHERE {OWN} ORDER BY number", owner)
    return [read_row("amendments", owner, row, _amendment, "number") for row in rows]


def _items(db: Connection, owner: Owner) -> list[StoredItem]:
    rows = run(db, f"SELECT * FROM mempiler_items WHERE {OWN} ORDER BY position", owner)
    return [read_row("items", owner, row, _item) for row in rows]


def _item(row: Any, known: Any = None) -> StoredItem:
    about = {name: getattr(row, name) for name in ("position", "state", "attempts", "error", "digest")}
    return _STORED.validate_python({**about, "item": known or _ITEM.validate_json(row.json)})


def _said(row: Any) -> dict[str, Any]:
    return dict(json.loads(row.json or "{}"))


def _amendment(row: Any) -> Amendment:
    at = datetime.fromtimestamp(row.at, UTC).replace(tzinfo=None) if row.at else None
    about = {name: getattr(row, name) for name in ("number", "action", "entry", "kind", "old_text", "new_text", "by", "undoes")}
    return _AMENDMENT.validate_python({**about, "sources": json.loads(row.sources), "at": at})


def _stamp(row: Any) -> Stamp | None:
    return Stamp(row.writer, row.program, row.embedder, row.schema) if row.writer else None


def _status(row: Any) -> MemoryStatus:
    counts = {name: int(getattr(row, name) or 0) for name in (*COUNTED, "open_turns", "position")}
    about = {"user": row.user, "tenant": row.tenant, "stamp": _stamp(row), "updated": row.updated}
    return MemoryStatus.model_validate({**about, "sessions": row.total or 0, **counts})


def _document(
    db: Connection, owner: Owner, head: Any, stamp: Stamp, since: ChangeLog = NOTHING, whole: bool = False
) -> Document:
    """The memory of a user, with its text (looked into if `whole`) or with the changes since what the caller has."""
    known = since.base and head.base == since.base
    statement = f"SELECT memory, finalized FROM mempiler_changes WHERE {OWN} AND number > :count ORDER BY number"
    found = [MemoryChange(*row) for row in run(db, statement, owner, count=since.count if known else -1)]
    before, new = (since, found) if known else (ChangeLog(head.base, _length(found[:1])), found[1:])
    log = dataclasses.replace(before, changes=before.changes + _length(new), count=before.count + len(new))
    try:
        memory, finalized = ("", None) if known else _text_after(found)
        for stored in (memory, finalized or "{}") if whole else ():
            json.loads(stored)
        about = head.finalized_position, tuple(json.loads(head.speakers)), stamp
        return Document(memory, head.position, finalized, *about, since=tuple(found) if known else None, log=log)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"the stored memory of user {owner.user!r} does not fit together ({type(error).__name__}); "
            f"run: mempiler memories rebuild PROGRAM --user {owner.user!r} --force"
        ) from None


def _length(changes: Sequence[MemoryChange]) -> int:
    return sum(len(change.memory) + len(change.finalized or "") for change in changes)


def _text_after(found: Sequence[MemoryChange]) -> tuple[str, str | None]:
    text, changes = found[0], found[1:]
    if not changes:
        return text.memory, text.finalized
    document, finalized = json.loads(text.memory), text.finalized
    last = max((n for n, change in enumerate(changes) if change.finalized is not None), default=-1)
    for n, change in enumerate(changes):
        document = apply_changes(document, json.loads(change.memory))
        if n == last:
            finalized = _compact(apply_changes(document, json.loads(change.finalized or "{}")))
    return _compact(document), finalized


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
