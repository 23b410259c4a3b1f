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
    """Write the queue of a claimed user as it is now, and give the claim back.

    Args:
        memories: What writes.
        claim: The claim of the user.
        lease: Seconds for which every commit prolongs the claim.
        stop: Checked before every item; if True, the rest stays queued.
        retry: Whether failed turns are tried once more before the queue is written.
    """
    queue_writer = None
    try:
        view = memories.read(claim.owner)
        if view.snapshot.version != claim.version:
            # Another worker took over since the claim, so no commit of this one would be accepted.
            return ClaimResult(WriteCounts(), is_finished=False)

        queue_writer = _QueueWriter(memories, claim, view, lease, stop)
        with memories.user_context(view):
            is_finished = queue_writer.write_queue(retry)
        return ClaimResult(queue_writer.counts, is_finished)
    finally:
        # The last commit of a queue gives the claim back itself, which saves a transaction.
        if queue_writer is None or not queue_writer.is_claim_released:
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
        self.is_claim_released = False
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
        """Try the failed turns of the memory once more, if there are any.

        Turns that fail again stay where they are, and their failures are counted.

        Return False if the claim was lost.
        """
        document = self.document
        has_failed_turns = self.memory.failed_items or self.finalized.failed_items
        if document is None or not has_failed_turns:
            return True

        with self._user_edits_shown():
            # The user asked for it, so it does not matter how often they were tried before.
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

        # The finalized memory lacks what was written now. With a position before the last item it
        # counts as out of date, and `_finalize` makes it anew.
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
        """Try to write and commit one item, until it succeeds or has failed `ATTEMPTS` times.

        Failed attempts of workers that had the item before are counted, too.

        Args:
            stored: The item.
            extraction: Its extraction for the first attempt. Further attempts extract again.

        Returns:
            Whether this worker may go on with the queue: False if its claim on the user turned out
            to be lost when the item was committed.
        """
        num_failed = stored.attempts
        while num_failed < ATTEMPTS:
            written = self._write(stored, extraction)
            if written.result is not None:
                return self._commit_item(stored, written.result)

            num_failed += 1
            is_given_up = num_failed >= ATTEMPTS
            failure = self._log_failure(stored.item.id, written.error)
            self.store.queue.fail(self.claim, stored.position, failure.message, is_given_up)
            if is_given_up:
                self._count_failures(failure)
            elif self.writer.needs_extraction:
                extraction = self._extract(stored.item)
        return True

    def _write(self, stored: StoredItem, extraction: _Attempt[Any]) -> _Attempt[_Version]:
        """Attempt to write one item after its extraction.

        The result has the failures of both steps. If the extraction failed, so has the attempt.
        """
        extraction_step = extraction.result
        if extraction_step is None:
            return _Attempt(error=extraction.error)

        writing = _attempt(lambda: self._version_with_item(stored, extraction_step.value))
        if writing.result is None:
            return writing
        both_steps = extraction_step.followed_by(writing.result)
        return _Attempt(both_steps)

    def _version_with_item(self, stored: StoredItem, extraction: Any) -> _Version:
        """Write one item into the memory, and return the version that is to be committed.

        A version has two positions in the queue: how far the memory is written, and how far the
        finalized memory is. Items are finalized together when the queue is written, so an item
        leaves the finalized memory as it is.

        Args:
            stored: The item.
            extraction: What the writer extracted from the item; its type is the writer's own.
        """
        with self._user_edits_shown():
            memory = write_item(self.writer, self.memory, stored.item, extraction)

        position = stored.position
        finalized_position = stored.position - 1
        if self.document is not None:
            # A failed item that is queued again lies before items that are written already. The
            # memory stays as far as it was, and the finalized one is out of date from there on.
            position = max(position, self.document.position)
            finalized_position = min(finalized_position, self.document.finalized_position)

        finalized = self.finalized
        if not self.writer.needs_finalizing:
            finalized = memory
            finalized_position = position
        return self._next_version(
            memory,
            finalized,
            [turn.speaker for turn in stored.item.turns],
            position=position,
            finalized_position=finalized_position,
        )

    def _commit_item(self, stored: StoredItem, written: StepResult[_Version]) -> bool:
        """Store the version with one more item; return False if the claim was lost."""
        note = "; ".join(f"{failure.where}: {failure.message}" for failure in written.failures)
        # Otherwise the commit of the finalized memory comes after it.
        is_last_commit = stored is self.queued[-1] and not self.writer.needs_finalizing
        is_committed = self._commit(written.value, note, is_last_commit, [stored.position])
        self.counts += WriteCounts(int(is_committed), written.failures)
        return is_committed

    def _finalize(self) -> None:
        """Finalize the memory and commit it, if items were written since that was done last.

        If that fails, questions are answered from the memory as it is. It counts as finalized,
        since trying for ever would hold up the queue.
        """
        document = self.document
        if document is None or document.finalized_position >= document.position:
            return

        with self._user_edits_shown():
            attempt = _attempt(lambda: finalize_memory(self.writer, self.memory))
        if attempt.result is not None:
            finalized = attempt.result.value
            failures = attempt.result.failures
        else:
            finalized = self.memory
            failures = (self._log_failure("finalize", attempt.error),)

        # Further items are written into the memory as it was before. Only a memory that is costly
        # to finalize goes on from its finalized form.
        memory = self.memory.continue_from(finalized)
        version = self._next_version(memory, finalized, finalized_position=document.position)
        if self._commit(version, is_last_commit=True):
            self._count_failures(*failures)

    def _user_edits_shown(self) -> AbstractContextManager[None]:
        """Return a context in which the writer sees entries with the user's changes up to now.

        Without it a model would read, and could restore, what its user corrected or deleted. Only
        writers that show entries of the memory to a model need it (`Writer.shows_entries`).
        """
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
        """Return the change from the last commit to a new memory and its finalized form.

        Args:
            memory: The new memory, into which items are written.
            finalized: The form of the memory that questions are asked of. None if the writer does
                not finalize; then that form is the memory itself.
        """
        memory_change = to_json(diff(self.memory, memory)).decode()
        if finalized is None or finalized is self.finalized:
            return MemoryChange(memory_change, finalized=None)

        # A finalized memory is made from the new memory. So it is stored as a difference from that,
        # and not from the finalized memory before.
        finalized_change = to_json(diff(memory, finalized)).decode()
        return MemoryChange(memory_change, finalized_change)

    def _commit(
        self,
        version: _Version,
        note: str = "",
        is_last_commit: bool = False,
        item_positions: Sequence[int] = (),
    ) -> bool:
        """Store a version; return False if the claim was lost.

        Args:
            version: The memory, and how it is stored.
            note: What went wrong with a part of the item that was written.
            is_last_commit: Whether the queue is written with it, so that it gives the claim back.
            item_positions: Positions of items that are in the memory now: of one item, or none.
        """
        # A lease of 0 seconds gives the claim back.
        lease = 0.0 if is_last_commit else self.lease
        claim = self.store.queue.commit(self.claim, version.document, lease, note, item_positions)
        if claim is None:
            self.memories.drop(self.claim.owner)
            return False

        self.claim = claim
        self.is_claim_released = is_last_commit
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
    """Run a step of a writer; return its result, or the error that the item is to blame for.

    Errors of the endpoint and of the store are raised: they are no fault of the item.
    """
    try:
        return _Attempt(record_step(compute))
    except LMInvalidRequestError as error:
        # A kind of LMError, but the model refuses what this item makes of the request, e.g. because
        # it is too long. Another item may do.
        return _Attempt(error=error)
    except (LMError, MempilerError):
        raise
    except Exception as error:
        return _Attempt(error=error)


def _without_repeats(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
