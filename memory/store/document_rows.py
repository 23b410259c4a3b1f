"""Reading a user's stored memory.

A memory is stored as its whole text, change number 0, and the changes since, one for each commit:
so a commit writes what is new, and not all that is known of the user. A reader that has an earlier
version of the memory names how far it has got, by a `ChangeLog`, and is given the changes since.
Every other reader is given the text after all changes.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from ...errors import StoreError
from ..changes import apply_changes
from .database import Transaction
from .documents import ChangeLog, Document, MemoryChange, Stamp
from .owner import Owner

NO_LOG = ChangeLog()
"""The log of a reader who has no version of the memory."""


@dataclass(frozen=True)
class MemoryHead:
    """What a store holds of a user's memory beside its text."""

    version: str
    """Changes whenever the memory does; "" for an unknown user."""
    stamp: Stamp | None
    """What wrote the memory. None while there is none; then the four fields below are empty."""
    text_name: str
    """The name of the text that the stored changes start from."""
    position: int
    finalized_position: int
    speakers: str
    """A JSON list of names."""
    forget_count: int
    """How often anybody was forgotten in this store."""
    last_amendment: int
    """The number of the user's last amendment; 0 for none."""


def read_head(transaction: Transaction, owner: Owner) -> MemoryHead:
    """Return what is known of a user's memory without its text: version, position, writer, ...

    For an unknown user all of it is empty.
    """
    # There is always one row, with NULL for what is not stored.
    row = transaction.execute("select_memory_head", owner).one()
    return MemoryHead(
        version=row.version or "",
        stamp=read_stamp(row),
        text_name=row.base or "",
        position=row.position or 0,
        finalized_position=row.finalized_position or 0,
        speakers=row.speakers or "[]",
        forget_count=int(row.forget_count or 0),
        last_amendment=row.last_amendment or 0,
    )


def read_stamp(row: Row[Any]) -> Stamp | None:
    """Return which program and embedder wrote a memory; None if the row has no memory.

    Args:
        row: A row with the columns of the memory; they are NULL where there is no memory.
    """
    if not row.writer:
        return None
    return Stamp(row.writer, row.program, row.embedder, row.schema)


def read_document(
    transaction: Transaction, owner: Owner, head: MemoryHead, known_log: ChangeLog = NO_LOG
) -> Document | None:
    """Return the memory of a user; None if there is none.

    A memory is stored as a whole text, and one change for each commit since. A caller that has this
    text gets only the changes that it does not have. Any other caller gets the text after all
    changes.

    Args:
        transaction: The transaction in which `head` was read.
        owner: The user.
        head: What `read_head` returned.
        known_log: Which text the caller has, and how many of the changes.

    Raises:
        StoreError: A row of the memory is damaged.
    """
    if head.stamp is None:
        return None

    # The caller may have no text at all: then its name is "".
    has_known_text = known_log.text_name != "" and known_log.text_name == head.text_name
    # Changes count from 1. Number 0 is the text, so -1 selects the text as well.
    last_known = known_log.change_count if has_known_text else -1
    rows = transaction.execute("select_changes", owner, after_number=last_known)
    changes = [MemoryChange(row.memory, row.finalized) for row in rows]

    with _damage_as_store_error(owner):
        speakers = tuple(json.loads(head.speakers))
        if has_known_text:
            new_changes = changes
            log_before = known_log
            since = tuple(new_changes)
            # The document holds the new changes in place of the texts.
            memory, finalized = "", None
        else:
            # Without any row this is a ValueError: the memory is damaged.
            text, *new_changes = changes
            log_before = ChangeLog(text_name=head.text_name, text_length=_characters([text]))
            since = None
            memory, finalized = _replay_changes(text, new_changes)

    log = ChangeLog(
        text_name=log_before.text_name,
        text_length=log_before.text_length,
        changes_length=log_before.changes_length + _characters(new_changes),
        change_count=log_before.change_count + len(new_changes),
    )
    return Document(
        memory=memory,
        position=head.position,
        finalized=finalized,
        finalized_position=head.finalized_position,
        speakers=speakers,
        stamp=head.stamp,
        since=since,
        log=log,
    )


def check_text(document: Document, owner: Owner) -> None:
    """Check that the whole text of a memory is valid JSON, e.g. before it is exported.

    Whether the JSON fits the program's class of memory is not checked here.

    Raises:
        StoreError: A row of the memory is damaged.
    """
    with _damage_as_store_error(owner):
        json.loads(document.memory)
        if document.finalized is not None:
            json.loads(document.finalized)


@contextmanager
def _damage_as_store_error(owner: Owner) -> Generator[None]:
    """Turn an error about a damaged memory in the block into a `StoreError` with the fix.

    Its message leaves out the original error, which may quote what the memory says of the user.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"the stored memory of user {owner.user!r} does not fit together "
            f"({type(error).__name__}); "
            f"run: mempiler memories rebuild PROGRAM --user {owner.user!r} --force"
        ) from None


def _replay_changes(text: MemoryChange, changes: Sequence[MemoryChange]) -> tuple[str, str | None]:
    """Return the JSON of a memory, and of its finalized form, after all changes.

    The finalized form is the memory from which questions are answered; None if that is the memory
    itself.

    Every `change.memory` is a difference from the memory before that change. A `change.finalized`
    is a difference from the memory *after* that change to its finalized form. It does not build on
    earlier finalized forms, so only the last one matters.

    Args:
        text: The first row of the log, with whole texts instead of differences.
        changes: The rows after it, oldest first.
    """
    if not changes:
        return text.memory, text.finalized

    memory = json.loads(text.memory)
    finalized = text.finalized
    last_finalizing = _last_finalizing(changes)
    for number, change in enumerate(changes):
        memory = apply_changes(memory, json.loads(change.memory))
        if number == last_finalizing and change.finalized is not None:
            # Now `memory` is the memory after this change, from which the difference was taken.
            difference = json.loads(change.finalized)
            finalized = _compact_json(apply_changes(memory, difference))
    return _compact_json(memory), finalized


def _last_finalizing(changes: Sequence[MemoryChange]) -> int | None:
    """Return the index of the last change with a new finalized form; None if no change has one."""
    last = None
    for number, change in enumerate(changes):
        if change.finalized is not None:
            last = number
    return last


def _characters(changes: Sequence[MemoryChange]) -> int:
    """Return the length of all changes together, in characters."""
    return sum(len(change.memory) + len(change.finalized or "") for change in changes)


def _compact_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
