"""Claims, commits and forgetting: who may write a user's memory, and what is refused after it was forgotten.

The bytes go from an SQLite file too: its log is emptied, the file rewritten, the log emptied again. While somebody
reads, that would hold up every writer: what is left to do is noted, and whoever erases next does it.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from ...errors import ConflictError, StoreError
from ...records import Turn
from . import old_tables as t
from .old_database import OWN, batches, put, run, select_in
from ..results import Receipt
from ..names import valid_name
from .reading import Reading, amendments_of
from .documents import MemoryChange, Document, Stamp
from .owner import Owner
from .records import MAX_LEASE, Claim, Erasure

KEPT = 86_400.0
"""Seconds for which it is known who was forgotten; no write takes longer."""
MOST = 256 * 2**20
"""Largest SQLite file that is rewritten; writers wait about a second per 100 MB."""
WAIT, TRIES = 50, 5
"""Milliseconds for which emptying the log waits for readers, as long as which writers wait; and how often it does."""
SERVER = "PostgreSQL keeps deleted rows in its pages until it needs the place, or VACUUM FULL; and in logs and backups"
READER = "somebody reads the store, so its log cannot be emptied; run it again later, or leave it to a running service"
LARGE = "the file is too large to be rewritten while others write; when nobody does, run: sqlite3 FILE VACUUM"


class Claims(Reading):
    """What a `Store` does for those who write memories, and to forget."""

    def claim(
        self,
        worker: str,
        lease: float,
        stamp: Stamp,
        owner: Owner | None = None,
        partial: bool = False,
        most: int = 1,
        each: int | None = None,
    ) -> list[Claim]:
        """Claim users whose memory is to be written, in one transaction: of workers that ask at once, one gets a user.

        That is so for users with queued items, or with a memory that is not finalized. Left out are users that others hold,
        and those whose memory another program or embedder wrote. Tenants take turns: the one with fewest users claimed
        comes first.

        Args:
            worker: Names the caller; unique.
            lease: Seconds until others may take over, renewed by every commit; at most `LONGEST_LEASE`.
            stamp: Of the program that will write.
            owner: This user or none, paused or not; those that wait longest of each tenant if None.
            partial: Whether users with turns that could not be written are claimed too.
            most: Users; fewer where no more have something to do.
            each: Users that a tenant may have claimed at most; any number if None.
        """
        states = ["queued", "partial"] if partial else ["queued"]
        free = "worker = :worker OR claimed_until <= :now OR claimed_until > :now + :longest"
        free = f"({free} OR worker = '')" if owner else f"({free})"
        same = 'tenant = u.tenant AND "user" = u."user"'
        ready = f"""
            SELECT "user", claimed_until FROM mempiler_users u WHERE tenant = :tenant AND "user" IN :users AND {free}
            AND (EXISTS (SELECT 1 FROM mempiler_items WHERE {same} AND state IN :states)
                OR EXISTS (SELECT 1 FROM mempiler_memories WHERE {same} AND finalized_position < position))
            AND NOT EXISTS (SELECT 1 FROM mempiler_memories WHERE {same}
                AND NOT (writer = :writer AND embedder = :embedder AND schema = :schema))
            ORDER BY claimed_until LIMIT :most"""
        # Whoever is paused has no worker.
        held = """SELECT tenant, count(*) AS users FROM mempiler_users
            WHERE worker <> '' AND claimed_until > :now AND claimed_until <= :now + :longest GROUP BY tenant"""
        locked = "FOR UPDATE SKIP LOCKED" if self._server else ""
        hold = f"""UPDATE mempiler_users SET worker = :worker, claimed_until = :now + :lease WHERE {OWN}
            AND "user" IN (SELECT "user" FROM mempiler_users WHERE {OWN} AND {free} {locked}) RETURNING version"""
        about = {"writer": stamp.writer, "embedder": stamp.embedder, "schema": stamp.schema, "states": states}
        mine, claims = {"worker": worker, "longest": MAX_LEASE, "most": most}, list[Claim]()
        with self._write() as db:
            begun = {} if owner else {row.tenant: row.users for row in run(db, held, longest=MAX_LEASE)}
            for names in [{owner.tenant: [owner.user]}] if owner else self._queued(db, states):
                found = list[tuple[int, float, Owner]]()
                for tenant, users in names.items():
                    parts = (run(db, ready, tenant=tenant, users=some, **mine, **about) for some in batches(users))
                    rows = sorted(chain.from_iterable(parts), key=attrgetter("claimed_until"))[:most]
                    for turn, row in enumerate(rows, begun.get(tenant, 0) + 1):
                        found.append((turn, row.claimed_until, Owner.stored(row.user, tenant)))
                for turn, _, one in sorted(found, key=itemgetter(0, 1)):
                    if len(claims) == most or (each is not None and turn > each):
                        break
                    version = run(db, hold, one, lease=min(lease, MAX_LEASE), **mine).scalar()
                    claims += [Claim(one, worker, version)] if version else []
                if claims:
                    break
        return claims

    def release(self, claim: Claim) -> None:
        """Give a claim back, if it is still held; a claim that was lost is left to who holds it now."""
        free = f"UPDATE mempiler_users SET worker = '', claimed_until = :now WHERE {OWN} AND worker = :worker"
        with self._write() as db:
            run(db, free, claim.owner, worker=claim.worker)

    def pause(self, owner: Owner, seconds: float) -> None:
        """Let no worker claim a user whom nobody holds for so many seconds, but for who asks for this user alone."""
        later = f"UPDATE mempiler_users SET claimed_until = :now + :seconds WHERE {OWN} AND worker = ''"
        with self._write() as db:
            run(db, later, owner, seconds=min(seconds, MAX_LEASE))

    def commit(self, claim: Claim, document: Document, lease: float, note: str = "") -> Claim | None:
        """Store a memory and mark the items in it as remembered, in one transaction.

        So every item is in the memory exactly once, whoever is killed: where the memory changed since the claim, e.g.
        by a worker that took over, or because the user was forgotten, nothing is stored.

        Args:
            claim: Whose memory, and the version it was made from.
            document: The memory; the items up to its position that were queued are remembered with it.
            lease: Seconds for which the claim is renewed; 0 gives it back, as `release` does.
            note: What went wrong with a part of the item at its position.

        Returns:
            The claim of the new version; None if the memory changed meanwhile, and nothing was stored then.
        """
        new, owner = uuid4().hex, claim.owner
        holds = "claimed_until = :now + :lease"
        if not lease:
            holds = """claimed_until = CASE worker WHEN :worker THEN :now + :lease ELSE claimed_until END,
                worker = CASE worker WHEN :worker THEN '' ELSE worker END"""
        advance = f"UPDATE mempiler_users SET version = :new, {holds} WHERE {OWN} AND version = :old"
        held = {"worker": claim.worker} if not lease else {}
        # SQLite would look at all items of the user.
        by_state = "" if self._server else "INDEXED BY mempiler_items_state"
        remembered = f"""
            UPDATE mempiler_items SET state = 'remembered', error = CASE state WHEN 'queued' THEN :note ELSE error END
            WHERE {OWN} AND position IN (SELECT position FROM mempiler_items {by_state}
                WHERE {OWN} AND state IN ('queued', 'partial') AND position <= :last)"""
        partial = f"UPDATE mempiler_items SET state = 'partial' WHERE {OWN} AND state = 'remembered' AND id IN :ids"
        with self._write() as db:
            lasts = min(lease, MAX_LEASE)
            if not run(db, advance, owner, new=new, old=claim.version, lease=lasts, **held).rowcount:
                return None
            put_memory(db, owner, document)
            run(db, remembered, owner, note=note, last=document.position)
            for ids in batches(document.partial):
                run(db, partial, owner, ids=ids)
            return Claim(owner, claim.worker, new)

    def fail(self, claim: Claim, position: int, error: str, give_up: bool) -> None:
        """Record that an item could not be written. Keep it as `failed` if `give_up`, else queued for another attempt.

        Nothing is recorded if the memory changed since the claim.
        """
        statement = f"""
            UPDATE mempiler_items SET state = :state, attempts = attempts + 1, error = :error
            WHERE {OWN} AND position = :position AND state = 'queued'
            AND EXISTS (SELECT 1 FROM mempiler_users WHERE {OWN} AND version = :version)"""
        about = {"state": "failed" if give_up else "queued", "error": error, "position": position}
        with self._write() as db:
            run(db, statement, claim.owner, version=claim.version, **about)

    def requeue(self, owner: Owner) -> int:
        """Queue all failed items of a user again, with their attempts at 0. Return how many there were."""
        statement = f"UPDATE mempiler_items SET state = 'queued', attempts = 0 WHERE {OWN} AND state = 'failed'"
        with self._write() as db:
            lock(db, owner)
            return run(db, statement, owner).rowcount

    def reset(self, owner: Owner) -> None:
        """Drop the memory of a user and queue all of their raw items, in one transaction."""
        with self._write() as db:
            lock(db, owner)
            reset(db, owner)

    def forget(self, owner: Owner) -> Receipt:
        """Delete everything of a user in one transaction, then erase its bytes.

        Whatever is under way for the user, in any process, is refused from now on; the claim of a worker is void.

        Returns:
            What was deleted, and whether its bytes are gone or what holds them; false for an unknown user.
        """
        with self._write() as db:
            # Made even for an unknown user: the first write of a new one may be under way in another process.
            known = lock(db, owner) or _pending(db, owner)
            lock_or_create_user(db, owner)
            sessions, turns = _sizes(db, owner)
            delete_all(db, owner)
            record(db, owner)
        return self._receipt(owner.user, known or sessions > 0, sessions, turns)

    def forget_item(self, owner: Owner, id: str) -> Receipt:
        """Delete one item or open session of a user in one transaction, then erase its bytes.

        If the memory holds something of it, the memory is deleted too and all other items are queued.

        Returns:
            As `forget`; false if there is no such session.
        """
        id = valid_name("session", id)
        with self._write() as db:
            lock(db, owner)
            turns_before = _sizes(db, owner)[1]
            known = forget_session_rows(db, owner, id)
            turns_deleted = turns_before - _sizes(db, owner)[1]
        return self._receipt(id, known, int(turns_deleted > 0), turns_deleted)

    def _receipt(self, name: str, known: bool, sessions: int, turns: int) -> Receipt:
        erasure = self.erase()
        return Receipt(
            forgotten=name,
            known=known,
            sessions=sessions,
            turns=turns,
            erased=erasure.erased,
            held_by=erasure.held_by,
        )

    def erase(self) -> Erasure:
        """Remove the bytes of what was forgotten from an SQLite store, unless somebody reads it at the moment.

        It raises nothing: what fails is said in the result. Call it again later.
        """
        if self._server:
            return Erasure(erased=None, held_by=SERVER)
        try:
            with self._read() as db:
                number = run(db, "SELECT max(number) FROM mempiler_forgotten WHERE erased = 0").scalar()
            if number is None:
                return Erasure(erased=True, held_by="")
            with self._turn(), self._look() as connection:
                # What is set on it must not come to another call from the pool.
                connection.detach()
                held = _rewritten(connection)
            if held in ("", LARGE):
                done = "UPDATE mempiler_forgotten SET erased = 1 WHERE number <= :number AND erased = 0"
                with self._write() as db:
                    run(db, done, number=number)
        except StoreError as error:
            return Erasure(erased=False, held_by=str(error))
        return Erasure(erased=not held, held_by=held)


def put_memory(db: Connection, owner: Owner, document: Document) -> None:
    """Writes a user's memory: its whole text, or what changed in it since the last one."""
    about: dict[str, Any] = {"position": document.position, "finalized_position": document.finalized_position}
    about |= {"speakers": json.dumps(document.speakers), **vars(document.stamp), "base": document.log.base}
    number, change = document.log.count, document.change
    if change is None:
        run(db, f"DELETE FROM mempiler_changes WHERE {OWN}", owner)
        number, change = 0, MemoryChange(document.memory, document.finalized)
        about["base"] = about["base"] or uuid4().hex
    put(db, "memories", owner, [about], [], ["updated"])
    put(db, "changes", owner, [{"number": number, **vars(change)}])


