"""The queue: how every item gets into the memory of its user exactly once, whoever is killed.

Three tables of the database tell how far the work for a user has come:

    mempiler_items      a row for each item, with its `state`: queued, remembered, partial or failed
    mempiler_memories   a row for each user: the memory was made of the items up to `position`
    mempiler_users      a row for each user: `version` names the memory as it is now; `worker` and
                        `claimed_until` say who writes the next version, and for how long

**The life of an item**

1. `Items.add` writes the item to the disk, with the state `queued`, and returns only then. There is
   no separate queue that could miss an item: whatever is `queued` is in the queue.
2. A worker claims the user (`claim`). In one transaction its name and the end of its *lease* are
   written into the user's row. The claim names the version of the memory at that moment.
3. The worker reads the memory and the queued items (`Store.read`), and has a language model write
   the first item into the memory. This may take minutes. Meanwhile no transaction is open, nobody
   waits for the worker, and nothing changes in the database.
4. The worker commits (`commit`). In one transaction the user's row gets a new version, provided
   that it still has the version of the claim; the new memory is stored; and the item becomes
   `remembered`. If the row has another version, nothing is stored, and the worker drops what it
   wrote.
5. The commit returns a claim of the new version, with a new lease, for the next item. The last
   commit, or `release`, gives the user back.

**Why `kill -9` loses nothing.** A worker may be killed at any moment:

- In the steps 2 to 4, before the commit is complete: the database still has the old memory, and the
  item is still `queued`. What is lost existed in the killed process only. Nobody tells the database
  of the death, so the user stays claimed until the lease ends. Then another worker claims the user,
  and writes the item into the same old memory.
- After the commit is complete: the item is in the memory, and its state says so.

There is nothing in between: a database carries out a transaction as a whole or not at all, also
when its machine loses power. Many programs finalize a memory after the last item. A worker may be
killed before that, too; therefore users whose `finalized_position` is behind `position` can be
claimed like users with queued items.

Otherwise an item leaves the state `queued` in two ways. It is forgotten; or it could not be written
several times, and `fail` sets it aside as `failed`. A failed item is kept, its turns are searched
as they were said, and `requeue_failed` queues it again.

**Why nothing is remembered twice.** Two workers may write one user at the same time: the first is
so slow that its lease ends, and the second takes over. Both began with, say, version 7. Whoever
commits first makes it version 8, and the commit of the other is refused in step 4. So versions
prevent wrong memories, while leases only prevent wasted work. Therefore clocks need not be right: a
wrong one costs double work, or holds up a user for `MAX_LEASE` seconds at most. Whoever forgets
something of a user changes the version too, and so voids the claim of a worker (`forgetting`).

**Why no item is passed over.** A commit marks exactly the items that were written
(`item_positions`). All others stay `queued`, whatever happens meanwhile: items that are added, and
failed items that are queued again. If one worker gives an item up, and a slower one still writes
and commits it, the item becomes `remembered` all the same, because it is in the memory then.

**Leases.** A claim counts until `claimed_until`. Every commit sets it anew, so the lease must last
for one item, not for the whole queue. An end further away than `MAX_LEASE` was dated by a wrong
clock, and counts for nothing. With PostgreSQL the clock of the server decides, not those of the
workers. A user whom nobody holds can be paused (`pause`), for example because the last attempt
failed: then `claimed_until` is in the future, and `worker` is empty.

**Fair turns.** Tenants take turns, however many users a tenant has queued. Every user who waits
gets a rank: if 2 users of a tenant are being written now, its next user has rank 3, and the one
after that has rank 4. Of all users who can be claimed, those with the lowest ranks are claimed:

    tenant     claimed now     ranks of its next users
    acme       2               3, 4, 5, 6, ...
    tiny       0               1, 2

    claim(limit=4) claims the ranks 1 and 2 of tiny, then 3 and 4 of acme.

Within a tenant, and of users with the same rank, the one whose last claim ended first is first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Row

from .database import Database, Transaction, batches
from .documents import Document, Stamp
from .memories import write_document
from .owner import Owner
from .queue_scan import QueueScan
from .records import MAX_LEASE, Claim
from .user_rows import lock_user, new_version


class Queue:
    """Gives users to workers, and stores what the workers wrote.

    Args:
        database: Where items and memories are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._scan = QueueScan()

    def claim(
        self,
        worker: str,
        lease: float,
        stamp: Stamp,
        owner: Owner | None = None,
        includes_partial: bool = False,
        limit: int = 1,
        limit_per_tenant: int | None = None,
    ) -> list[Claim]:
        """Reserve users for a worker that will write their memories.

        Users can be claimed if they have queued items, or a memory that is still to be finalized.
        Left out are users whom another worker has claimed, and users whose memory was written by
        another program or embedder. If several workers ask at once, only one of them gets a user.

        Args:
            worker: Names the caller; no other worker may have this name.
            lease: Seconds until other workers may claim the user, at most `MAX_LEASE`. Every commit
                renews it.
            stamp: Identifies the program and the embedder that will write.
            owner: The only user to claim, paused or not. If None, tenants take turns, and the users
                who wait longest come first.
            includes_partial: Whether to claim also users who have nothing but `partial` items, of
                which some turns could not be written.
            limit: The most users to claim. There may be fewer.
            limit_per_tenant: The most users of one tenant that may be claimed at a time, by all
                workers together; any number if None. Workers that claim at the same moment in
                PostgreSQL do not see one another's claims, and may exceed it.

        Returns:
            The claims; give back each of them by `release`, or by the last `commit`.
        """
        states = ["queued"]
        if includes_partial:
            states.append("partial")
        request = _ClaimRequest(
            worker=worker,
            lease=min(lease, MAX_LEASE),
            stamp=stamp,
            states=states,
            includes_paused=owner is not None,
            limit=limit,
            limit_per_tenant=limit_per_tenant,
        )
        with self._database.write_transaction() as transaction:
            if owner is not None:
                # Tenants need not take turns for a user who is asked for by name.
                users_by_tenant = {owner.tenant: [owner.user]}
                return _claim_some(transaction, request, users_by_tenant, claimed_counts={})

            claimed_counts = _count_claimed_users(transaction)
            for users_by_tenant in self._scan.parts(transaction, states):
                claims = _claim_some(transaction, request, users_by_tenant, claimed_counts)
                if claims:
                    return claims
        return []

    def commit(
        self,
        claim: Claim,
        document: Document,
        lease: float,
        note: str = "",
        item_positions: Sequence[int] = (),
    ) -> Claim | None:
        """Store the memory that a worker wrote, and mark the items in it as remembered.

        This is one transaction. Nothing is stored if the memory has changed since it was claimed,
        for example because another worker took over.

        Args:
            claim: The user, and the version of the memory that the worker began with.
            document: The new memory. Its `partial` names the items of which some turns could not be
                written; these are tried again later.
            lease: Seconds for which the worker keeps the user; 0 gives the user back.
            note: What went wrong with a part of the items; "" for nothing.
            item_positions: The positions of the items that were written, mostly of a single one.

        Returns:
            The claim of the new version, to go on with. None if nothing was stored.
        """
        owner = claim.owner
        next_version = new_version()
        with self._database.write_transaction() as transaction:
            if not _advance_version(transaction, claim, next_version, lease):
                return None

            write_document(transaction, owner, document)
            for positions in batches(item_positions):
                transaction.execute("mark_remembered", owner, item_positions=positions, note=note)

            # `document.partial` is complete: an item that is not in it is partial no longer.
            transaction.execute("mark_no_longer_partial", owner)
            for item_ids in batches(document.partial):
                transaction.execute("mark_partial", owner, item_ids=item_ids)
        return Claim(owner, claim.worker, next_version)

    def fail(self, claim: Claim, position: int, error: str, is_given_up: bool) -> None:
        """Record that an item could not be written.

        Nothing is recorded if the memory has changed since it was claimed.

        Args:
            claim: The user, and the version of the memory that the worker began with.
            position: The position of the item.
            error: What went wrong.
            is_given_up: Whether the item is set aside as `failed`. Otherwise it stays queued for
                another attempt.
        """
        state = "failed" if is_given_up else "queued"
        with self._database.write_transaction() as transaction:
            # PostgreSQL reads the version as it was when the statement began. So the user is locked
            # before: whoever resets the memory in this moment is waited for.
            lock_user(transaction, claim.owner)
            transaction.execute(
                "record_failure",
                claim.owner,
                version=claim.version,
                position=position,
                state=state,
                error=error,
            )

    def release(self, claim: Claim) -> None:
        """Give a user back, so that other workers may claim the user.

        Nothing happens if another worker has claimed the user meanwhile.
        """
        with self._database.write_transaction() as transaction:
            transaction.execute("release_user", claim.owner, worker=claim.worker)

    def pause(self, owner: Owner, seconds: float) -> None:
        """Keep workers from claiming a user for some time, e.g. after a failure.

        A worker that asks for this user by name may still claim it. Nothing happens if a worker has
        claimed the user already.

        Args:
            owner: The user.
            seconds: How long; at most `MAX_LEASE`.
        """
        with self._database.write_transaction() as transaction:
            transaction.execute("pause_user", owner, seconds=min(seconds, MAX_LEASE))

    def requeue_failed(self, owner: Owner) -> int:
        """Queue all items of a user that were given up, as if they had never been tried.

        Returns:
            How many items there were.
        """
        with self._database.write_transaction() as transaction:
            lock_user(transaction, owner)
            return transaction.execute("requeue_failed", owner).rowcount


