"""Write the queued sessions of one user into the user's memory.

    counts = write_user_queue(memories, owner)      # counts.items, counts.failures

The queue is claimed, so that no other worker writes it. Its items are written one by one, and each
is stored before the next is written: a killed worker loses at most the item at hand.

The memory of n items is what `program.remember` writes for the same n items, however they arrived.
So items are written into the memory as it was before it was finalized, and the finalized memory is
kept beside it for questions. Memories that continue from their finalized form
(`Memory.continue_from`) are the exception.

An item that cannot be written is tried `ATTEMPTS` times and then kept as `failed`; its turns are
searched as they were said. If the endpoint cannot be reached, that is raised, and the item stays
queued.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from ...memory.store.owner import Owner
from ...memory.store.records import MAX_LEASE
from ..settings import LEASE
from .memories import Memories
from .queue_writer import WriteCounts, write_claimed

FIRST_PAUSE = 0.02
MAX_PAUSE = 1.0
"""Seconds between two looks at a queue that another worker holds; the pause grows."""


def write_user_queue(
    memories: Memories,
    owner: Owner,
    lease: float = LEASE,
    stop: Callable[[], bool] = lambda: False,
    retry: bool = False,
) -> WriteCounts:
    """Write what is queued of one user; wait for other workers that do, at most for the lease.

    Args:
        memories: What writes.
        owner: The user.
        lease: Seconds after which another worker may take over if this one dies; at most
            `MAX_LEASE`.
        stop: Called before every item; if it returns True, the rest stays queued.
        retry: Whether failed turns are tried once more, however often they were.

    Raises:
        ProgramError: The user's memory was written by another program; `rebuild` is the remedy.
        StoreError: The store failed; everything before the last commit is there.
        LMError: The endpoint failed; what is not written stays queued.
    """
    store = memories.store
    worker = uuid.uuid4().hex
    counts = WriteCounts()
    pause = FIRST_PAUSE
    deadline = _deadline(lease)
    while not stop():
        claims = store.queue.claim(
            worker, lease, memories.writer_fingerprint, owner, includes_partial=retry
        )
        if claims:
            result = write_claimed(memories, claims[0], lease, stop, retry)
            counts += result.counts
            if result.is_finished:
                # Whoever queued something meanwhile waits for a claim of their own.
                return counts
            pause = FIRST_PAUSE
            retry = False
            deadline = _deadline(lease)
            continue

        pending_items = memories.read(owner).snapshot.pending_items
        is_queue_empty = all(stored.state == "failed" for stored in pending_items)
        if is_queue_empty or time.monotonic() > deadline:
            return counts
        time.sleep(pause)
        pause = min(MAX_PAUSE, pause * 1.5)
    return counts


def _deadline(lease: float) -> float:
    """Return when to stop waiting for another worker, on the clock of `time.monotonic`."""
    return time.monotonic() + min(lease, MAX_LEASE)
