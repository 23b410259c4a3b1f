"""Writing what is queued of one user: claimed, written item by item, each stored before the next one is taken.

    claim ── prepare a few items at once ── write one, commit ── write the next, commit ── ... ── settle, commit

Every commit stores the memory together with the state of the items in it, and only if that memory did not change
meanwhile: a killed worker loses the item it was writing, and the next worker writes it again. Language models are
called outside transactions.

The memory of n items is what `program.remember` writes for the same n items, however they arrived: items are written
into the memory as it was before it was settled, and the settled one is kept beside it for questions. Memories that
resume from their settled form (`Memory.resumed`) are the exception: what they become depends on where they settled.

An item that cannot be written (the model refuses it, the method fails) is tried `ATTEMPTS` times, then kept as
`failed`: its turns are still searched, and a rebuild retries it. An unreachable endpoint does not count: the item stays
queued, and the error is raised.
"""

from __future__ import annotations

import logging
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dspy.utils.exceptions import LMError, LMInvalidRequestError

from ..errors import MempilerError, one_line
from ..memory.amending import Amendments, in_force, writing_under
from ..memory.memory import Memory
from ..memory.stored import LONGEST_LEASE, Claim, Document, Log, Owner, StoredItem
from ..programs.fold import Performed, fold, perform
from ..programs.gather import gather
from ..programs.retry import again, close, take
from ..records import Failure, Item
from .documents import check, written
from .memories import Memories, keep
from .view import View

LEASE = 120.0
"""Seconds without a commit after which a worker's claim ends."""
ATTEMPTS = 3
AHEAD = 8
"""Queued items of one user that are prepared at once."""

_log = logging.getLogger("mempiler")


@dataclass(frozen=True)
class Remembered:
    """What was written."""

    items: int = 0
    """Items that are in a memory now and were not before."""
    failures: tuple[Failure, ...] = ()

    def __add__(self, other: Remembered) -> Remembered:
        return Remembered(self.items + other.items, self.failures + other.failures)


class Drained(NamedTuple):
    """What was done of a queue."""

    done: Remembered
    whole: bool
    """Whether nothing is left of it."""


def remember_user(
    memories: Memories,
    owner: Owner,
    lease: float = LEASE,
    stop: Callable[[], bool] = lambda: False,
    retry: bool = False,
) -> Remembered:
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
    store, worker, pause = memories.store, uuid.uuid4().hex, 0.02
    partial = retry and any(one.partial for one in store.users(owner.tenant, owner.user))
    done = retry_partial(memories, owner, lease, stop) if partial else Remembered()
    until = time.monotonic() + min(lease, LONGEST_LEASE)
    while not stop():
        claim = store.claim(worker, lease, memories.stamp, owner)
        if claim is not None:
            drained = write_claimed(memories, claim, lease, stop)
            done, pause = done + drained.done, 0.02
            if drained.whole:
                # Whatever came meanwhile, its caller waits for this user's claim.
                return done
            until = time.monotonic() + min(lease, LONGEST_LEASE)
            continue
        if not _busy(memories, owner) or time.monotonic() > until:
            return done
        time.sleep(pause)
        pause = min(1.0, pause * 1.5)
    return done


def retry_partial(memories: Memories, owner: Owner, lease: float, stop: Callable[[], bool]) -> Remembered:
    """Tries once more what could not be taken in of a user, unless somebody else writes them."""
    worker, stamp = uuid.uuid4().hex, memories.stamp
    claim = None if stop() else memories.store.claim(worker, lease, stamp, owner, partial=True)
    if claim is None:
        return Remembered()
    return write_claimed(memories, claim, lease, stop, retry=True).done


def write_claimed(
    memories: Memories,
    claim: Claim,
    lease: float,
    stop: Callable[[], bool],
    retry: bool = False,
) -> Drained:
    """Remembers the queue of a claimed user as it is now, and gives the claim back."""
    steps = None
    try:
        seen = memories.read(claim.owner)
        if seen.snapshot.version != claim.version:
            return Drained(Remembered(), whole=False)
        steps = _StoredSteps(memories, claim, seen, lease, stop)
        with memories.at_work(seen, claim.owner):
            return steps.run(retry)
    finally:
        if steps is None or not steps.released:
            memories.store.release(claim)


def _busy(memories: Memories, owner: Owner) -> bool:
    """Whether another worker still has something to do for a user."""
    snapshot = memories.store.read(owner, lambda version: True)
    if snapshot.stamp is not None:
        check(snapshot.stamp, memories.stamp, owner, memories.store.url)
    return any(stored.state != "failed" for stored in snapshot.waiting)


