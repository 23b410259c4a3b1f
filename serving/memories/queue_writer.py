"""Write the queue of one user, whom this worker has claimed."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from dspy.utils.exceptions import LMError, LMInvalidRequestError
from pydantic_core import to_json

from ...errors import MempilerError
from ...memory.changes import diff
from ...memory.edits import Amendments, active_amendments, amendment_scope
from ...memory.memory import Memory
from ...memory.store.documents import ChangeLog, Document, MemoryChange
from ...memory.store.records import Claim, StoredItem
from ...programs.retry import retry_failed
from ...programs.threads import gather
from ...programs.writing import (
    NO_EXTRACTION,
    StepResult,
    extract_item,
    finalize_memory,
    record_step,
    write_item,
)
from ...records import Failure, Item
from ...text import one_line
from .memories import Memories
from .view import MemoryView

T = TypeVar("T")

ATTEMPTS = 3
"""How often an item is tried before it is given up."""

SHORT = 65_536
"""Characters of changes that a short memory may have before its text is written anew."""

AHEAD = 8
"""Queued items of one user that are extracted at the same time."""

MAX_MESSAGE_LENGTH = 300
"""Most characters of a failure's message."""


_log = logging.getLogger("mempiler")


@dataclass(frozen=True)
class WriteCounts:
    """What was written."""

    items: int = 0
    """Items that are in a memory now and were not before."""
    failures: tuple[Failure, ...] = ()

    def __add__(self, other: WriteCounts) -> WriteCounts:
        return WriteCounts(self.items + other.items, self.failures + other.failures)


class ClaimResult(NamedTuple):
    """What was done with one claimed queue."""

    counts: WriteCounts
    is_finished: bool
    """Whether nothing that was queued when it was claimed is left."""


def write_claimed(
    memories: Memories,
    claim: Claim,
    lease: float,
    stop: Callable[[], bool],
    retry: bool = False,
) -> ClaimResult:
    """Write the queue of a claimed user as it is now, and give the claim back."""
    queue_writer = None
    try:
        view = memories.read(claim.owner)
        if view.snapshot.version != claim.version:
            return ClaimResult(WriteCounts(), is_finished=False)

        queue_writer = _QueueWriter(memories, claim, view, lease, stop)
        with memories.user_context(view):
            is_finished = queue_writer.write_queue(retry)
        return ClaimResult(queue_writer.counts, is_finished)
    finally:
        if queue_writer is None or not queue_writer.released:
            memories.store.queue.release(claim)


@dataclass(frozen=True)
class _Attempt(Generic[T]):
    """One attempt at a step of a writer: its result, or the error that the item is to blame for."""

    result: StepResult[T] | None = None
    error: Exception | None = None


@dataclass(frozen=True)
class _Version:
    """A memory and its finalized form, with the document that stores both."""

    document: Document
    memory: Memory
    finalized: Memory