def reset(db: Connection, owner: Owner) -> None:
    """Deletes a user's memory and queues every item anew."""
    for table in ("memories", "changes", "vectors"):
        run(db, f"DELETE FROM mempiler_{table} WHERE {OWN}", owner)
    run(db, f"UPDATE mempiler_items SET state = 'queued', attempts = 0, error = '' WHERE {OWN}", owner)
    bump_version(db, owner)


def lock(db: Connection, owner: Owner) -> bool:
    """Locks a user's row until the transaction ends; whether there is one.

    Positions are given out under that lock, so they follow the order of commits, and two writers of one user come one
    after the other.
    """
    statement = f"UPDATE mempiler_users SET next_position = next_position WHERE {OWN}"
    return run(db, statement, owner).rowcount > 0


def lock_or_create_user(db: Connection, owner: Owner) -> int:
    """Locks a user's row, made if there is none; who makes it at the same time is waited for; the next position."""
    statement = """INSERT INTO mempiler_users (tenant, "user", next_position, version, worker, claimed_until)
        VALUES (:tenant, :user, 1, :new, '', 0)
        ON CONFLICT (tenant, "user") DO UPDATE SET next_position = mempiler_users.next_position
        RETURNING next_position"""
    return run(db, statement, owner, new=uuid4().hex).scalar_one()