class _StoredSteps:
    """One claimed user's memory while it is being written; the result is whether to continue."""

    def __init__(self, memories: Memories, claim: Claim, seen: View, lease: float, stop: Callable[[], bool]) -> None:
        self.memories, self.lease, self.stop = memories, lease, stop
        self.store, self.writer = memories.store, memories.program.method.writer
        self.claim, self.kept = claim, seen.kept
        self.queued = [stored for stored in seen.snapshot.waiting if stored.state == "queued"]
        self.batch: deque[StoredItem] = deque()
        self.memory, self.settled = seen.memory, seen.settled
        self.document = seen.document
        self.done = Remembered()
        self.released = False
        """Whether the last commit gave the claim back."""

    def run(self, retry: bool = False) -> Drained:
        """Remembers what is queued, a few items at a time; with `retry`, first what could not be taken in before."""
        going = self._retried() if retry else True
        for start in range(0, len(self.queued), AHEAD):
            self.batch.extend(self.queued[start : start + AHEAD])
            going = going and not self.stop()
            if going:
                going = fold([stored.item for stored in self.batch], going, self, settle=False)
        return Drained(self.done, whole=fold((), going, self))

    def prepare(self, items: Sequence[Item]) -> Sequence[Performed]:
        return gather([lambda item=item: _attempt(lambda: self.writer.prepare(item)) for item in items])

    def write(self, state: bool, item: Item, prepared: Performed) -> bool:
        """Writes one item, or gives it up; False if the work is to stop or the claim was lost."""
        stored = self.batch.popleft()
        if not state or self.stop():
            return False
        made = prepared
        for attempt in range(stored.attempts + 1, ATTEMPTS + 1):
            if attempt > stored.attempts + 1 and self.writer.prepares:
                [made] = self.prepare([item])
            tried = made if made.error else _attempt(lambda made=made: self._written(stored, made))
            if tried.error is None:
                failures = (*made.failures, *tried.failures)
                document, memory = tried.value
                settled = self.settled if self.writer.settles else memory
                last = stored is self.queued[-1] and not self.writer.settles
                note = "; ".join(f"{failure.where}: {failure.message}" for failure in failures)
                whole = self._commit(document, memory, settled, note, last)
                self.done += Remembered(int(whole), failures)
                return whole
            self._failed(stored, tried.error, attempt >= ATTEMPTS)
        return True

    def _written(self, stored: StoredItem, prepared: Performed) -> tuple[Document, Memory]:
        with self._amended():
            memory = take(self.writer, self.memory, stored.item, prepared.value)
        before, plain = self.document, not self.writer.settles
        speakers = before.speakers if before else ()
        position = max(stored.position, before.position if before else 0)
        document = Document(
            memory="",
            position=position,
            settled=None,
            settled_position=position if plain else before.settled_position if before else 0,
            speakers=tuple(dict.fromkeys((*speakers, *(turn.speaker for turn in stored.item.turns)))),
            stamp=self.memories.stamp,
            log=before.log if before else Log(),
        )
        return self._document(document, memory, memory if plain else self.settled), memory

    def _retried(self) -> bool:
        """Tries once more what could not be taken in; false if the memory is somebody else's by now."""
        if self.document is None or not (self.memory.unwritten or self.settled.unwritten):
            return True
        with self._amended():
            made = _attempt(lambda: again(self.writer, self.memory, most=sys.maxsize))
        if made.error is not None:
            self.done += Remembered(0, (Failure(kind="error", where="retry", message=_one_line(made.error)),))
            return True
        memory, plain = made.value, not self.writer.settles
        # What was taken in now is in no settled memory yet.
        behind = self.document.position if plain else min(self.document.settled_position, self.document.position - 1)
        settled = memory if plain else self.settled
        document = self._document(replace(self.document, settled_position=behind), memory, settled)
        self.done += Remembered(0, made.failures)
        return self._commit(document, memory, settled)

    def settle(self, state: bool) -> bool:
        """Settles what was written; one that cannot be is kept as it is: trying for ever would hold up the queue."""
        if not state or self.document is None or self.document.settled_position >= self.document.position:
            return state
        with self._amended():
            made = _attempt(lambda: close(self.writer, self.memory))
        failures = made.failures
        if made.error is not None:
            failures = (*failures, Failure(kind="error", where="settle", message=_one_line(made.error)))
            _log.warning("settling the memory of user %r failed: %s", self.claim.owner.user, _one_line(made.error))
        settled = self.memory if made.error is not None else made.value
        memory = self.memory.resumed(settled)
        document = replace(self.document, settled_position=self.document.position)
        document = self._document(document, memory, settled)
        if self._commit(document, memory, settled, last=True):
            self.done += Remembered(0, failures)
        return state

    def _amended(self) -> AbstractContextManager[None]:
        """What the writer shows of the memory is what its user left of it, by now."""
        rows = in_force(self.store.amendments(self.claim.owner)) if self.writer.relates else ()
        return writing_under(Amendments(rows) if rows else None)

    def _document(self, document: Document, memory: Memory, settled: Memory) -> Document:
        """The document with what is new in it; settled memories that are not there, or no others, are not told."""
        before = (self.memory, self.settled) if self.document else None
        ever = document.settled_position or (self.document and self.document.settled_position)
        return written(document, before, memory, settled if self.writer.settles and ever else None)

    def _commit(self, document: Document, memory: Memory, settled: Memory, note: str = "", last: bool = False) -> bool:
        """Stores what was written; False if the claim was lost. The last commit gives it back."""
        partial = dict.fromkeys(each.item.id for one in (memory, settled) for each in one.unwritten)
        document = replace(document, partial=tuple(partial))
        claim = self.store.commit(self.claim, document, 0.0 if last else self.lease, note)
        if claim is None:
            self.memories.drop(self.claim.owner)
            return False
        self.claim, self.document, self.memory, self.settled = claim, document, memory, settled
        self.released = last
        keep(self.kept, claim.version, document, memory, settled)
        return True

    def _failed(self, stored: StoredItem, error: Exception, give_up: bool) -> None:
        message = _one_line(error)
        _log.warning("session %r of user %r: %s", stored.item.id, self.claim.owner.user, message)
        self.store.fail(self.claim, stored.position, message, give_up)
        if give_up:
            self.done += Remembered(0, (Failure(kind="error", where=stored.item.id, message=message),))


def _attempt(work: Callable[[], Any]) -> Performed:
    """Takes a step of a writer; what is the item's fault is kept, what is the endpoint's or the store's is raised."""
    try:
        return perform(work)
    except LMInvalidRequestError as error:
        return Performed(error=error)
    except (LMError, MempilerError):
        raise
    except Exception as error:
        return Performed(error=error)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"[:300]
