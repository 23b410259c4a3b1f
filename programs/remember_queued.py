"""The worker: remembers the queued items of a store.

    claim a user ── prepare the queued items ── write one, commit ── write the next, commit ── ... ── settle, commit

Items of one user are written in the order in which they came; users are written at the same time, each in a thread of
its own, and take turns where calls of the language model have to wait (`engines.lanes`). Every commit stores the memory
together with the state of the items in it, and only if that memory did not change meanwhile: a killed worker loses the
item it was writing, and the next worker writes it again. Language models are called outside transactions.

The memory of n items is what `program.remember` writes for the same n items, however they arrived: items are written
into the memory as it was before it was settled, and the settled one is kept beside it for questions. Memories that
resume from their settled form (`Memory.resumed`) are the exception: what they become depends on where they settled.

The steps of one user are those of `programs.stored_steps`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import dspy

from ..engines.lanes import taking_turns
from ..engines.vectors import kept_on
from ..memory.store import Store
from ..memory.stored import LONGEST_LEASE, Claim, Owner, Stamp
from .crew import AT_ONCE, Crew, all_of
from .leavings import leaving_nothing
from .live import check, shelf, stamp_of, view
from .program import MemoryProgram
from .stored_steps import Drained, Remembered, StoredSteps

LEASE = 120.0
"""Seconds without a commit after which a worker's claim ends."""
CLAIMED = 8
"""Most users that are claimed at once: what comes to a store is shared among the processes that write it."""
LOOK = 1.0
"""Seconds between two looks for further users, while some are written."""


def remember_queued(
    store: Store,
    program: MemoryProgram,
    owner: Owner | None = None,
    lm: Any = None,
    lease: float = LEASE,
    stop: Callable[[], bool] = lambda: False,
    retry: bool = False,
) -> Remembered:
    """Remembers queued items until no unclaimed one is left, those of many users at the same time.

    Of one user it waits for other workers, and no longer than the lease: what they have not written by then stays
    queued for them, or for the next call.

    Args:
        store: Holds the queue.
        program: Writes the memories.
        owner: Only this user's; of any user if None.
        lm: The language model; that of `dspy.settings` if None.
        lease: Seconds after which another worker may take over if this one dies; at most `LONGEST_LEASE`.
        stop: Checked before every item; if True, the rest stays queued.
        retry: Whether turns that could not be taken in before are tried once more, however often they were.

    Raises:
        ProgramError: The user's memory was written by another program; `rebuild` is the remedy. Without `owner` such
            users are passed over.
        StoreError: The store failed; everything before the last commit is there.
        LMError: The endpoint failed for somebody; what is not remembered stays queued, of the others too.
    """
    if owner is not None:
        return _remember_one(store, program, owner, lm, lease, stop, retry)
    done = Remembered()
    with Crew[Remembered]() as crew:

        def stopping() -> bool:
            return crew.stopping or stop()

        if retry:
            again = [one.owner for one in store.users() if one.partial]
            jobs = [lambda one=one: _retried(store, program, one, lm, lease, stopping) for one in again]
            done = sum(all_of(jobs, crew=crew), done)
        writers = Writers(store, program, lm, lease, stopping, crew)
        while writers.begin() or crew.busy:
            done = sum((one.result() for one in writers.ended(LOOK)), done)
    return done


