"""The queue of a store: the right to write a user's memory, and what comes of it."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection

from ..errors import ConflictError
from .database import OWN, Database, batches, put, run
from .stored import LONGEST_LEASE, Change, Claim, Document, Owner, Stamp


class Queue(Database):
    """What a `Store` does for those who write memories."""

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
        """Takes the right to write the memories of users with something to do, in one transaction.

        A user has something to do when items are queued or the memory is not settled. Users whose memory another
        program or embedder wrote are passed over. Tenants take turns: whoever has fewest users claimed comes first.

        Args:
            worker: Names the caller; unique.
            lease: Seconds until others may take over, renewed by every commit; at most `LONGEST_LEASE`.
            stamp: Of the program that will write.
            owner: This user or none, paused or not; those that wait longest of each tenant if None.
            partial: Whether items of which turns could not be taken in are something to do.
            most: Users; fewer where no more have something to do.
            each: Users that a tenant may have claimed at most; any number if None.
        """
        states = ["queued", "partial"] if partial else ["queued"]
        same = 'tenant = u.tenant AND "user" = u."user"'
        free = "worker = :worker OR claimed_until <= :now OR claimed_until > :now + :longest"
        free = f"({free} OR worker = '') AND {OWN}" if owner else f"({free})"
        ready = f"""
            {free} AND (EXISTS (SELECT 1 FROM mempiler_items WHERE {same} AND state IN :states)
                OR EXISTS (SELECT 1 FROM mempiler_memories WHERE {same} AND settled_position < position))
            AND NOT EXISTS (SELECT 1 FROM mempiler_memories WHERE {same}
                AND NOT (writer = :writer AND embedder = :embedder AND schema = :schema))"""
        # Whoever is paused has no worker.
        held = """SELECT tenant AS holder, count(*) AS claimed FROM mempiler_users
            WHERE worker <> '' AND claimed_until > :now AND claimed_until <= :now + :longest GROUP BY tenant"""
        turns = f"""SELECT tenant AS of_tenant, "user" AS of_user,
            row_number() OVER (PARTITION BY tenant ORDER BY claimed_until) AS turn
            FROM mempiler_users u WHERE {ready}"""
        statement = f"""
            SELECT u.tenant, u."user", u.version FROM mempiler_users u
            JOIN ({turns}) t ON of_tenant = tenant AND of_user = "user" LEFT JOIN ({held}) h ON holder = tenant
            WHERE {free} AND turn + coalesce(claimed, 0) <= :each
            ORDER BY turn + coalesce(claimed, 0), claimed_until LIMIT :most
            {"FOR UPDATE OF u SKIP LOCKED" if self._server else ""}"""
        hold = f"UPDATE mempiler_users SET worker = :worker, claimed_until = :now + :lease WHERE {OWN}"
        about = {"writer": stamp.writer, "embedder": stamp.embedder, "schema": stamp.schema, "states": states}
        about |= {"most": most, "each": sys.maxsize if each is None else each}
        about |= {"worker": worker, "longest": LONGEST_LEASE}
        with self._write() as db:
            found = run(db, statement, owner, **about).all()
            claims = [Claim(Owner.stored(user.user, user.tenant), worker, user.version) for user in found]
            for claim in claims:
                run(db, hold, claim.owner, worker=worker, lease=min(lease, LONGEST_LEASE))
            return claims

    def release(self, claim: Claim) -> None:
        """Gives a claim back, if it is still held."""
        free = f"UPDATE mempiler_users SET worker = '', claimed_until = :now WHERE {OWN} AND worker = :worker"
        with self._write() as db:
            run(db, free, claim.owner, worker=claim.worker)

    def pause(self, owner: Owner, seconds: float) -> None:
        """Lets nobody claim a user for so many seconds, but for who asks for this user alone."""
        later = f"UPDATE mempiler_users SET claimed_until = :now + :seconds WHERE {OWN} AND worker = ''"
        with self._write() as db:
            run(db, later, owner, seconds=min(seconds, LONGEST_LEASE))

    def commit(self, claim: Claim, document: Document, lease: float, note: str = "") -> Claim | None:
        """Stores a memory and marks the items it took in, in one transaction.

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
            lasts = min(lease, LONGEST_LEASE)
            if not run(db, advance, owner, new=new, old=claim.version, lease=lasts, **held).rowcount:
                return None
            put_memory(db, owner, document)
            run(db, remembered, owner, note=note, last=document.position)
            for ids in batches(document.partial):
                run(db, partial, owner, ids=ids)
            return Claim(owner, claim.worker, new)

    def fail(self, claim: Claim, position: int, error: str, give_up: bool) -> None:
        """Notes that an item could not be remembered; kept as `failed`, or queued for another attempt."""
        statement = f"""
            UPDATE mempiler_items SET state = :state, attempts = attempts + 1, error = :error
            WHERE {OWN} AND position = :position AND state = 'queued'
            AND EXISTS (SELECT 1 FROM mempiler_users WHERE {OWN} AND version = :version)"""
        about = {"state": "failed" if give_up else "queued", "error": error, "position": position}
        with self._write() as db:
            run(db, statement, claim.owner, version=claim.version, **about)

    def set_aside(self, owner: Owner, position: int) -> bool:
        """Keeps a queued item that cannot be read as `failed`, so that the others are written; whether it was one."""
        statement = f"""UPDATE mempiler_items SET state = 'failed', error = 'the row is damaged'
            WHERE {OWN} AND position = :position AND state = 'queued'"""
        with self._write() as db:
            return run(db, statement, owner, position=position).rowcount > 0

    def requeue(self, owner: Owner) -> int:
        """Queues the items that could not be remembered for further attempts; returns how many."""
        statement = f"UPDATE mempiler_items SET state = 'queued', attempts = 0 WHERE {OWN} AND state = 'failed'"
        with self._write() as db:
            lock(db, owner)
            return run(db, statement, owner).rowcount

    def reset(self, owner: Owner) -> None:
        """Forgets the memory of a user, and queues all of their raw items anew."""
        with self._write() as db:
            lock(db, owner)
            reset(db, owner)


