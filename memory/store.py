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

Limits: see `memory/store_tables.py`. A claim rests on a clock, PostgreSQL's or the machine's: one that jumps costs
double work, or holds up a user for `LONGEST_LEASE` seconds at most.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import delete, select, update

from ..errors import ConflictError
from ..records import Item, Turn
from . import erasing, rebuilding, store_metadata
from . import store_amending as amending
from . import store_reads as reads
from . import store_rows as rows
from . import store_tables as t
from . import store_vectors as vectors
from .amending import Amendment
from .metadata import Conditions, Scalar, checked_metadata
from .store_claims import Claims
from .store_forgetting import Forgetting
from .store_tables import of
from .stored import (
    Added,
    Contents,
    Log,
    Measures,
    Owner,
    Parsed,
    Rebuild,
    Snapshot,
    StoredItem,
    Summary,
    name_of,
)


class Store(Claims, Forgetting):
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
        item = rows.checked(item)
        since = self.forgets() if since is None else since
        said = checked_metadata(metadata)
        digest = digest or rows.digest_of(item, said)
        return self._commit(lambda db: rows.queue(db, owner, item, digest, since, said))

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
        return self._commit(lambda db: rows.append(db, owner, session, turns, begin, since, said))

    def end(self, owner: Owner, session: str) -> Added | None:
        """Ends a session: its turns become an item, queued for remembering. None if there is no such open session."""
        session = name_of("session", session)
        with self._write() as db:
            rows.lock(db, owner, make=False)
            found = next((part for part in reads.open_sessions(db, owner) if part.id == session), None)
            if found is None:
                return None
            said = store_metadata.of_open(db, owner).get(session, {})
            rows.drop_open(db, owner, session)
            return rows.queue(db, owner, found, rows.digest_of(found, said), metadata=said)

    def idle(self, seconds: float) -> list[tuple[Owner, str]]:
        """Open sessions without a turn for so many seconds, oldest first.

        A last turn in the future was dated by a wrong clock: its session is idle as well, or it would never end.
        """
        with self._read() as db:
            return reads.idle(db, seconds)

    def read(
        self,
        owner: Owner,
        known: Callable[[str], bool] = lambda version: False,
        parsed: Parsed | None = None,
        since: Log = reads.NOTHING,
    ) -> Snapshot:
        """A consistent view of a user.

        Args:
            owner: Whose.
            known: Whether the caller has the memory of a version, so that it need not be read.
            parsed: What the caller keeps from one reading of this user to the next.
            since: How far the caller has the memory: where that can be, only the changes since are read.
        """
        with self._read() as db:
            head = reads.head(db, owner)
            version = head.version or ""
            waiting, opened = reads.waiting(db, owner, head.settled_position or 0, parsed or Parsed())
            made = None if known(version) else reads.document(db, owner, head, since)
            return Snapshot(
                owner, version, reads.stamp(head), made, waiting, opened, int(head.forgets or 0), head.amended or 0
            )

    def vectors(self, owner: Owner, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The vectors of a user's texts that are there, by key."""
        with self._read() as db:
            return vectors.read(db, owner, keys)

    def keep_vectors(self, owner: Owner, made: Mapping[bytes, bytes], since: int) -> bool:
        """Keeps vectors of a user's texts, until the user or one of their sessions is forgotten.

        Args:
            owner: Whose.
            made: By key.
            since: What `forgets` was when the work began that they were made for.

        Returns:
            Whether they are kept: not if the user or one of their sessions was forgotten since.
        """
        return self._commit(lambda db: vectors.write(db, owner, made, since))

    def amendments(self, owner: Owner) -> list[Amendment]:
        """What a user changed in single entries of their memory, in order; undone changes, and undoing, included."""
        with self._read() as db:
            return amending.read(db, owner)

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
        since = self.forgets() if since is None else since
        return self._commit(lambda db: amending.write(db, owner, amendment, since))

    def forgets(self) -> int:
        """How often anybody was forgotten in this store: a write is refused if its user was since it began.

        It also says when a process is to drop what it keeps of users, since another one may have forgotten them.
        """
        with self._look() as db:
            return erasing.forgets(db)

    def items(self, owner: Owner) -> list[StoredItem]:
        """All raw items of a user that were not forgotten, in order."""
        with self._read() as db:
            return reads.items(db, owner)

    def turns(self, owner: Owner, ids: Sequence[str]) -> dict[str, tuple[Turn, Item]]:
        """Turns by id, each with its item, e.g. the sources of a recalled context; unknown ids are skipped."""
        with self._look() as db:
            return reads.turns(db, owner, ids)

    def turns_where(self, owner: Owner, conditions: Conditions) -> frozenset[str]:
        """The ids of the turns of all sessions whose metadata meet conditions."""
        with self._read() as db:
            return store_metadata.turns_where(db, owner, conditions)

    def sessions(self, owner: Owner, turns: Sequence[str]) -> dict[str, tuple[str, dict[str, Any]]]:
        """Id and metadata of the session of each turn; not of unknown ones, nor of open sessions without any."""
        with self._read() as db:
            return store_metadata.sessions(db, owner, turns)

    def users(self, tenant: str | None = None, user: str | None = None) -> list[Summary]:
        """Every user, or those of one tenant or one name, in order of their names."""
        tenant, user = (None if name is None else unicodedata.normalize("NFC", name) for name in (tenant, user))
        with self._read() as db:
            return reads.summaries(db, tenant, user)

    def states(self) -> dict[str, int]:
        """How many items of all users are queued, partial or failed."""
        with self._read() as db:
            return reads.states(db)

    def measures(self) -> Measures:
        """How much there is of all users together."""
        with self._read() as db:
            return reads.measures(db)

    def check(self) -> None:
        """Writes a row that means nothing: a full disk shows in writes only."""
        with self._write() as db:
            rows.upsert(db, t.meta, {"name": "checked"}, {"value": uuid4().hex})

    def requeue(self, owner: Owner) -> int:
        """Queues the items that could not be remembered for further attempts; returns how many."""
        c = t.items.c
        failed = update(t.items).where(*of(t.items, owner), c.state == "failed")
        with self._write() as db:
            rows.lock(db, owner, make=False)
            return db.execute(failed.values(state="queued", attempts=0)).rowcount

    def reset(self, owner: Owner, forced_by: str = "") -> bool:
        """Forgets the memory and queues all raw items anew, for a changed program; False for an unknown user.

        Args:
            owner: Whose.
            forced_by: The writer of a forced rebuild, which is noted until `end_rebuild`.
        """
        with self._write() as db:
            known = rows.lock(db, owner, make=False)
            if known:
                rows.reset(db, owner)
            if known and forced_by:
                rebuilding.begin(db, owner, forced_by)
        return known

    def plan_rebuild(self, owners: Sequence[Owner], writer: str) -> None:
        """Notes that memories are to be written anew by a writer, whoever wrote them."""
        with self._write() as db:
            rebuilding.plan(db, owners, writer)

    def rebuilds(self, writer: str, tenant: str | None = None, user: str | None = None) -> list[Rebuild]:
        """What is left of a writer's forced rebuild."""
        with self._read() as db:
            return rebuilding.planned(db, writer, tenant, user)

    def end_rebuild(self, owner: Owner) -> None:
        """Notes that a user's forced rebuild is through, if nothing is queued any more."""
        with self._write() as db:
            rebuilding.finish(db, owner)

    def clear(self) -> None:
        """Drops what this process keeps of users: SQLAlchemy's compiled statements hold the values they came with."""
        self._engine.clear_compiled_cache()

    def dump(self, owner: Owner, skipped: list[str] | None = None) -> Contents:
        """Everything of a user at one moment.

        Args:
            owner: Who.
            skipped: Damaged rows are left out, and named here; without a memory, all items are queued.

        Raises:
            StoreError: A row is damaged, and `skipped` is None.
        """
        with self._read() as db:
            head = reads.head(db, owner)
            digests = {row.position: row.digest for row in db.execute(select(t.items).where(*of(t.items, owner)))}
            items, opened = reads.items(db, owner, skipped), tuple(reads.open_sessions(db, owner, skipped))
            made = reads.whole_document(db, owner, head, skipped)
            if made is None and head.writer:
                items = [dataclasses.replace(item, state="queued", attempts=0, error="") for item in items]
            return Contents(
                owner,
                tuple(items),
                tuple(digests[item.position] for item in items),
                opened,
                made,
                tuple(amending.read(db, owner, skipped)),
                store_metadata.of_items(db, owner, skipped),
                store_metadata.of_open(db, owner, skipped),
            )

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
                if rows.lock(db, owner, make=False):
                    replaced.append(owner)
                    if not replace:
                        raise ConflictError(
                            f"user {owner.user!r} is in {self.url} already; give --replace, or forget them"
                        )
                    for table in t.OWNED:
                        db.execute(delete(table).where(*of(table, owner)))
                rows.lock(db, owner)
                erasing.refuse(db, owner, since)
                rows.restore(db, contents)
                amending.put(db, owner, contents.amendments)
                count += 1
            for owner in replaced:
                erasing.record(db, owner)
        if replaced:
            self.erase()
        return count