def bump_version(db: Connection, owner: Owner) -> None:
    """Gives a user's memory a new version and takes it from whoever writes it."""
    free = f"UPDATE mempiler_users SET version = :version, worker = '', claimed_until = 0 WHERE {OWN}"
    run(db, free, owner, version=uuid4().hex)


def forgotten_as(owner: Owner) -> str:
    """By what a user who was forgotten is known."""
    return hashlib.sha256(f"{owner.tenant}\0{owner.user}".encode()).hexdigest()


def any_session_of(owner: Owner) -> Owner:
    """Stands for any session of a user, where one was forgotten."""
    return Owner.stored(f"{owner.user}\0", owner.tenant)


def forgotten_since(db: Connection, since: int, *owners: Owner) -> bool:
    """Whether one of them was forgotten after that number of the store."""
    named = "SELECT number FROM mempiler_forgotten WHERE name IN :names AND number > :since"
    return run(db, named, names=[forgotten_as(owner) for owner in owners], since=since).first() is not None


def check_not_forgotten(owner: Owner, forgotten: Any) -> None:
    """Refuses what began before its user was forgotten, who is locked."""
    if forgotten:
        raise ConflictError(f"user {owner.user!r} was forgotten while this was under way; nothing of it was stored")


def delete_all(db: Connection, owner: Owner) -> None:
    """Deletes every row of a user."""
    for table in t.OWNED:
        run(db, f"DELETE FROM {table.name} WHERE {OWN}", owner)


