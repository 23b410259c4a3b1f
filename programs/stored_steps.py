"""The steps of writing one claimed user's memory: each is stored before the next one is taken.

    queued items ── prepare a few at once ── write one, commit ── write the next, commit ── ... ── settle, commit

An item that cannot be written (the model refuses it, the method fails) is tried `ATTEMPTS` times, then kept as
`failed`: its turns are still searched, and a rebuild retries it. An unreachable endpoint does not count: the item stays
queued, and the error is raised.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dspy.utils.exceptions import LMError, LMInvalidRequestError

from ..errors import MempilerError
from ..memory.amending import Amendments, in_force
from ..memory.hiding import writing_under
from ..memory.memory import Memory
from ..memory.store import Store
from ..memory.stored import Claim, Document, Log, Stamp, StoredItem
from ..records import Failure, Item
from .fold import Performed, fold, perform
from .gather import gather
from .live import View, drop, keep, told
from .program import MemoryProgram
from .retry import again, close, take

ATTEMPTS = 3
AHEAD = 8
"""Queued items of one user that are prepared at once."""

_log = logging.getLogger("mempiler")


@dataclass(frozen=True)
class Remembered:
    """What one call of `remember_queued` did."""

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


class StoredSteps:
    """One claimed user's memory while it is being written; the result is whether to continue."""

    def __init__(
        self,
        store: Store,
        program: MemoryProgram,
        claim: Claim,
        stamp: Stamp,
        seen: View,
        lease: float,
        stop: Callable[[], bool],
    ) -> None:
        self.store, self.program, self.stamp, self.lease, self.stop = store, program, stamp, lease, stop
        self.writer = program.method.writer
        self.claim = claim
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

    def prepare(self, items: Sequence[Item]) -> Sequence[_Tried]:
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
            written = made if _error(made) else _attempt(lambda made=made: self._written(stored, made))
            error = _error(written)
            if error is None:
                failures = (*made.failures, *written.failures)
                self.done += Remembered(0, failures)
                document, memory = written.value
                last = stored is self.queued[-1] and not self.writer.settles
                return self._store_item(document, memory, failures, last)
            self._failed(stored, error, attempt >= ATTEMPTS)
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
            stamp=self.stamp,
            log=before.log if before else Log(),
        )
        return self._told(document, memory, memory if plain else self.settled), memory

    def _store_item(self, document: Document, memory: Memory, failures: Sequence[Failure], last: bool) -> bool:
        note = "; ".join(f"{failure.where}: {failure.message}" for failure in failures)
        if not self._commit(document, memory, self.settled if self.writer.settles else memory, note, last):
            return False
        self.done += Remembered(1)
        return True

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
        document = self._told(replace(self.document, settled_position=behind), memory, settled)
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
        document = self._told(document, memory, settled)
        if self._commit(document, memory, settled, last=True):
            self.done += Remembered(0, failures)
        return state

    def _amended(self) -> AbstractContextManager[None]:
        """What the writer shows of the memory is what its user left of it, by now."""
        rows = in_force(self.store.amendments(self.claim.owner)) if self.writer.relates else ()
        reader, memory = self.program.method.reader, self.memory
        # Made where an amendment asks for them, which most do not.
        entries = (entry for each in (memory,) for entry in reader.entries(each))
        return writing_under(Amendments(rows, entries) if rows else None)

    def _told(self, document: Document, memory: Memory, settled: Memory) -> Document:
        """The document with what is new in it; settled memories that are not there, or no others, are not told."""
        before = (self.memory, self.settled) if self.document else None
        ever = document.settled_position or (self.document and self.document.settled_position)
        return told(document, before, memory, settled if self.writer.settles and ever else None)

    def _commit(self, document: Document, memory: Memory, settled: Memory, note: str = "", last: bool = False) -> bool:
        """Stores what was written; False if the claim was lost. The last commit gives it back."""
        document = replace(document, partial=_left_in(memory, settled))
        claim = self.store.commit(self.claim, document, 0.0 if last else self.lease, note)
        if claim is None:
            drop(self.program, self.store, self.claim.owner)
            return False
        self.claim, self.document, self.memory, self.settled = claim, document, memory, settled
        self.released = last
        keep(self.program, self.store, claim.owner, claim.version, (document, memory, settled))
        return True

    def _failed(self, stored: StoredItem, error: Exception, give_up: bool) -> None:
        message = _one_line(error)
        _log.warning("session %r of user %r: %s", stored.item.id, self.claim.owner.user, message)
        self.store.fail(self.claim, stored.position, message, give_up)
        if give_up:
            self.done += Remembered(0, (Failure(kind="error", where=stored.item.id, message=message),))


def _left_in(*memories: Memory) -> tuple[str, ...]:
    """The ids of the items of which turns could not be taken in."""
    return tuple(dict.fromkeys(each.item.id for memory in memories for each in memory.unwritten))


@dataclass(frozen=True)
class _Tried(Performed):
    """A step that may have failed for the item's own sake."""

    error: Exception | None = None


def _error(step: Performed) -> Exception | None:
    return step.error if isinstance(step, _Tried) else None


def _attempt(work: Callable[[], Any]) -> _Tried:
    """Takes a step of a writer; what is the item's fault is kept, what is the endpoint's or the store's is raised."""
    try:
        done = perform(work)
    except LMInvalidRequestError as error:
        return _Tried(error=error)
    except (LMError, MempilerError):
        raise
    except Exception as error:
        return _Tried(error=error)
    return _Tried(done.value, done.calls, done.failures)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
