"""The queue of a store: the right to write a user's memory, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import uuid4

from sqlalchemy import Connection

from .database import Database
from .store_rows import OWN, batches, changed, lock, run
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
    ) -> list[Claim]:
        """Takes the right to write the memories of users with something to do, in one transaction.

        A user has something to do when items are queued or the memory is not settled. Users whose memory another
        program or embedder wrote are passed over.

        Args:
            worker: Names the caller; unique.
            lease: Seconds until others may take over, renewed by every commit; at most `LONGEST_LEASE`.
            stamp: Of the program that will write.
            owner: This user or none; those that wait longest if None.
            partial: Whether items of which turns could not be taken in are something to do.
            most: Users; fewer where no more have something to do.
        """
        states = ["queued", "partial"] if partial else ["queued"]
        same = 'tenant = u.tenant AND "user" = u."user"'
        statement = f"""
            SELECT tenant, "user", version FROM mempiler_users u WHERE
            (EXISTS (SELECT 1 FROM mempiler_items WHERE {same} AND state IN :states)
                OR EXISTS (SELECT 1 FROM mempiler_memories WHERE {same} AND settled_position < position))
            AND NOT EXISTS (SELECT 1 FROM mempiler_memories WHERE {same}
                AND NOT (writer = :writer AND embedder = :embedder AND schema = :schema))
            AND (worker = '' OR worker = :worker OR claimed_until < :now OR claimed_until > :now + :longest)
            {f"AND {OWN}" if owner else ""}
            ORDER BY claimed_until LIMIT :most {"FOR UPDATE SKIP LOCKED" if self._server else ""}"""
        hold = f"UPDATE mempiler_users SET worker = :worker, claimed_until = :now + :lease WHERE {OWN}"
        about = {"writer": stamp.writer, "embedder": stamp.embedder, "schema": stamp.schema, "states": states}
        about |= {"most": most, "worker": worker, "longest": LONGEST_LEASE}

        def take(db: Connection) -> list[Claim]:
            found = run(db, statement, owner, **about).all()
            claims = [Claim(Owner.stored(user.user, user.tenant), worker, user.version) for user in found]
            for claim in claims:
                run(db, hold, claim.owner, worker=worker, lease=min(lease, LONGEST_LEASE))
            return claims

        return self._commit(take)

    def release(self, claim: Claim) -> None:
        """Gives a claim back, if it is still held."""
        free = f"UPDATE mempiler_users SET worker = '', claimed_until = :now WHERE {OWN} AND worker = :worker"
        self._commit(lambda db: run(db, free, claim.owner, worker=claim.worker).rowcount)

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

        def store(db: Connection) -> Claim | None:
            lasts = min(lease, LONGEST_LEASE)
            if not run(db, advance, owner, new=new, old=claim.version, lease=lasts, **held).rowcount:
                return None
            put_memory(db, owner, document)
            run(db, remembered, owner, note=note, last=document.position)
            for ids in batches(document.partial):
                run(db, partial, owner, ids=ids)
            return Claim(owner, claim.worker, new)

        return self._commit(store)

    def fail(self, claim: Claim, position: int, error: str, give_up: bool) -> None:
        """Notes that an item could not be remembered; kept as `failed`, or queued for another attempt."""
        statement = f"""
            UPDATE mempiler_items SET state = :state, attempts = attempts + 1, error = :error
            WHERE {OWN} AND position = :position AND state = 'queued'
            AND EXISTS (SELECT 1 FROM mempiler_users WHERE {OWN} AND version = :version)"""
        about = {"state": "failed" if give_up else "queued", "error": error, "position": position}
        with self._write() as db:
            run(db, statement, claim.owner, version=claim.version, **about)

    def requeue(self, owner: Owner) -> int:
        """Queues the items that could not be remembered for further attempts; returns how many."""
        statement = f"UPDATE mempiler_items SET state = 'queued', attempts = 0 WHERE {OWN} AND state = 'failed'"
        with self._write() as db:
            lock(db, owner)
            return run(db, statement, owner).rowcount

    def reset(self, owner: Owner, forced_by: str = "") -> bool:
        """Forgets the memory and queues all raw items anew, for a changed program; False for an unknown user.

        Args:
            owner: Whose.
            forced_by: The writer of a forced rebuild, which is noted until `end_rebuild`.
        """
        begin = f"""
            UPDATE mempiler_users SET rebuild_since = CASE WHEN rebuild_by IS NULL THEN :now ELSE rebuild_since END,
            rebuild_by = :writer, rebuild_begun = 1 WHERE {OWN}"""
        with self._write() as db:
            known = lock(db, owner)
            if known:
                reset(db, owner)
            if known and forced_by:
                run(db, begin, owner, writer=forced_by)
        return known

    def plan_rebuild(self, owners: Sequence[Owner], writer: str) -> None:
        """Notes that memories are to be written anew by a writer, whoever wrote them."""
        plan = f"UPDATE mempiler_users SET rebuild_by = :writer, rebuild_begun = 0, rebuild_since = :now WHERE {OWN}"
        with self._write() as db:
            for owner in owners:
                run(db, plan, owner, writer=writer)

    def end_rebuild(self, owner: Owner) -> None:
        """Notes that a user's forced rebuild is through, if nothing is queued any more."""
        statement = f"""
            UPDATE mempiler_users SET rebuild_by = NULL WHERE {OWN}
            AND NOT EXISTS (SELECT 1 FROM mempiler_items WHERE {OWN} AND state = 'queued')"""
        with self._write() as db:
            run(db, statement, owner)


def put_memory(db: Connection, owner: Owner, document: Document) -> None:
    """Writes a user's memory: its whole text, or what changed in it since the last one."""
    number, change, base = document.log.count, document.change, "base = mempiler_memories.base"
    if change is None:
        run(db, f"DELETE FROM mempiler_changes WHERE {OWN}", owner)
        number, change, base = 0, Change(document.memory, document.settled), "base = excluded.base"
    about = {"position": document.position, "settled_position": document.settled_position}
    about |= {"speakers": json.dumps(document.speakers), **vars(document.stamp)}
    statement = f"""
        INSERT INTO mempiler_memories (tenant, "user", base, updated, {", ".join(about)})
        VALUES (:tenant, :user, :base, :now, {", ".join(f":{name}" for name in about)})
        ON CONFLICT (tenant, "user") DO UPDATE SET
        {", ".join([base, *(f"{name} = excluded.{name}" for name in ("updated", *about))])}"""
    run(db, statement, owner, base=document.log.base or uuid4().hex, **about)
    added = """INSERT INTO mempiler_changes (tenant, "user", number, memory, settled)
        VALUES (:tenant, :user, :number, :memory, :settled)"""
    run(db, added, owner, number=number, memory=change.memory, settled=change.settled)


def reset(db: Connection, owner: Owner) -> None:
    """Deletes a user's memory and queues every item anew."""
    for table in ("memories", "changes", "vectors"):
        run(db, f"DELETE FROM mempiler_{table} WHERE {OWN}", owner)
    run(db, f"UPDATE mempiler_items SET state = 'queued', attempts = 0, error = '' WHERE {OWN}", owner)
    changed(db, owner)
