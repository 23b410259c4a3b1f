"""Writes the queued sessions of one user: claimed, written item by item, each stored before the next.

The memory of n items is what `program.remember` writes for the same n items, however they arrived: they are written
into the memory as it was before it was settled, and the settled one is kept beside it for questions; memories that
resume from their settled form (`Memory.resumed`) are the exception. An item that cannot be written is tried `ATTEMPTS`
times, then kept as `failed`, and its turns are searched; an unreachable endpoint is raised, and leaves it queued.
"""

from __future__ import annotations

import logging
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from dspy.utils.exceptions import LMError, LMInvalidRequestError
from pydantic_core import to_json

from ..errors import MempilerError
from ..memory.edits import Amendments, active_amendments, amendment_scope
from ..memory.deltas import delta
from ..memory.memory import Memory
from ..memory.stored import LONGEST_LEASE, Change, Claim, Document, Log, Owner, StoredItem
from ..programs.fold import StepResult, Steps, finalize_memory, retry_failed, run_step, write_item, write_items
from ..records import Failure, Item
from ..text import one_line
from .memories import Memories
from .memory_view import MemoryView
from .settings import LEASE

ATTEMPTS = 3
SHORT = 65_536
"""Characters of changes that a short memory may have before its text is written anew."""
AHEAD = 8
"""Queued items of one user that are prepared at once."""

_Version = tuple[Document, Memory, Memory]
"""A document, its memory and its settled memory."""
_log = logging.getLogger("mempiler")


@dataclass(frozen=True)
class WriteCounts:
    """What was written."""

    items: int = 0
    """Items that are in a memory now and were not before."""
    failures: tuple[Failure, ...] = ()

    def __add__(self, other: WriteCounts) -> WriteCounts:
        return WriteCounts(self.items + other.items, self.failures + other.failures)


def write_user_queue(
    memories: Memories,
    owner: Owner,
    lease: float = LEASE,
    stop: Callable[[], bool] = lambda: False,
    retry: bool = False,
) -> WriteCounts:
    """Remembers what is queued of one user, and waits for others who do; no longer than the lease.

    Args:
        memories: What writes.
        owner: The user.
        lease: Seconds after which another worker may take over if this one dies; at most `LONGEST_LEASE`.
        stop: Checked before every item; if True, the rest stays queued.
        retry: Whether turns that could not be taken in before are tried once more, however often they were.

    Raises:
        ProgramError: The user's memory was written by another program; `rebuild` is the remedy.
        StoreError: The store failed; everything before the last commit is there.
        LMError: The endpoint failed; what is not remembered stays queued.
    """
    store, worker, pause, done = memories.store, uuid.uuid4().hex, 0.02, WriteCounts()
    until = time.monotonic() + min(lease, LONGEST_LEASE)
    while not stop():
        claims = store.claim(worker, lease, memories.writer_fingerprint, owner, partial=retry)
        if claims:
            made, whole = write_claimed(memories, claims[0], lease, stop, retry)
            done, pause, retry = done + made, 0.02, False
            if whole:
                # Whatever came meanwhile, its caller waits for this user's claim.
                return done
            until = time.monotonic() + min(lease, LONGEST_LEASE)
            continue
        waiting = memories.read(owner).snapshot.waiting
        if all(stored.state == "failed" for stored in waiting) or time.monotonic() > until:
            return done
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)
    return done


def write_claimed(
    memories: Memories, claim: Claim, lease: float, stop: Callable[[], bool], retry: bool = False
) -> tuple[WriteCounts, bool]:
    """Remembers the queue of a claimed user as it is now, and gives the claim back.

    Returns:
        What was done, and whether nothing is left of the queue.
    """
    steps = None
    try:
        seen = memories.read(claim.owner)
        if seen.snapshot.version != claim.version:
            return WriteCounts(), False
        steps = _StoredSteps(memories, claim, seen, lease, stop)
        with memories.user_context(seen):
            whole = steps.write_queue(retry)
        return steps.done, whole
    finally:
        if steps is None or not steps.released:
            memories.store.release(claim)


