"""The memory store: what users said, durably, and the memory that was made of it.

    add(owner, item) ──> queued item ──> claim ── a program writes ──> commit(document, items) ──> remembered
    read(owner)      ──> Snapshot: the document, and what is not in it yet

An item and its place in the queue are one row, written in one transaction, before anything else happens to it. A
memory and the state of the items in it change in one transaction too, and only if that memory did not change meanwhile
(`version`): a process may be killed at any moment, and two may write one user; every item is in the memory exactly
once. No transaction is open while a language model works.

The store knows JSON and positions, and no program; `programs.remember_queued` drives one over it. Every method may be
called from many threads and processes at once.

Example:
    >>> from mempiler.memory.store import Store
    >>> from mempiler.memory.stored import Owner
    >>> from mempiler.records import Session, Turn
    >>> session = Session(id="D1", turns=(Turn(id="D1:1", speaker="Ada", text="I moved to Lisbon."),))
    >>> with Store("memories.sqlite") as store:
    ...     [store.add(Owner("ada"), session).new, store.add(Owner("ada"), session).new]
    [True, False]

Limits: see `memory/store_tables.py`; a claim rests on the workers' clocks, but a wrong clock costs only double work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Self

from sqlalchemy import Connection, delete, exists, func, insert, select, update

from ..errors import ConflictError
from ..records import Item, Session, Turn
from . import store_reads as reads
from . import store_rows as rows
from . import store_tables as t
from .store_tables import key_of, of
from .stored import Added, Claim, Document, Owner, Snapshot, Stamp, StoredItem, Summary, check_key


class Store:
    """Raw items, queues and memories of many users in one database.

    Args:
        url: The path of an SQLite file, or `postgresql://user:password@host/database`.
        timeout: Seconds to wait for a lock or a connection before a `StoreError`.

    Raises:
        UserError: No such kind of store.
        StoreError: It cannot be opened; this and every method may raise it, and nothing is half written then.
    """

    def __init__(self, url: str | Path, timeout: float = 30.0) -> None:
        self._engine = t.open_engine(url, timeout)
        self.url = t.address_of(self._engine)
        """The address, without a password."""
        # Who waits for SQLite's own lock sleeps and tries again, and among many threads may never be lucky.
        self._writing = threading.Lock() if self._engine.dialect.name == "sqlite" else nullcontext()

    def add(self, owner: Owner, item: Item, digest: str | None = None) -> Added:
        """Writes an item and queues it for remembering, in one transaction.

        Args:
            owner: Whose it is.
            item: A session, logs, ...; one without an id gets `D` and its position. Turns without an id get the
                item's and a number.
            digest: Identifies a repeated item; that of the item's content if None.

        Returns:
            Its id and position; `new` is False for an item that had been added before, which is left alone.

        Raises:
            ConflictError: Another item of the user has this id, or another turn an id of its turns.
            UserError: The item has no turns, or an id or a text that cannot be stored.
        """
        rows.check_item(item)
        with self._write() as db:
            rows.lock(db, owner)
            return rows.queue(db, owner, item, digest or rows.digest_of(item))

    def append(self, owner: Owner, session: str, turns: Sequence[Turn], begin: bool = True) -> tuple[Turn, ...]:
        """Writes turns of an open or a new session; turns without an id get the session's and a number.

        Raises:
            ConflictError: It has ended, or not begun and `begin` is False; another turn of the user has the id of one.
            UserError: An id or a text cannot be stored.
        """
        check_key("session", session)
        with self._write() as db:
            rows.lock(db, owner, make=begin)
            if db.execute(select(t.items.c.id).where(*of(t.items, owner), t.items.c.id == session)).first():
                raise ConflictError(f"session {session!r} of user {owner.user!r} has ended; begin one with another id")
            return rows.append(db, owner, session, turns, begin)

    def end(self, owner: Owner, session: str) -> Added | None:
        """Ends a session: its turns become an item, queued for remembering. None if there is no such open session."""
        with self._write() as db:
            rows.lock(db, owner, make=False)
            found = next((part for part in reads.open_sessions(db, owner) if part.id == session), None)
            if found is None:
                return None
            rows.drop_open(db, owner, session)
            return rows.queue(db, owner, found, rows.digest_of(found))

    def idle(self, since: float) -> list[tuple[Owner, str]]:
        """Open sessions whose last turn came before a time (seconds since 1970), oldest first."""
        c, last = t.open_turns.c, func.max(t.open_turns.c.added)
        query = select(c.tenant, c.user, c.session).group_by(c.tenant, c.user, c.session)
        with self._read() as db:
            found = db.execute(query.having(last < since).order_by(last)).all()
        return [(Owner(row.user, row.tenant), row.session) for row in found]

    def read(self, owner: Owner, known: Callable[[str], bool] = lambda version: False) -> Snapshot:
        """A consistent view of a user.

        Args:
            owner: Whose.
            known: Whether the caller has the memory of a version, so that it need not be read.
        """
        with self._read() as db:
            version = db.execute(select(t.users.c.version).where(*of(t.users, owner))).scalar() or ""
            columns = [c for c in t.memories.c if c.name not in ("json", "settled")] if known(version) else t.memories.c
            row = db.execute(select(*columns).where(*of(t.memories, owner))).first()
            waiting = tuple(reads.items(db, owner, after=row.settled_position if row else 0))
            return Snapshot(
                owner, version, reads.stamp(row), reads.document(row), waiting, tuple(reads.open_sessions(db, owner))
            )

    def items(self, owner: Owner) -> list[StoredItem]:
        """All raw items of a user that were not forgotten, in order."""
        with self._read() as db:
            return reads.items(db, owner)

    def turns(self, owner: Owner, ids: Sequence[str]) -> dict[str, tuple[Turn, Item]]:
        """Turns by id, each with its item, e.g. the sources of a recalled context; unknown ids are skipped."""
        with self._read() as db:
            return reads.turns(db, owner, ids)

    def users(self, tenant: str | None = None, user: str | None = None) -> list[Summary]:
        """Every user, or those of one tenant or one name, in order of their names."""
        with self._read() as db:
            return reads.summaries(db, tenant, user)

    def states(self) -> dict[str, int]:
        """How many items of all users are queued, partial or failed."""
        c = t.items.c
        query = select(c.state, func.count().label("total")).where(c.state.in_(reads.COUNTED)).group_by(c.state)
        with self._read() as db:
            return {**dict.fromkeys(reads.COUNTED, 0), **{row.state: row.total for row in db.execute(query)}}

    def check(self) -> None:
        """Writes a row that means nothing: a full disk shows in writes only."""
        row, now = t.meta.c.name == "checked", str(time.time())
        with self._write() as db:
            if not db.execute(update(t.meta).where(row).values(value=now)).rowcount:
                db.execute(insert(t.meta).values(name="checked", value=now))

    def claim(
        self, worker: str, lease: float, stamp: Stamp, owner: Owner | None = None, partial: bool = False
    ) -> Claim | None:
        """Takes the right to write a user's memory, if there is one with something to do.

        A user has something to do when items are queued or the memory is not settled. Users whose memory another
        program or embedder wrote are passed over.

        Args:
            worker: Names the caller; unique.
            lease: Seconds until others may take over, renewed by every commit.
            stamp: Of the program that will write.
            owner: This user or none; the one that waits longest if None.
            partial: Whether items of which turns could not be taken in are something to do.
        """
        now = time.time()
        query = reads.claimable(worker, stamp, owner, now, partial)
        with self._write() as db:
            row = db.execute(query).first()
            if row is None:
                return None
            claim = Claim(Owner(row.user, row.tenant), worker, row.version)
            held = update(t.users).where(*of(t.users, claim.owner))
            db.execute(held.values(worker=worker, claimed_until=now + lease))
            return claim

    def release(self, claim: Claim) -> None:
        """Gives a claim back, if it is still held."""
        with self._write() as db:
            held = update(t.users).where(*of(t.users, claim.owner), t.users.c.worker == claim.worker)
            db.execute(held.values(worker="", claimed_until=time.time()))

    def commit(self, claim: Claim, document: Document, lease: float, note: str = "") -> Claim | None:
        """Stores a memory and marks the items it took in, in one transaction.

        Args:
            claim: Whose memory, and the version it was made from.
            document: The memory; the items up to its position that were queued are remembered with it.
            lease: Seconds for which the claim is renewed.
            note: What went wrong with a part of the item at its position.

        Returns:
            The claim of the new version; None if the memory changed meanwhile, and nothing was stored then.
        """
        with self._write() as db:
            version = rows.advance(db, claim.owner, claim.version, lease)
            if version is None:
                return None
            db.execute(delete(t.memories).where(*of(t.memories, claim.owner)))
            db.execute(insert(t.memories).values(**key_of(claim.owner), **rows.columns(document)))
            c = t.items.c
            taken = (*of(t.items, claim.owner), c.position <= document.position, c.state == "queued")
            db.execute(update(t.items).where(*taken).values(state="remembered", error=note))
            mine, written = of(t.items, claim.owner), c.state.in_(("remembered", "partial"))
            left = c.id.in_(document.partial)
            db.execute(update(t.items).where(*mine, c.state == "partial", ~left).values(state="remembered"))
            if document.partial:
                db.execute(update(t.items).where(*mine, written, left).values(state="partial"))
            return Claim(claim.owner, claim.worker, version)

    def fail(self, claim: Claim, position: int, error: str, give_up: bool) -> None:
        """Notes that an item could not be remembered; kept as `failed`, or queued for another attempt."""
        c, u = t.items.c, t.users.c
        unchanged = exists().where(*of(t.users, claim.owner), u.version == claim.version)
        mine = update(t.items).where(*of(t.items, claim.owner), c.position == position, c.state == "queued", unchanged)
        with self._write() as db:
            state = "failed" if give_up else "queued"
            db.execute(mine.values(attempts=c.attempts + 1, error=error, state=state))

    def requeue(self, owner: Owner) -> int:
        """Queues the items that could not be remembered for further attempts; returns how many."""
        c = t.items.c
        failed = update(t.items).where(*of(t.items, owner), c.state == "failed")
        with self._write() as db:
            rows.lock(db, owner, make=False)
            return db.execute(failed.values(state="queued", attempts=0)).rowcount

    def reset(self, owner: Owner) -> bool:
        """Forgets the memory and queues all raw items anew, for a changed program; False for an unknown user."""
        with self._write() as db:
            known = rows.lock(db, owner, make=False)
            rows.reset(db, owner)
        return known

    def forget(self, owner: Owner) -> bool:
        """Deletes everything of a user: raw items, open turns, memory; False for an unknown user.

        A worker that is writing the user's memory at this moment will find its claim void.
        """
        with self._write() as db:
            rows.lock(db, owner, make=False)
            counts = [db.execute(delete(table).where(*of(table, owner))).rowcount for table in t.OWNED]
        self._scrub()
        return any(counts)

    def forget_item(self, owner: Owner, id: str) -> bool:
        """Deletes one item or open session of a user; False if there is none of that id.

        If the memory holds something of it, the memory is deleted too, and all other items are queued anew.
        """
        with self._write() as db:
            rows.lock(db, owner, make=False)
            known = rows.drop_item(db, owner, id) | rows.drop_open(db, owner, id)
        self._scrub()
        return known

    def dump(self, owner: Owner) -> tuple[Document | None, list[tuple[StoredItem, str]], list[Session]]:
        """Everything of a user at one moment: document, items with their digests, open sessions."""
        with self._read() as db:
            row = db.execute(select(t.memories).where(*of(t.memories, owner))).first()
            c = t.items.c
            digests = db.execute(select(c.digest).where(*of(t.items, owner)).order_by(c.position)).scalars()
            items = list(zip(reads.items(db, owner), digests, strict=True))
            return reads.document(row), items, reads.open_sessions(db, owner)

    def restore(
        self,
        owner: Owner,
        items: Sequence[StoredItem],
        digests: Sequence[str],
        open_sessions: Sequence[Session],
        document: Document | None,
        replace: bool = False,
    ) -> None:
        """Writes a user that `dump` read, in one transaction.

        Raises:
            ConflictError: The user is there already, and is not to be replaced.
        """
        with self._write() as db:
            if rows.lock(db, owner, make=False):
                if not replace:
                    raise ConflictError(f"user {owner.user!r} is in {self.url} already; give --replace, or forget them")
                for table in t.OWNED:
                    db.execute(delete(table).where(*of(table, owner)))
            rows.lock(db, owner)
            rows.restore(db, owner, items, digests, document)
            for session in open_sessions:
                rows.append(db, owner, session.id, session.turns)

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def __deepcopy__(self, memo: object = None) -> Store:
        return self

    @contextmanager
    def _write(self) -> Generator[Connection]:
        engine = self._engine.execution_options(write=True)
        with self._writing, t.store_errors(self._engine), engine.begin() as connection:
            yield connection

    @contextmanager
    def _read(self) -> Generator[Connection]:
        with t.store_errors(self._engine), t.reading(self._engine).begin() as connection:
            yield connection

    def _scrub(self) -> None:
        """Removes deleted data from SQLite's log too, if no reader uses it at the moment."""
        if self._engine.dialect.name == "sqlite":
            with t.store_errors(self._engine), t.outside_transactions(self._engine) as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
