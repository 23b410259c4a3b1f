"""The memory store: what users said, durably, and the memory that was made of it.

    add(owner, item) ──> queued item ──> claim ── a program writes ──> commit(document, items) ──> remembered
    read(owner)      ──> Snapshot: the document, and what is not in it yet

An item and its place in the queue are one row, written in one transaction, before anything else happens to it. A
memory and the state of the items in it change in one transaction too, and only if that memory did not change meanwhile
(`version`): a process may be killed at any moment, and two may write one user; every item is in the memory exactly
once. No transaction is open while a language model works.

The store knows JSON and positions, and no program; `serving.writing` drives one over it. Every method may be
called from many threads and processes at once.

Example:
    >>> from mempiler.memory.store import Store
    >>> from mempiler.memory.stored import Owner
    >>> from mempiler.records import Session, Turn
    >>> session = Session(id="D1", turns=(Turn(id="D1:1", speaker="Ada", text="I moved to Lisbon."),))
    >>> with Store("memories.sqlite") as store:
    ...     [store.add(Owner("ada"), session).new, store.add(Owner("ada"), session).new]
    [True, False]

Limits: see `memory/database.py`. A claim rests on a clock, PostgreSQL's or the machine's: one that jumps costs
double work, or holds up a user for `LONGEST_LEASE` seconds at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection

from ..errors import ConflictError, UserError
from ..records import Item, Turn
from .amending import Amendment
from .entries import Added
from .incoming import checked, digest_of
from .metadata import Scalar, checked_metadata
from .store_adding import append, put_amendments, put_item, queue, take_turns
from .store_forgetting import Forgetting, delete_all, drop_open, record
from .store_queue import Queue, put_memory
from .store_reading import Reading, metadata_of, open_sessions
from .store_rows import (
    OWN,
    any_session_of,
    forgotten_since,
    insert,
    key_of,
    lock,
    refuse,
    run,
)
from .stored import Contents, Owner, name_of

MOST_AMENDMENTS = 10_000
"""Most amendments of a user."""


class Store(Reading, Queue, Forgetting):
    """Raw items, queues and memories of many users in one database.

    Args:
        url: The path of an SQLite file, or `postgresql://user:password@host/database`.
        timeout: Seconds to wait for a lock or a connection before a `StoreError`.

    Raises:
        UserError: No such kind of store.
        StoreError: It cannot be opened; this and every method may raise it, and nothing is half written then.
    """

    def add(
        self,
        owner: Owner,
        item: Item,
        digest: str | None = None,
        since: int | None = None,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Added:
        """Writes an item and queues it for remembering, in one transaction.

        Args:
            owner: Whose it is.
            item: A session, logs, ...; one without an id gets `D` and its position. Turns without an id get the
                item's and a number.
            digest: Identifies a repeated item; that of the item's content if None.
            since: What `forgets` was when the caller began; now if None.
            metadata: A few plain values by name, by which searches can choose; see `memory.metadata`.

        Returns:
            Its id and position; `new` is False for an item that had been added before, which is left alone.

        Raises:
            ConflictError: Another item of the user has this id, or another turn an id of its turns; or the user was
                forgotten since.
            UserError: The item has no turns, or an id or a text that cannot be stored.
        """
        item, said = checked(item), checked_metadata(metadata)
        since = self.forgets() if since is None else since
        digest = digest or digest_of(item, said)
        return self._commit(partial(queue, owner, item, digest, said, since))

    def append(
        self,
        owner: Owner,
        session: str,
        turns: Sequence[Turn],
        begin: bool = True,
        since: int | None = None,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> tuple[Turn, ...]:
        """Writes turns of an open or a new session; turns without an id get the session's and a number.

        Args:
            owner: Whose they are.
            session: Its id.
            turns: What was said.
            begin: Whether a session that is not there begins.
            since: What `forgets` was when the caller began; now if None.
            metadata: A few plain values by name, added to those of the session; see `memory.metadata`.

        Raises:
            ConflictError: It has ended, or not begun and `begin` is False; another turn of the user has the id of one;
                or the user was forgotten since.
            UserError: An id, a text or the metadata cannot be stored.
        """
        session, said = name_of("session", session), checked_metadata(metadata)
        since = self.forgets() if since is None else since
        return self._commit(partial(append, owner, session, turns, begin, since, said))

    def end(self, owner: Owner, session: str) -> Added | None:
        """Ends a session: its turns become an item, queued for remembering. None if there is no such open session."""
        session = name_of("session", session)
        with self._write() as db:
            lock(db, owner, make=False)
            found = next((part for part in open_sessions(db, owner) if part.id == session), None)
            if found is None:
                return None
            said = metadata_of(db, owner, which="AND session = :session", session=session).get(session, {})
            drop_open(db, owner, session)
            return queue(owner, found, digest_of(found, said), {}, None, db)

    def keep_vectors(self, owner: Owner, made: Mapping[bytes, bytes], since: int) -> bool:
        """Keeps vectors of a user's texts, until the user or one of their sessions is forgotten.

        Args:
            owner: Whose.
            made: By key.
            since: What `forgets` was when the work began that they were made for.

        Returns:
            Whether they are kept: not if the user or one of their sessions was forgotten since.
        """
        names = owner, any_session_of(owner)
        rows = [{**key_of(owner), "key": key, "vector": vector} for key, vector in made.items()]
        replaced = 'ON CONFLICT (tenant, "user", "key") DO UPDATE SET vector = excluded.vector'

        def write(db: Connection) -> bool:
            if not lock(db, owner, make=False).known or forgotten_since(db, since, *names):
                return False
            insert(db, "vectors", rows, replaced)
            return True

        return self._commit(write)

    def amend(self, owner: Owner, amendment: Amendment, since: int | None = None) -> bool:
        """Writes an amendment; false if it is not the one that follows the last one of the user.

        Args:
            owner: Whose memory it is of.
            amendment: Its number is one more than `Snapshot.amended`.
            since: What `forgets` was when the caller began; now if None.

        Raises:
            ConflictError: The user was forgotten since.
            UserError: There are too many.
        """
        if amendment.number > MOST_AMENDMENTS:
            most = f"{MOST_AMENDMENTS} amendments, the most there can be"
            raise UserError(f"user {owner.user!r} has {most}; forget sessions instead")
        since = self.forgets() if since is None else since

        def write(db: Connection) -> bool:
            known = lock(db, owner, make=False).known
            refuse(db, owner, since)
            last = run(db, f"SELECT max(number) FROM mempiler_amendments WHERE {OWN}", owner).scalar()
            follows = known and amendment.number == (last or 0) + 1
            if follows:
                put_amendments(db, owner, [amendment])
            return follows

        return self._commit(write)

    def check(self) -> None:
        """Writes a row that means nothing: a full disk shows in writes only."""
        statement = """INSERT INTO mempiler_meta (name, value) VALUES ('checked', :value)
            ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
        with self._write() as db:
            run(db, statement, value=uuid4().hex)

    def restore(self, users: Iterable[Contents], replace: bool = False) -> int:
        """Writes users that `dump` read: all of them in one transaction, or none.

        Args:
            users: They are read one by one; an error of theirs, too, leaves the store as it was.
            replace: Whether a user who is there already is deleted first.

        Raises:
            ConflictError: The user is there already, and is not to be replaced.
            UserError: Something of them cannot be stored.
        """
        count, since, replaced = 0, self.forgets(), list[Owner]()
        with self._write() as db:
            for contents in users:
                owner = contents.owner
                if lock(db, owner, make=False).known:
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


