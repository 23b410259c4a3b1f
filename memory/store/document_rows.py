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
    base: str
    position: int
    finalized_position: int
    speakers: str
    """A JSON list of names."""
    forget_count: int
    """How often anybody was forgotten in this store."""
    last_amendment: int
    """The number of the user's last amendment; 0 for none."""


def read_head(transaction: Transaction, owner: Owner) -> MemoryHead:
    """Return what is stored of a user's memory beside its text."""
    row = transaction.execute("select_memory_head", owner).one()
    return MemoryHead(
        version=row.version or "",
        stamp=read_stamp(row),
        base=row.base or "",
        position=row.position or 0,
        finalized_position=row.finalized_position or 0,
        speakers=row.speakers or "[]",
        forget_count=int(row.forget_count or 0),
        last_amendment=row.last_amendment or 0,
    )


def read_stamp(row: Row[Any]) -> Stamp | None:
    """Return what wrote the memory of a row; None if the row has no memory."""
    if not row.writer:
        return None
    return Stamp(row.writer, row.program, row.embedder, row.schema)


def read_document(
    transaction: Transaction, owner: Owner, head: MemoryHead, known_log: ChangeLog = NO_LOG
) -> Document | None:
    """Return the memory of a user; None if there is none.

    Args:
        transaction: The transaction in which `head` was read.
        owner: The user.
        head: What there is beside the text.
        known_log: How far the caller has the memory. If the store has the changes since, the
            document holds these in place of the text.

    Raises:
        StoreError: A row of the memory is damaged.
    """
    if head.stamp is None:
        return None

    has_known_text = known_log.base != "" and known_log.base == head.base
    last_known = known_log.count if has_known_text else -1
    rows = transaction.execute("select_changes", owner, after_number=last_known)
    changes = [MemoryChange(row.memory, row.finalized) for row in rows]

    with _damage_as_store_error(owner):
        speakers = tuple(json.loads(head.speakers))
        if has_known_text:
            new_changes = changes
            before = known_log
            memory, finalized = "", None
        else:
            text, *new_changes = changes
            before = ChangeLog(base=head.base, text=_characters([text]))
            memory, finalized = _text_after(text, new_changes)

    log = ChangeLog(
        base=before.base,
        text=before.text,
        changes=before.changes + _characters(new_changes),
        count=before.count + len(new_changes),
    )
    return Document(
        memory=memory,
        position=head.position,
        finalized=finalized,
        finalized_position=head.finalized_position,
        speakers=speakers,
        stamp=head.stamp,
        since=tuple(new_changes) if has_known_text else None,
        log=log,
    )


def check_text(document: Document, owner: Owner) -> None:
    """Check that the whole text of a memory is JSON; what it says does not matter here.

    Raises:
        StoreError: A row of the memory is damaged.
    """
    with _damage_as_store_error(owner):
        json.loads(document.memory)
        if document.finalized is not None:
            json.loads(document.finalized)


@contextmanager
def _damage_as_store_error(owner: Owner) -> Generator[None]:
    """Turn an error in the block into a `StoreError` that does not say what the memory holds."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"the stored memory of user {owner.user!r} does not fit together "
            f"({type(error).__name__}); "
            f"run: mempiler memories rebuild PROGRAM --user {owner.user!r} --force"
        ) from None


def _text_after(text: MemoryChange, changes: Sequence[MemoryChange]) -> tuple[str, str | None]:
    """Return the JSON of a memory, and of its finalized form, after all changes.

    Args:
        text: The whole text of both, as they once were.
        changes: What changed since, oldest first.
    """
    if not changes:
        return text.memory, text.finalized

    memory = json.loads(text.memory)
    finalized = text.finalized
    last_finalizing = _last_finalizing(changes)
    for number, change in enumerate(changes):
        memory = apply_changes(memory, json.loads(change.memory))
        # What a change says of the finalized memory leads there from the memory of that change.
        if number == last_finalizing:
            finalized = _compact_json(apply_changes(memory, json.loads(change.finalized or "{}")))
    return _compact_json(memory), finalized


def _last_finalizing(changes: Sequence[MemoryChange]) -> int | None:
    """Return the index of the last change that says what the finalized memory became."""
    last = None
    for number, change in enumerate(changes):
        if change.finalized is not None:
            last = number
    return last


def _characters(changes: Sequence[MemoryChange]) -> int:
    return sum(len(change.memory) + len(change.finalized or "") for change in changes)


def _compact_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