class _StoredSteps(Steps):
    """One claimed user's memory while it is being written; what is carried on is whether to continue."""

    def __init__(
        self, memories: Memories, claim: Claim, seen: MemoryView, lease: float, stop: Callable[[], bool]
    ) -> None:
        self.memories, self.lease, self.stop = memories, lease, stop
        self.store, self.writer = memories.store, memories.program.method.writer
        self.claim, self.kept = claim, seen.cache
        self.document, self.memory, self.settled = seen.document, seen.memory, seen.finalized
        self.queued = [stored for stored in seen.snapshot.waiting if stored.state == "queued"]
        self.batch: deque[StoredItem] = deque()
        self.done = WriteCounts()
        self.released = False
        """Whether the last commit gave the claim back."""

    def write_queue(self, retry: bool) -> bool:
        """Remembers what is queued, a few items at a time; with `retry`, first what could not be taken in before."""
        going = not retry or self._retried()
        for start in range(0, len(self.queued), AHEAD):
            if not going or self.stop():
                return False
            self.batch = deque(self.queued[start : start + AHEAD])
            going = write_items([stored.item for stored in self.batch], going, self, finalize=False)
        return self.finalize(going)

    def run(self, work: Callable[[], Any]) -> StepResult:
        return _attempt(work)

    def write(self, state: bool, item: Item, extraction: StepResult) -> bool:
        """Writes one item, or gives it up; False if the work is to stop or the claim was lost."""
        stored, made = self.batch.popleft(), extraction
        if not state or self.stop():
            return False
        for attempt in range(stored.attempts + 1, ATTEMPTS + 1):
            if attempt > stored.attempts + 1 and self.writer.needs_extraction:
                [made] = self.extract([item])
            tried = made if made.error else _attempt(lambda made=made: self._written(stored, made.value))
            if tried.error is None:
                failures = (*made.failures, *tried.failures)
                last = stored is self.queued[-1] and not self.writer.needs_finalizing
                note = "; ".join(f"{failure.where}: {failure.message}" for failure in failures)
                whole = self._commit(tried.value, note, last)
                self.done += WriteCounts(int(whole), failures)
                return whole
            failure, given_up = self._failure(item.id, tried.error), attempt >= ATTEMPTS
            self.store.fail(self.claim, stored.position, failure.message, given_up)
            self.done += WriteCounts(0, (failure,) if given_up else ())
        return True

    def finalize(self, state: bool) -> bool:
        """Settles what was written; one that cannot be is kept as it is: trying for ever would hold up the queue."""
        if not state or self.document is None or self.document.settled_position >= self.document.position:
            return state
        with self._amended():
            made = _attempt(lambda: finalize_memory(self.writer, self.memory))
        settled = made.value if made.error is None else self.memory
        failures = made.failures if made.error is None else (self._failure("settle", made.error),)
        memory = self.memory.continue_from(settled)
        if self._commit(self._version(memory, settled, settled_position=self.document.position), last=True):
            self.done += WriteCounts(0, failures)
        return state

    def _written(self, stored: StoredItem, prepared: Any) -> _Version:
        with self._amended():
            memory = write_item(self.writer, self.memory, stored.item, prepared)
        position = max(stored.position, self.document.position if self.document else 0)
        speakers = [turn.speaker for turn in stored.item.turns]
        if self.writer.needs_finalizing:
            return self._version(memory, self.settled, speakers, position=position)
        return self._version(memory, memory, speakers, position=position, settled_position=position)

    def _retried(self) -> bool:
        """Tries once more what could not be taken in; false if the memory is somebody else's by now."""
        if self.document is None or not (self.memory.failed_items or self.settled.failed_items):
            return True
        with self._amended():
            made = _attempt(lambda: retry_failed(self.writer, self.memory, most=sys.maxsize))
        if made.error is not None:
            self.done += WriteCounts(0, (self._failure("retry", made.error),))
            return True
        self.done += WriteCounts(0, made.failures)
        position, behind = self.document.position, self.document.settled_position
        if not self.writer.needs_finalizing:
            return self._commit(self._version(made.value, made.value, settled_position=position))
        # What was taken in now is in no settled memory yet.
        return self._commit(self._version(made.value, self.settled, settled_position=min(behind, position - 1)))

    def _amended(self) -> AbstractContextManager[None]:
        """What the writer shows of the memory is what its user left of it, by now."""
        rows = active_amendments(self.store.amendments(self.claim.owner)) if self.writer.shows_entries else ()
        return amendment_scope(Amendments(rows)) if rows else nullcontext()

    def _version(self, memory: Memory, settled: Memory, speakers: Sequence[str] = (), **positions: int) -> _Version:
        """What is to be stored next: with what changed since the version before, or with its whole text."""
        document = self.document or Document("", 0, None, 0, (), self.memories.writer_fingerprint)
        partial = dict.fromkeys(each.item.id for one in (memory, settled) for each in one.failed_items)
        speakers = tuple(dict.fromkeys((*document.speakers, *speakers)))
        document = replace(
            document, speakers=speakers, partial=tuple(partial), stamp=self.memories.writer_fingerprint, **positions
        )
        log, other = document.log, settled if self.writer.needs_finalizing else None
        if self.document is not None:
            moved = None if other is None or other is self.settled else to_json(delta(memory, other)).decode()
            change = Change(to_json(delta(self.memory, memory)).decode(), moved)
            changes = log.changes + len(change.memory) + len(change.settled or "")
            if changes <= max(log.text, SHORT):
                log = replace(log, changes=changes, count=log.count + 1)
                return replace(document, memory="", settled=None, change=change, log=log), memory, settled
        text, rest = memory.model_dump_json(), None if other is None else other.model_dump_json()
        log = Log(uuid.uuid4().hex, len(text) + len(rest or ""))
        return replace(document, memory=text, settled=rest, change=None, log=log), memory, settled

    def _commit(self, version: _Version, note: str = "", last: bool = False) -> bool:
        """Stores what was written; False if the claim was lost. The last commit gives it back."""
        claim = self.store.commit(self.claim, version[0], 0.0 if last else self.lease, note)
        if claim is None:
            self.memories.drop(self.claim.owner)
            return False
        self.claim, self.released = claim, last
        self.document, self.memory, self.settled = version
        self.memories.cache_memory(self.kept, claim.version, *version)
        return True

    def _failure(self, where: str, error: Exception) -> Failure:
        message = f"{type(error).__name__}: {one_line(error)}"[:300]
        _log.warning("writing %r of user %r: %s", where, self.claim.owner.user, message)
        return Failure(kind="error", where=where, message=message)


def _attempt(work: Callable[[], Any]) -> StepResult:
    """Takes a step of a writer; what is the item's fault is kept, what is the endpoint's or the store's is raised."""
    try:
        return run_step(work)
    except LMInvalidRequestError as error:
        return StepResult(error=error)
    except (LMError, MempilerError):
        raise
    except Exception as error:
        return StepResult(error=error)