class _QueueWriter:
    """Write the queue of one claimed user, and keep the memory as it is after every commit."""

    def __init__(
        self,
        memories: Memories,
        claim: Claim,
        view: MemoryView,
        lease: float,
        stop: Callable[[], bool],
    ) -> None:
        self.memories = memories
        self.store = memories.store
        self.writer = memories.program.method.writer
        self.claim = claim
        self.lease = lease
        self.stop = stop
        self.user_cache = view.cache
        self.document = view.document
        self.memory = view.memory
        self.finalized = view.finalized
        self.queued = [stored for stored in view.snapshot.pending_items if stored.state == "queued"]
        self.counts = WriteCounts()
        self.released = False
        """Whether the last commit gave the claim back."""

    def write_queue(self, retry: bool) -> bool:
        """Write what is queued, a few items at a time, and finalize the memory.

        Args:
            retry: Whether failed turns are tried once more before the queue is written.

        Returns:
            Whether every queued item was written or given up: False if the work was stopped or the
            claim was lost before that.
        """
        if retry and not self._retry_failed_turns():
            return False

        for start in range(0, len(self.queued), AHEAD):
            if self.stop():
                return False
            batch = self.queued[start : start + AHEAD]
            extractions = self._extract_all([stored.item for stored in batch])
            for stored, extraction in zip(batch, extractions, strict=True):
                if self.stop() or not self._write_or_give_up(stored, extraction):
                    return False

        self._finalize()
        return True

    def _retry_failed_turns(self) -> bool:
        """Try failed turns once more; return False if the claim was lost."""
        document = self.document
        has_failed_turns = self.memory.failed_items or self.finalized.failed_items
        if document is None or not has_failed_turns:
            return True

        with self._user_edits():
            attempt = _attempt(
                lambda: retry_failed(self.writer, self.memory, max_attempts=sys.maxsize)
            )
        if attempt.result is None:
            self._count_failures(self._log_failure("retry", attempt.error))
            return True

        self._count_failures(*attempt.result.failures)
        memory = attempt.result.value
        if not self.writer.needs_finalizing:
            version = self._next_version(memory, memory, finalized_position=document.position)
            return self._commit(version)

        # What was written now is in no finalized memory yet, so the last item counts as not
        # finalized.
        finalized_position = min(document.finalized_position, document.position - 1)
        version = self._next_version(memory, self.finalized, finalized_position=finalized_position)
        return self._commit(version)

    def _extract_all(self, items: Sequence[Item]) -> list[_Attempt[Any]]:
        """Attempt the extraction of some items at the same time."""
        if not self.writer.needs_extraction:
            return [_Attempt(NO_EXTRACTION)] * len(items)
        return gather([partial(self._extract, item) for item in items])

    def _extract(self, item: Item) -> _Attempt[Any]:
        return _attempt(lambda: extract_item(self.writer, item))

    def _write_or_give_up(self, stored: StoredItem, extraction: _Attempt[Any]) -> bool:
        """Write and commit one item, or give it up after `ATTEMPTS`.

        Return False if the claim was lost.
        """
        is_first_attempt = True
        for attempt_number in range(stored.attempts + 1, ATTEMPTS + 1):
            if not is_first_attempt and self.writer.needs_extraction:
                extraction = self._extract(stored.item)
            is_first_attempt = False

            written = self._write(stored, extraction)
            if written.result is not None:
                return self._commit_item(stored, written.result)

            failure = self._log_failure(stored.item.id, written.error)
            is_given_up = attempt_number >= ATTEMPTS
            self.store.queue.fail(self.claim, stored.position, failure.message, is_given_up)
            if is_given_up:
                self._count_failures(failure)
        return True

    def _write(self, stored: StoredItem, extraction: _Attempt[Any]) -> _Attempt[_Version]:
        """Attempt to write one item; failures of its extraction are part of the result."""
        if extraction.result is None:
            return _Attempt(error=extraction.error)
        extracted = extraction.result
        written = _attempt(lambda: self._version_with_item(stored, extracted.value))
        if written.result is None:
            return written
        return _Attempt(extracted.followed_by(written.result))

    def _version_with_item(self, stored: StoredItem, extraction: Any) -> _Version:
        """Write one item, and return what is to be stored."""
        with self._user_edits():
            memory = write_item(self.writer, self.memory, stored.item, extraction)

        position = stored.position
        if self.document is not None:
            position = max(position, self.document.position)
        speakers = [turn.speaker for turn in stored.item.turns]
        if not self.writer.needs_finalizing:
            return self._next_version(
                memory, memory, speakers, position=position, finalized_position=position
            )

        # A failed item that was queued again lies before items that are finalized already. It is in
        # no finalized memory yet, so from its position on all is to be finalized anew.
        finalized_position = stored.position - 1
        if self.document is not None:
            finalized_position = min(finalized_position, self.document.finalized_position)
        return self._next_version(
            memory,
            self.finalized,
            speakers,
            position=position,
            finalized_position=finalized_position,
        )

    def _commit_item(self, stored: StoredItem, written: StepResult[_Version]) -> bool:
        """Store the version with one more item; return False if the claim was lost."""
        note = "; ".join(f"{failure.where}: {failure.message}" for failure in written.failures)
        is_last = stored is self.queued[-1] and not self.writer.needs_finalizing
        is_committed = self._commit(written.value, note, is_last, [stored.position])
        self.counts += WriteCounts(int(is_committed), written.failures)
        return is_committed

    def _finalize(self) -> None:
        """Finalize the memory and commit it, if items were written since that was done last.

        A memory that cannot be finalized is kept as it is: trying for ever would hold up the queue.
        """
        document = self.document
        if document is None or document.finalized_position >= document.position:
            return

        with self._user_edits():
            attempt = _attempt(lambda: finalize_memory(self.writer, self.memory))
        if attempt.result is not None:
            finalized = attempt.result.value
            failures = attempt.result.failures
        else:
            finalized = self.memory
            failures = (self._log_failure("finalize", attempt.error),)

        memory = self.memory.continue_from(finalized)
        version = self._next_version(memory, finalized, finalized_position=document.position)
        if self._commit(version, is_last=True):
            self._count_failures(*failures)

    def _user_edits(self) -> AbstractContextManager[None]:
        """Show the writer the entries of the memory as their user left them, up to now."""
        if not self.writer.shows_entries:
            return nullcontext()
        amendments = active_amendments(self.store.amendments.list_all(self.claim.owner))
        if not amendments:
            return nullcontext()
        return amendment_scope(Amendments(amendments))

    def _next_version(
        self,
        memory: Memory,
        finalized: Memory,
        new_speakers: Sequence[str] = (),
        **positions: int,
    ) -> _Version:
        """Return what is to be stored next: the changes since the last commit, or the whole text.

        Args:
            memory: The memory before it is finalized.
            finalized: The memory that questions are asked of.
            new_speakers: Speakers of the new item.
            **positions: `position` and `finalized_position` of the document, where they move.
        """
        fingerprint = self.memories.writer_fingerprint
        previous = self.document or Document("", 0, None, 0, (), fingerprint)
        failed_items = (*memory.failed_items, *finalized.failed_items)
        document = replace(
            previous,
            speakers=_without_repeats([*previous.speakers, *new_speakers]),
            partial=_without_repeats([failed.item.id for failed in failed_items]),
            stamp=fingerprint,
            **positions,
        )
        stored_finalized = finalized if self.writer.needs_finalizing else None

        if self.document is not None:
            change = self._change(memory, stored_finalized)
            change_length = len(change.memory) + len(change.finalized or "")
            log = document.log
            total_length = log.changes_length + change_length
            # Changes are stored until they are longer than the text they belong to.
            if total_length <= max(log.text_length, SHORT):
                log = replace(log, changes_length=total_length, change_count=log.change_count + 1)
                document = replace(document, memory="", finalized=None, change=change, log=log)
                return _Version(document, memory, finalized)

        text = memory.model_dump_json()
        finalized_text = None if stored_finalized is None else stored_finalized.model_dump_json()
        log = ChangeLog(uuid.uuid4().hex, len(text) + len(finalized_text or ""))
        document = replace(document, memory=text, finalized=finalized_text, change=None, log=log)
        return _Version(document, memory, finalized)

    def _change(self, memory: Memory, finalized: Memory | None) -> MemoryChange:
        """Return what is new since the last commit.

        A finalized memory is stored as its difference from the memory, where it is a new one.
        """
        memory_change = to_json(diff(self.memory, memory)).decode()
        if finalized is None or finalized is self.finalized:
            return MemoryChange(memory_change, None)
        return MemoryChange(memory_change, to_json(diff(memory, finalized)).decode())

    def _commit(
        self,
        version: _Version,
        note: str = "",
        is_last: bool = False,
        item_positions: Sequence[int] = (),
    ) -> bool:
        """Store a version; return False if the claim was lost.

        Args:
            version: The memory, and how it is stored.
            note: What went wrong with a part of the item that was written.
            is_last: Whether the commit gives the claim back.
            item_positions: The position of the item that was written, if one was.
        """
        lease = 0.0 if is_last else self.lease
        claim = self.store.queue.commit(self.claim, version.document, lease, note, item_positions)
        if claim is None:
            self.memories.drop(self.claim.owner)
            return False

        self.claim = claim
        self.released = is_last
        self.document = version.document
        self.memory = version.memory
        self.finalized = version.finalized
        self.memories.cache_memory(
            self.user_cache, claim.version, version.document, version.memory, version.finalized
        )
        return True

    def _log_failure(self, where: str, error: Exception | None) -> Failure:
        """Log an error, and return the failure that reports it."""
        message = f"{type(error).__name__}: {one_line(error)}"[:MAX_MESSAGE_LENGTH]
        _log.warning("writing %r of user %r: %s", where, self.claim.owner.user, message)
        return Failure(kind="error", where=where, message=message)

    def _count_failures(self, *failures: Failure) -> None:
        self.counts += WriteCounts(0, failures)


def _attempt(compute: Callable[[], T]) -> _Attempt[T]:
    """Record a step of a writer, and return its result, or the error that the item is to blame for.

    Errors of the endpoint and of the store are raised.
    """
    try:
        return _Attempt(record_step(compute))
    except LMInvalidRequestError as error:
        return _Attempt(error=error)
    except (LMError, MempilerError):
        raise
    except Exception as error:
        return _Attempt(error=error)


def _without_repeats(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