def _restore(db: Connection, contents: Contents, since: int) -> None:
    """Writes a new user as they were elsewhere.

    Raises:
        UserError: An item cannot be stored.
        ConflictError: Two turns have one id; or the user was forgotten meanwhile.
    """
    owner = contents.owner
    lock(db, owner)
    refuse(db, owner, since)
    said: dict[str, Mapping[str, Any]] = dict(contents.open_metadata)
    for stored in contents.items:
        item = checked(stored.item)
        said[item.id] = contents.metadata.get(stored.position, {})
        take_turns(db, owner, item.turns, stored.position)
        about = {"position": stored.position, "state": stored.state, "attempts": stored.attempts, "error": stored.error}
        put_item(db, owner, item, stored.digest, **about)
    for session in contents.open:
        append(owner, name_of("session", session.id), session.turns, True, since, {}, db)
    rows = [{**key_of(owner), "session": id, "json": json.dumps(value)} for id, value in said.items() if value]
    insert(db, "metadata", rows)
    last = max((stored.position for stored in contents.items), default=0)
    run(db, f"UPDATE mempiler_users SET next_position = :next WHERE {OWN}", owner, next=last + 1)
    if contents.document is not None:
        put_memory(db, owner, contents.document)
    put_amendments(db, owner, contents.amendments)
