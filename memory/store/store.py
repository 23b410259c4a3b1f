"""The memory store: it keeps durably what users said, and the memories made of it.

What callers may rely on:

- **Atomic**: every method that changes what is stored of users does it in one transaction. Whoever is killed on the way
  leaves the store as it was before the call, or as it is after it.
- **Exactly once**: an item and its place in the queue are one row. A memory and the state of the items in it change in
  one transaction, and only if that memory did not change meanwhile. So every item is in the memory once.
- **Forgetting wins**: a write that began before its user was forgotten is refused (`forgets`).
- **Waiting**: a writer waits for another writer, at most `timeout` seconds, and then raises `StoreError`. Nobody waits
  for a language model: no transaction is open while one works. A clock that jumps costs double work, or holds up a user
  for `LONGEST_LEASE` seconds at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any, cast
from uuid import uuid4

from sqlalchemy import Connection

from ...errors import ConflictError, UserError
from ...records import AnyItem, Item, Turn
from ..edits import Amendment
from .old_database import OWN, batches, put, run
from ..results import Added
from ..incoming_items import check_turns, storable_item, item_digest, record_json
from ..metadata import Scalar, validate_metadata
from ..names import valid_name
from .claims import (
    Claims,
    any_session_of,
    check_not_forgotten,
    delete_all,
    drop_open,
    forget_session_rows,
    forgotten_as,
    forgotten_since,
    lock,
    lock_or_create_user,
    put_memory,
    record,
)
from .reading import metadata_of, open_sessions
from .owner import Owner
from .records import UserDump, StoredItem

MOST_AMENDMENTS = 10_000
"""Most amendments of a user."""
NEVER = 2**31 - 1
"""More than anybody can have been forgotten."""


class Store(Claims):
    """Raw items, queues and memories of many users in one database; for any number of threads and processes.

    Args:
        url: The path of an SQLite file, or `postgresql://user:password@host/database`.
        timeout: Seconds to wait for a connection, or a lock of another program, before a `StoreError`.
        connect: Whether to connect now. Without, a store that cannot be reached fails its calls until it can.

    Raises:
        UserError: No such kind of store.
        StoreError: It cannot be opened; this and every method may raise it, and nothing is half written then.
        MissingDependencyError: PostgreSQL's driver is not installed.

    Example:
        >>> from mempiler.memory.store.store import Store
        >>> from mempiler.memory.store.owner import Owner
        >>> from mempiler.records import Session, Turn
        >>> session = Session(id="D1", turns=(Turn(id="D1:1", speaker="Ada", text="I moved to Lisbon."),))
        >>> with Store("memories.sqlite") as store:
        ...     sum(store.add(Owner("ada"), session).new for _ in range(2))
        1
    """

    def add(
        self,
        owner: Owner,
        item: Item,
        digest: str | None = None,
        since: int | None = None,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Added:
        """Store an item and queue it for a worker, in one transaction.

        Args:
            owner: The user whose it is; stored if new.
            item: A session, logs, ...; one without an id gets `D` and its position. Turns without an id get the
                item's and a number.
            digest: Identifies a repeated item; that of the item's content if None.
            since: What `forgets` was when the caller began; now if None.
            metadata: A few plain values by name, by which searches can choose; see `memory.incoming`.

        Returns:
            Its id and position; `new` is False for an item that had been added before, which is left alone.

        Raises:
            ConflictError: Another item of the user has this id, or another turn an id of its turns; or the user was
                forgotten since.
            UserError: The item has no turns, or an id or a text that cannot be stored.
        """
        item, said = storable_item(item), {} if metadata is None else validate_metadata(metadata)
        since = self.forgets() if since is None else since
        digest = digest or item_digest(item, said)
        with self._write() as db:
            return _queue(db, owner, item, digest, said, since)

    def replace(
        self,
        owner: Owner,
        item: Item,
        digest: str | None = None,
        since: int | None = None,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Added:
        """Store an item in the place of the session with its id and queue it for a worker, in one transaction.

        Whoever is killed on the way leaves the old session or the new one. The old one is forgotten as `forget_item`
        forgets it, its bytes included. Where there is none, the item is added. Arguments are those of `add`.

        Returns:
            Its id and position; `new` is False for an item that is there already, which is left alone.

        Raises:
            ConflictError: Another session has a turn with the id of one of its turns; or the user was forgotten since.
            UserError: The item has no id or no turns, or an id or a text that cannot be stored.
        """
        item = storable_item(item)
        if not item.id:
            raise UserError("the session has no id; give the id of the session that it replaces")

        values = {} if metadata is None else validate_metadata(metadata)
        since = self.forgets() if since is None else since
        digest = digest or item_digest(item, values)
        with self._write() as db:
            lock_or_create_user(db, owner)
            # The deletion would make a session that is the same a new one.
            is_the_same = _there(db, owner, item.id, since).digest == digest
            is_replaced = not is_the_same and forget_session_rows(db, owner, item.id)
            added = _queue(db, owner, item, digest, values, since)

        if is_replaced or is_the_same:
            # Whoever wrote the same before may have been killed before the old bytes were gone.
            self.erase()
        return added

    def append(
        self,
        owner: Owner,
        session: str,
        turns: Sequence[Turn],
        begin: bool = True,
        since: int | None = None,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> tuple[Turn, ...]:
        """Store turns at the end of an open session, in one transaction, and return them with their ids.

        Args:
            owner: The user whose session it is.
            session: Its id.
            turns: What was said; turns without an id get the session's and a number.
            begin: Whether the session begins if it is not there.
            since: As of `add`.
            metadata: As of `add`; added to those that the session has.

        Raises:
            ConflictError: It has ended, or not begun and `begin` is False; another turn of the user has the id of one;
                or the user was forgotten since.
            UserError: An id, a text or the metadata cannot be stored.
        """
        session, said = valid_name("session", session), {} if metadata is None else validate_metadata(metadata)
        since = self.forgets() if since is None else since
        with self._write() as db:
            if begin:
                lock_or_create_user(db, owner)
            else:
                lock(db, owner)
            there = _there(db, owner, session, since)
            if there.digest is not None:
                raise ConflictError(f"session {session!r} of user {owner.user!r} has ended; begin one with another id")
            if not there.last and not begin:
                raise ConflictError(f"user {owner.user!r} has no open session {session!r}; it was forgotten")
            new = _put_open(db, owner, session, turns, there.last or 0)
            if new and said:
                before = metadata_of(db, owner, [session]).get(session, {})
                _put_metadata(db, owner, {session: validate_metadata({**before, **said})})
            return new

    def end(self, owner: Owner, session: str) -> Added | None:
        """End an open session: its turns become a queued item, in one transaction.

        Returns:
            Its id and position; None if there is no such open session, e.g. since it was ended before.
        """
        session = valid_name("session", session)
        with self._write() as db:
            lock(db, owner)
            found = next((part for part in open_sessions(db, owner) if part.id == session), None)
            if found is None:
                return None
            digest = item_digest(found, metadata_of(db, owner, [session]).get(session, {}))
            drop_open(db, owner, session)
            return _queue(db, owner, found, digest, {}, NEVER)

    def keep_vectors(self, owner: Owner, made: Mapping[bytes, bytes], since: int) -> bool:
        """Store vectors of a user's texts by key. Return whether they were stored.

        They are not if the user, or one of their sessions, was forgotten after `since`, or the user is unknown.
        """
        rows = [{"key": key, "vector": vector} for key, vector in made.items()]
        with self._write() as db:
            if not lock(db, owner) or forgotten_since(db, since, owner, any_session_of(owner)):
                return False
            put(db, "vectors", owner, rows, ["key"])
            return True

    def amend(self, owner: Owner, amendment: Amendment, since: int | None = None) -> bool:
        """Store an amendment. Return False, and store nothing, if its number does not follow the user's last one.

        Then another change came first: look at the entry again.

        Raises:
            ConflictError: The user was forgotten since.
            UserError: The user has too many.
        """
        if amendment.number > MOST_AMENDMENTS:
            most = f"{MOST_AMENDMENTS} amendments, the most there can be"
            raise UserError(f"user {owner.user!r} has {most}; forget sessions instead")
        since = self.forgets() if since is None else since
        with self._write() as db:
            known = lock(db, owner)
            check_not_forgotten(owner, forgotten_since(db, since, owner))
            last = run(db, f"SELECT max(number) FROM mempiler_amendments WHERE {OWN}", owner).scalar()
            follows = known and amendment.number == (last or 0) + 1
            if follows:
                _put_amendments(db, owner, [amendment])
            return follows

    def check(self) -> None:
        """Write a row that means nothing, to see whether the store can be written: a full disk shows in writes only.

        Raises:
            StoreError: It cannot be written.
        """
        with self._write() as db:
            put(db, "meta", None, [{"name": "checked", "value": uuid4().hex}], ["name"])

    def restore(self, users: Iterable[UserDump], replace: bool = False) -> int:
        """Store users that `dump` returned, all in one transaction, and return how many.

        An error on the way, also one that `users` raises, leaves the store as it was.

        Args:
            users: What to store.
            replace: Whether a user who is there already is deleted first.

        Raises:
            ConflictError: The user is there already, and is not to be replaced.
            UserError: Something of them cannot be stored.
        """
        count, since, replaced = 0, self.forgets(), list[Owner]()
        with self._write() as db:
            for contents in users:
                owner = contents.owner
                if lock(db, owner):
                    replaced.append(owner)
                    if not replace:
                        raise ConflictError(
                            f"user {owner.user!r} is in {self.url} already; give --replace, or forget them"
                        )
                    delete_all(db, owner)
                _restore(db, contents, since)
                count += 1
            for owner in replaced:
                record(db, owner)
        if replaced:
            self.erase()
        return count


def _restore(db: Connection, contents: UserDump, since: int) -> None:
    owner = contents.owner
    lock_or_create_user(db, owner)
    check_not_forgotten(owner, forgotten_since(db, since, owner))
    said = dict(contents.open_metadata)
    for stored in contents.items:
        said[stored.item.id] = contents.metadata.get(stored.position, {})
        _put_item(db, owner, stored)
    for session in contents.open:
        _put_open(db, owner, session.id, session.turns, 0)
    _put_metadata(db, owner, said)
    if contents.document is not None:
        put_memory(db, owner, contents.document)
    _put_amendments(db, owner, contents.amendments)


def _queue(db: Connection, owner: Owner, item: Item, digest: str, metadata: Mapping[str, Scalar], since: int) -> Added:
    """Puts a checked item at the end of a user's queue; the user is made if there is none."""
    number = position = lock_or_create_user(db, owner)
    there = _there(db, owner, item.id or f"D{number}", since)
    if item.id and there.digest == digest:
        return Added(id=item.id, position=there.position, new=False)
    if item.id and (there.digest is not None or there.last):
        raise ConflictError(
            f"session {item.id!r} of user {owner.user!r} is stored with other content; "
            "give the new one an id of its own, or forget the old one first"
        )
    while there.digest is not None or there.last:
        number += 1
        there = _there(db, owner, f"D{number}", since)
    id = item.id or f"D{number}"
    item = item.model_copy(update={"id": id, "turns": _numbered(item.turns, id)})
    _put_item(db, owner, StoredItem(position, cast("AnyItem", item), "queued", digest=digest))
    if metadata:
        _put_metadata(db, owner, {id: metadata})
    return Added(id=id, position=position, new=True)