def record(db: Connection, *owners: Owner) -> None:
    """Notes that somebody was forgotten under the next number of the store, by all the names asked for afterwards."""
    count = """INSERT INTO mempiler_meta (name, value) VALUES ('forgets', '1') ON CONFLICT (name) DO UPDATE
        SET value = CAST(CAST(mempiler_meta.value AS INTEGER) + 1 AS VARCHAR) RETURNING value"""
    about = {"number": int(run(db, count).scalar_one()), "erased": int(db.dialect.name != "sqlite")}
    put(db, "forgotten", None, [{"name": forgotten_as(owner), **about} for owner in owners], ["name"], ["at"])
    run(db, "DELETE FROM mempiler_forgotten WHERE at < :now - :kept AND erased = 1", kept=KEPT)


def drop_open(db: Connection, owner: Owner, session: str) -> bool:
    """Deletes the turns of an open session; False if there are none."""
    where = f"{OWN} AND session = :session"
    found = run(db, f"SELECT json FROM mempiler_open_turns WHERE {where}", owner, session=session).scalars()
    ids = [Turn.model_validate_json(row).id for row in found]
    for part in batches(ids):
        run(db, f"DELETE FROM mempiler_turns WHERE {OWN} AND turn IN :ids", owner, ids=part)
    run(db, f"DELETE FROM mempiler_open_turns WHERE {where}", owner, session=session)
    return bool(ids)


