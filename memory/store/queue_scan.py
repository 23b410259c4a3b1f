"""Which users a worker may claim: goes through the queues of all tenants, a part at a time.

A *queue* holds the users of one tenant who have items in one state, `queued` or `partial`. It may
hold more users than a claim can look at: most of them may be claimed by other workers, or paused,
or have a memory of another program. So a scan looks at the next `PART_SIZE` users of every queue,
and the caller decides whether somebody among them can be claimed, or whether it asks for the next
part. Where a scan stops, the next one goes on, so that the end of a long queue is reached as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .database import Transaction

PART_SIZE = 64
"""How many users of each queue are looked at together."""


class _QueueKey(NamedTuple):
    """Names the queue of a tenant's users with items in a state."""

    state: str
    tenant: str


class QueueScan:
    """Goes through the queues, and remembers where it stopped.

    Threads that scan at the same time share the work: each goes on where another one stopped.
    """

    def __init__(self) -> None:
        self._last_users: dict[_QueueKey, str] = {}
        """The last user that was looked at in each queue that was not gone through to its end."""

    def parts(
        self, transaction: Transaction, states: Sequence[str]
    ) -> Iterator[dict[str, list[str]]]:
        """Yield users who wait for a worker, by tenant, a part at a time.

        A user waits with an item in one of the states, or with a memory that is still to be
        finalized (all of these are in the first part). Each part has the next `PART_SIZE` users of
        every queue. The parts end when all queues were gone through. A user may come twice.

        Args:
            transaction: The transaction that claims users.
            states: The states of items that a worker can do something about, e.g. `queued`.
        """
        users_by_tenant = _users_to_finalize(transaction)
        passes_left = self._count_passes(transaction, states)

        while users_by_tenant or passes_left:
            for queue in list(passes_left):
                users = self._next_users(transaction, queue)
                users_by_tenant.setdefault(queue.tenant, []).extend(users)
                is_at_end = len(users) < PART_SIZE
                if is_at_end:
                    passes_left[queue] -= 1
                    if passes_left[queue] == 0:
                        del passes_left[queue]

            yield users_by_tenant
            users_by_tenant = {}

    def _count_passes(
        self, transaction: Transaction, states: Sequence[str]
    ) -> dict[_QueueKey, int]:
        """Return how often each queue must be read to its end until all of its users were seen.

        This is once for a queue that is read from its beginning. If the last scan stopped in the
        middle of a queue, it is read from there to the end, and then once more from its beginning.
        """
        passes: dict[_QueueKey, int] = {}
        for state in states:
            for tenant in transaction.execute("select_tenants_with_state", state=state).scalars():
                queue = _QueueKey(state, tenant)
                passes[queue] = 2 if queue in self._last_users else 1
        return passes

    def _next_users(self, transaction: Transaction, queue: _QueueKey) -> Sequence[str]:
        """Return the next `PART_SIZE` users of a queue, in the order of their names.

        Each call goes on where the last one stopped. There are fewer users at the end of the queue;
        then the next call begins with the first user again.
        """
        last_user = self._last_users.pop(queue, "")
        rows = transaction.execute(
            "select_users_with_state",
            state=queue.state,
            tenant=queue.tenant,
            last_user=last_user,
            limit=PART_SIZE,
        )
        users: Sequence[str] = rows.scalars().all()
        is_at_end = len(users) < PART_SIZE
        if not is_at_end:
            self._last_users[queue] = users[-1]
        return users


def _users_to_finalize(transaction: Transaction) -> dict[str, list[str]]:
    """Return the users whose memory has items that its finalized form lacks, by tenant.

    Questions are answered from the finalized form, so a worker has to finalize these memories.
    """
    users_by_tenant: dict[str, list[str]] = {}
    for row in transaction.execute("select_users_to_finalize"):
        users_by_tenant.setdefault(row.tenant, []).append(row.user)
    return users_by_tenant