class Writers:
    """Writes whoever has something queued, many users at the same time; driven by one thread.

    Args:
        store: Holds the queue.
        program: Writes the memories.
        lm: The language model; that of `dspy.settings` if None.
        lease: Seconds after which another worker may take over a user if this one dies.
        stop: Checked before every item; if True, the rest stays queued.
        crew: The threads that write.
    """

    def __init__(
        self,
        store: Store,
        program: MemoryProgram,
        lm: Any = None,
        lease: float = LEASE,
        stop: Callable[[], bool] = lambda: False,
        crew: Crew[Remembered] | None = None,
    ) -> None:
        self._store, self._program, self._lm, self._lease, self._stop = store, program, lm, lease, stop
        self.crew = crew or Crew(AT_ONCE)

    def begin(self, most: int | None = None) -> int:
        """Claims users while there is room, so many at most, and begins to write each; returns how many."""
        begun, stamp = 0, stamp_of(self._program)
        most = self.crew.room if most is None else min(most, self.crew.room)
        while begun < most and not self._stop():
            claims = self._store.claim_many(min(most - begun, CLAIMED), self._lease, stamp)
            for claim in claims:
                self.crew.begin(lambda claim=claim: self._write(claim, stamp))
            if not claims:
                break
            begun += len(claims)
        return begun

    def ended(self, timeout: float | None = None) -> list[Future[Remembered]]:
        """What was done for users who are through, or why they are not; waits for one, so many seconds at most."""
        return self.crew.ended(timeout)

    def _write(self, claim: Claim, stamp: Stamp) -> Remembered:
        with writing_context(self._program, self._lm):
            return _drained(self._store, self._program, claim, stamp, self._lease, self._stop, self._lm).done


def _remember_one(
    store: Store, program: MemoryProgram, owner: Owner, lm: Any, lease: float, stop: Callable[[], bool], retry: bool
) -> Remembered:
    """Remembers what is queued of one user, and waits for others who do."""
    worker, stamp, pause = uuid.uuid4().hex, stamp_of(program), 0.02
    partial = retry and any(one.partial for one in store.users(owner.tenant, owner.user))
    done = _retried(store, program, owner, lm, lease, stop) if partial else Remembered()
    until = time.monotonic() + min(lease, LONGEST_LEASE)
    while not stop():
        claim = store.claim(worker, lease, stamp, owner)
        if claim is not None:
            with writing_context(program, lm):
                drained = _drained(store, program, claim, stamp, lease, stop, lm)
            done, pause = done + drained.done, 0.02
            if drained.whole:
                # Whatever came meanwhile, its caller waits for this user's claim.
                return done
            until = time.monotonic() + min(lease, LONGEST_LEASE)
            continue
        if not _busy(store, stamp, owner) or time.monotonic() > until:
            return done
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)
    return done


def _retried(
    store: Store, program: MemoryProgram, owner: Owner, lm: Any, lease: float, stop: Callable[[], bool]
) -> Remembered:
    """Tries once more what could not be taken in of a user, unless somebody else writes them."""
    stamp = stamp_of(program)
    claim = None if stop() else store.claim(uuid.uuid4().hex, lease, stamp, owner, partial=True)
    if claim is None:
        return Remembered()
    with writing_context(program, lm):
        return _drained(store, program, claim, stamp, lease, stop, lm, retry=True).done


@contextmanager
def writing_context(program: MemoryProgram, lm: Any = None) -> Generator[None]:
    """The settings under which live memories are written and asked.

    What users say goes into no trace, history or cache of DSPy's: forgetting must remove it.
    """
    lm = lm or dspy.settings.lm
    if getattr(lm, "cache", False):
        lm = lm.copy(cache=False)
    with dspy.context(lm=lm, adapter=program.asking(), trace=None, usage_tracker=None, disable_history=True):
        yield


def _busy(store: Store, stamp: Stamp, owner: Owner) -> bool:
    """Whether another worker still has something to do for a user."""
    snapshot = store.read(owner, lambda version: True)
    if snapshot.stamp is not None:
        check(snapshot.stamp, stamp, owner, store.url)
    return any(stored.state != "failed" for stored in snapshot.waiting)


def _drained(
    store: Store,
    program: MemoryProgram,
    claim: Claim,
    stamp: Stamp,
    lease: float,
    stop: Callable[[], bool],
    lm: Any,
    retry: bool = False,
) -> Drained:
    """Remembers the queue of a claimed user as it is now, and gives the claim back."""
    with leaving_nothing(program, store, lm), taking_turns(claim.owner):
        steps = None
        try:
            seen = view(program, store, claim.owner, stamp)
            if seen.snapshot.version != claim.version:
                return Drained(Remembered(), whole=False)
            steps = StoredSteps(store, program, claim, stamp, seen, lease, stop)
            with kept_on(shelf(program, store, seen)):
                return steps.run(retry)
        finally:
            if steps is None or not steps.released:
                store.release(claim)
