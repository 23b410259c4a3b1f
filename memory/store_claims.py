"""The queue of a store: the right to write a user's memory, and what comes of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import uuid4

from sqlalchemy import Connection, exists, update

from . import store_holding as holding
from . import store_reads as reads
from . import store_rows as rows
from . import store_tables as t
from .store_tables import of
from .store_transactions import Transactions
from .stored import Claim, Document, Owner, Stamp, State


class Claims(Transactions):
    """What a `Store` does for those who write memories."""

    def claim(
        self, worker: str, lease: float, stamp: Stamp, owner: Owner | None = None, partial: bool = False
    ) -> Claim | None:
        """Takes the right to write a user's memory, if there is one with something to do.

        A user has something to do when items are queued or the memory is not settled. Users whose memory another
        program or embedder wrote are passed over.

        Args:
            worker: Names the caller; unique.
            lease: Seconds until others may take over, renewed by every commit; at most `LONGEST_LEASE`.
            stamp: Of the program that will write.
            owner: This user or none; the one that waits longest if None.
            partial: Whether items of which turns could not be taken in are something to do.
        """
        return next(iter(self._claimed([worker], lease, stamp, owner, partial)), None)

    def claim_many(self, most: int, lease: float, stamp: Stamp) -> list[Claim]:
        """Takes the right to write the memories of several users at once, those that wait longest; as `claim`.

        Args:
            most: Users, at least one; fewer where no more have something to do. Each gets a worker of its own.
            lease: Seconds until others may take over.
            stamp: Of the program that will write.
        """
        return self._claimed([uuid4().hex for _ in range(most)], lease, stamp)

    def _claimed(
        self, workers: Sequence[str], lease: float, stamp: Stamp, owner: Owner | None = None, partial: bool = False
    ) -> list[Claim]:
        """The users that these workers may write now, in one transaction."""
        server = self._engine.dialect.name == "postgresql"
        find = reads.claimable(server, owner is not None, partial)
        about = {"writer": stamp.writer, "embedder": stamp.embedder, "schema": stamp.schema}
        about |= {"most": len(workers), "worker": workers[0], **(t.whose(owner) if owner else {})}

        def take(db: Connection) -> list[Claim]:
            now = {} if server else {"now": time.time()}
            found = db.execute(find, {**about, **now}).all()
            pairs = zip(found, workers, strict=False)
            claims = [Claim(Owner.stored(user.user, user.tenant), by, user.version) for user, by in pairs]
            for claim in claims:
                holding.hold(db, claim, lease)
            return claims

        return self._commit(take)

    def release(self, claim: Claim) -> None:
        """Gives a claim back, if it is still held."""
        self._commit(lambda db: holding.let_go(db, claim))

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

        def store(db: Connection) -> Claim | None:
            version = holding.advance(db, claim, lease)
            if version is None:
                return None
            rows.put_memory(db, claim.owner, document)
            rows.taken_in(db, claim.owner, document, note)
            return Claim(claim.owner, claim.worker, version)

        return self._commit(store)

    def fail(self, claim: Claim, position: int, error: str, give_up: bool) -> None:
        """Notes that an item could not be remembered; kept as `failed`, or queued for another attempt."""
        c, u = t.items.c, t.users.c
        unchanged = exists().where(*of(t.users, claim.owner), u.version == claim.version)
        mine = update(t.items).where(*of(t.items, claim.owner), c.position == position, c.state == "queued", unchanged)
        with self._write() as db:
            state: State = "failed" if give_up else "queued"
            failed = mine.values(attempts=c.attempts + 1, error=error, state=state)
            db.execute(failed)