def put_memory(db: Connection, owner: Owner, document: Document) -> None:
    """Writes a user's memory: its whole text, or what changed in it since the last one."""
    about: dict[str, Any] = {"position": document.position, "settled_position": document.settled_position}
    about |= {"speakers": json.dumps(document.speakers), **vars(document.stamp), "base": document.log.base}
    number, change = document.log.count, document.change
    if change is None:
        run(db, f"DELETE FROM mempiler_changes WHERE {OWN}", owner)
        number, change = 0, Change(document.memory, document.settled)
        about["base"] = about["base"] or uuid4().hex
    put(db, "memories", owner, [about], [], ["updated"])
    put(db, "changes", owner, [{"number": number, **vars(change)}])


def reset(db: Connection, owner: Owner) -> None:
    """Deletes a user's memory and queues every item anew."""
    for table in ("memories", "changes", "vectors"):
        run(db, f"DELETE FROM mempiler_{table} WHERE {OWN}", owner)
    run(db, f"UPDATE mempiler_items SET state = 'queued', attempts = 0, error = '' WHERE {OWN}", owner)
    changed(db, owner)


def lock(db: Connection, owner: Owner) -> bool:
    """Locks a user's row until the transaction ends; whether there is one.

    Positions are given out under that lock, so they follow the order of commits, and two writers of one user come one
    after the other.
    """
    statement = f"UPDATE mempiler_users SET next_position = next_position WHERE {OWN}"
    return run(db, statement, owner).rowcount > 0


def make(db: Connection, owner: Owner) -> int:
    """Locks a user's row, and makes it if there is none; the next position.

    One that makes it at the same time is waited for.
    """
    statement = """INSERT INTO mempiler_users (tenant, "user", next_position, version, worker, claimed_until)
        VALUES (:tenant, :user, 1, :new, '', 0)
        ON CONFLICT (tenant, "user") DO UPDATE SET next_position = mempiler_users.next_position
        RETURNING next_position"""
    return run(db, statement, owner, new=uuid4().hex).scalar_one()


def changed(db: Connection, owner: Owner) -> None:
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


def refuse(db: Connection, owner: Owner, since: int) -> None:
    """Refuses what began, when `Store.forgets` was so much, before its user was forgotten, who is locked."""
    if forgotten_since(db, since, owner):
        raise refusal(owner)


def refusal(owner: Owner) -> ConflictError:
    """What a write is refused with that began before its user was forgotten."""
    return ConflictError(f"user {owner.user!r} was forgotten while this was under way; nothing of it was stored")