@dataclass(frozen=True)
class _ClaimRequest:
    """The arguments of `Queue.claim`: who wants to claim users, and which users."""

    worker: str
    lease: float
    stamp: Stamp
    states: list[str]
    """A user with an item in one of these states can be claimed."""
    includes_paused: bool
    limit: int
    limit_per_tenant: int | None


class _Candidate(NamedTuple):
    """A user who can be claimed."""

    rank: int
    """The number of the tenant's claimed users, if this one and those before it are claimed too."""
    claimed_until: float
    """When the last claim of the user ended; 0 for a user who was never claimed."""
    owner: Owner


def _count_claimed_users(transaction: Transaction) -> dict[str, int]:
    """Return how many users of each tenant workers have claimed now; paused users do not count."""
    rows = transaction.execute("count_claimed_users", max_lease=MAX_LEASE)
    return {row.tenant: row.users for row in rows}


def _claim_some(
    transaction: Transaction,
    request: _ClaimRequest,
    users_by_tenant: Mapping[str, Sequence[str]],
    claimed_counts: Mapping[str, int],
) -> list[Claim]:
    """Claim as many of these users as the request asks for, so that tenants take turns.

    Users of a tenant are ranked, counting those that are claimed already: if 2 are claimed now, the
    next one has rank 3, then 4, and so on. Low ranks come first, so a tenant with few claimed users
    is preferred. Of users with the same rank, the one whose last claim ended first is preferred.

    Args:
        transaction: The transaction that claims.
        request: Who wants to claim users.
        users_by_tenant: The users to choose from; a user may be named more than once.
        claimed_counts: How many users of a tenant are claimed now; 0 for a tenant that is left out.
    """
    candidates: list[_Candidate] = []
    for tenant, users in users_by_tenant.items():
        claimed_count = claimed_counts.get(tenant, 0)
        candidates.extend(_find_candidates(transaction, request, tenant, users, claimed_count))
    candidates.sort(key=attrgetter("rank", "claimed_until"))

    claims: list[Claim] = []
    for candidate in candidates:
        if len(claims) == request.limit:
            break
        # Candidates are sorted by rank, so all later ones are beyond the limit as well.
        if request.limit_per_tenant is not None and candidate.rank > request.limit_per_tenant:
            break
        claim = _claim_user(transaction, request, candidate.owner)
        # None if another worker has claimed the user in this very moment.
        if claim is not None:
            claims.append(claim)
    return claims