def _there(db: Connection, owner: Owner, id: str, since: int) -> Any:
    """What there is of an id: `position` and `digest` of the item, the `last` turn of the open session; else None."""
    statement = f"""SELECT
        (SELECT position FROM mempiler_items WHERE {OWN} AND id = :id) AS position,
        (SELECT digest FROM mempiler_items WHERE {OWN} AND id = :id) AS digest,
        (SELECT max(number) FROM mempiler_open_turns WHERE {OWN} AND session = :id) AS last,
        (SELECT max(number) FROM mempiler_forgotten WHERE name = :name AND number > :since) AS forgotten"""
    row = run(db, statement, owner, id=id, name=forgotten_as(owner), since=since).one()
    check_not_forgotten(owner, row.forgotten)
    return row


def _put_item(db: Connection, owner: Owner, stored: StoredItem) -> None:
    _take_turns(db, owner, stored.item.turns, stored.position)
    row = {**vars(stored), "id": stored.item.id, "json": record_json(stored.item)}
    del row["item"]
    put(db, "items", owner, [row], now=["added"])
    following = f"UPDATE mempiler_users SET next_position = :next WHERE {OWN} AND next_position < :next"
    run(db, following, owner, next=stored.position + 1)


def _put_open(db: Connection, owner: Owner, session: str, turns: Sequence[Turn], last: int) -> tuple[Turn, ...]:
    new = _numbered(turns, session, last)
    check_turns(new)
    _take_turns(db, owner, new, 0)
    rows = [{"session": session, "number": n, "json": record_json(turn)} for n, turn in enumerate(new, last + 1)]
    put(db, "open_turns", owner, rows, now=["added"])
    return new