def forget_session_rows(db: Connection, owner: Owner, id: str) -> bool:
    """Delete an item or open session, with whatever was made of it, and note that it was forgotten.

    If the memory holds something of it, the memory is deleted too, and all other items are queued anew.

    Returns:
        False if there is no such session, and no bytes of an earlier one are still to be erased.
    """
    item_deleted = _drop_item(db, owner, id)
    open_session_deleted = drop_open(db, owner, id)
    forgotten_session = Owner.stored(f"{owner.user}\0{id}", owner.tenant)
    if not (item_deleted or open_session_deleted or _pending(db, forgotten_session)):
        return False

    # Vectors do not say of which session's texts they are.
    run(db, f"DELETE FROM mempiler_vectors WHERE {OWN}", owner)
    run(db, f"DELETE FROM mempiler_metadata WHERE {OWN} AND session = :id", owner, id=id)
    _drop_unfounded(db, owner)
    record(db, forgotten_session, any_session_of(owner))
    return True


def _drop_item(db: Connection, owner: Owner, id: str) -> bool:
    statement = f"DELETE FROM mempiler_items WHERE {OWN} AND id = :id RETURNING position, state"
    found = run(db, statement, owner, id=id).first()
    if found is None:
        return False
    run(db, f"DELETE FROM mempiler_turns WHERE {OWN} AND position = :position", owner, position=found.position)
    if found.state in ("remembered", "partial"):
        reset(db, owner)
    else:
        # A concurrent writer must find the version changed.
        bump_version(db, owner)
    return True


def _drop_unfounded(db: Connection, owner: Owner) -> None:
    """Deletes the amendments of entries that rest on a turn that is not there any more."""
    rows = amendments_of(db, owner)
    sources = sorted({turn for row in rows for turn in row.sources})
    found = select_in(db, f"SELECT turn FROM mempiler_turns WHERE {OWN} AND turn IN :these", owner, sources)
    there = {row.turn for row in found}
    for part in batches([row.number for row in rows if not there.issuperset(row.sources)]):
        run(db, f"DELETE FROM mempiler_amendments WHERE {OWN} AND number IN :numbers", owner, numbers=part)


def _pending(db: Connection, owner: Owner) -> bool:
    """Whether a user was forgotten before, and bytes of theirs are still to be erased."""
    statement = "SELECT name FROM mempiler_forgotten WHERE name = :name AND erased = 0"
    return run(db, statement, name=forgotten_as(owner)).first() is not None


def _sizes(db: Connection, owner: Owner) -> tuple[int, int]:
    """How many sessions a user has, open ones included, and how many turns."""
    statement = f"""SELECT (SELECT count(*) FROM mempiler_items WHERE {OWN})
        + (SELECT count(DISTINCT session) FROM mempiler_open_turns WHERE {OWN}) AS sessions,
        (SELECT count(*) FROM mempiler_turns WHERE {OWN}) AS turns"""
    row = run(db, statement, owner).one()
    return row.sessions, row.turns


def _rewritten(connection: Connection) -> str:
    """Removes deleted data from the files of an SQLite database; returns what holds it, "" if nothing does."""
    try:
        if not _log_emptied(connection):
            return READER
        if Path(connection.engine.url.database or "").stat().st_size > MOST:
            return LARGE
        # Waits as every writer does, and holds up nobody until it is its turn.
        connection.exec_driver_sql("PRAGMA busy_timeout=10000")
        connection.exec_driver_sql("VACUUM")
        return "" if _log_emptied(connection) else READER
    except OperationalError as error:
        return f"the file could not be rewritten: {error.orig}; run it again later"


def _log_emptied(connection: Connection) -> bool:
    connection.exec_driver_sql(f"PRAGMA busy_timeout={WAIT}")
    for _ in range(TRIES):
        with suppress(OperationalError):
            if not connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]:
                return True
        time.sleep(WAIT / 1000)
    return False