def _find_candidates(
    transaction: Transaction,
    request: _ClaimRequest,
    tenant: str,
    users: Sequence[str],
    claimed_count: int,
) -> list[_Candidate]:
    """Return the users of a tenant who can be claimed, with their ranks; at most `request.limit`.

    Users are ranked in the order in which they would be claimed, counting those that are claimed
    already: if 2 users of the tenant are claimed now, the next one has rank 3, then 4, and so on.
    The user whose last claim ended first is the next one.

    Args:
        transaction: The transaction that claims.
        request: Who wants to claim users.
        tenant: The tenant.
        users: The users to choose from; a user may be named more than once.
        claimed_count: How many users of the tenant are claimed now.
    """
    rows: list[Row[Any]] = []
    distinct_users = list(dict.fromkeys(users))
    for batch in batches(distinct_users):
        claimable_users = transaction.execute(
            "select_claimable_users",
            tenant=tenant,
            users=batch,
            worker=request.worker,
            includes_paused=request.includes_paused,
            max_lease=MAX_LEASE,
            states=request.states,
            writer=request.stamp.writer,
            embedder=request.stamp.embedder,
            schema=request.stamp.schema,
            limit=request.limit,
        )
        rows.extend(claimable_users)
    # Each batch is sorted by this time, but not all of them together.
    rows.sort(key=attrgetter("claimed_until"))

    candidates: list[_Candidate] = []
    for rank, row in enumerate(rows[: request.limit], claimed_count + 1):
        candidates.append(_Candidate(rank, row.claimed_until, Owner.stored(row.user, tenant)))
    return candidates


def _claim_user(transaction: Transaction, request: _ClaimRequest, owner: Owner) -> Claim | None:
    """Reserve one user for the worker; return None if another worker was faster.

    In PostgreSQL another worker may be claiming the same user at this moment. The statement does
    not wait for the locked row, but skips it.
    """
    version: str | None = transaction.execute(
        "claim_user",
        owner,
        worker=request.worker,
        lease=request.lease,
        includes_paused=request.includes_paused,
        max_lease=MAX_LEASE,
    ).scalar()
    if version is None:
        return None
    return Claim(owner, request.worker, version)


def _advance_version(
    transaction: Transaction, claim: Claim, next_version: str, lease: float
) -> bool:
    """Give a user's memory a new version, if it still has the version that a worker began with.

    Two workers may have begun with the same version. The first one to get here may store what it
    wrote. It also locks the user's row, so the second one waits until the first has committed, then
    finds another version, and may store nothing.

    Args:
        transaction: The transaction that commits the memory.
        claim: The user, and the version that the memory must have.
        next_version: The new version.
        lease: Seconds for which the claim is renewed; 0 gives the user back.

    Returns:
        Whether the memory had the version of the claim.
    """
    if lease:
        result = transaction.execute(
            "advance_version_and_renew_claim",
            claim.owner,
            old_version=claim.version,
            next_version=next_version,
            lease=min(lease, MAX_LEASE),
        )
    else:
        result = transaction.execute(
            "advance_version_and_release",
            claim.owner,
            old_version=claim.version,
            next_version=next_version,
            worker=claim.worker,
        )
    return result.rowcount > 0