def _put_metadata(db: Connection, owner: Owner, said: Mapping[str, Mapping[str, Any]]) -> None:
    rows = [{"session": id, "json": json.dumps(value)} for id, value in said.items() if value]
    put(db, "metadata", owner, rows, ["session"])


def _put_amendments(db: Connection, owner: Owner, rows: Sequence[Amendment]) -> None:
    stamps = [row.at.replace(tzinfo=UTC).timestamp() if row.at else 0.0 for row in rows]
    told = [{**vars(row), "sources": json.dumps(row.sources), "at": at} for row, at in zip(rows, stamps, strict=True)]
    put(db, "amendments", owner, told)


def _take_turns(db: Connection, owner: Owner, turns: Sequence[Turn], position: int) -> None:
    """Notes the ids of turns, which no other turn of the user may have."""
    ids, new = [turn.id for turn in turns], set[str]()
    for part in batches(ids):
        values = ", ".join(f"(:tenant, :user, :id{n}, :position)" for n in range(len(part)))
        statement = f"INSERT INTO mempiler_turns VALUES {values} ON CONFLICT DO NOTHING RETURNING turn"
        named = {f"id{n}": id for n, id in enumerate(part)}
        new.update(run(db, statement, owner, position=position, **named).scalars())
    if len(new) < len(ids):
        twice = next(id for n, id in enumerate(ids) if id not in new or id in ids[:n])
        raise ConflictError(
            f"user {owner.user!r} has another turn {twice!r}; "
            "give turns ids that no other turn of the user has, or none at all"
        )


def _numbered(turns: Sequence[Turn], session: str, last: int = 0) -> tuple[Turn, ...]:
    return tuple(
        turn if turn.id else turn.model_copy(update={"id": f"{session}:{n}"}) for n, turn in enumerate(turns, last + 1)
    )
