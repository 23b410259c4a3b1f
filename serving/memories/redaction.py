"""A user's memory and sessions as JSON, without the texts that the user deleted or reworded."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar, cast

from ...memory.edits import Amendments
from ...memory.store.records import StoredItem, UserDump
from ...records import Item, Turn
from .view import MemoryView

ItemT = TypeVar("ItemT", bound=Item)

GONE = "(deleted)"
"""Shown in place of words that were deleted, or that an entry said before it was reworded."""


def redacted_memory(view: MemoryView) -> dict[str, Any]:
    """Return the finalized memory as JSON without any text that was deleted or reworded.

    Methods keep more than their entries: names, labels, what an entry said before. A text there
    that says what is gone (`Amendments.is_deleted_text`) becomes `GONE`, unless an entry says it
    now. The store keeps all of it, so that the change can be undone.
    """
    memory = view.finalized.model_dump(mode="json")
    if not view.amendments:
        return memory
    current_texts = [entry.text for entry in view.method.reader.entries(view.finalized)]
    return _redacted(memory, view.amendments, current_texts)


def redacted_dump(view: MemoryView, dump: UserDump) -> UserDump:
    """Return all that the store holds of a user without what amendments hide."""
    amendments = view.amendments
    if not amendments:
        return dump

    document = dump.document
    if document:
        document = replace(document, memory=json.dumps(redacted_memory(view)), finalized=None)

    items: list[StoredItem] = []
    for stored in dump.items:
        item = _redacted_item(stored.item, amendments)
        error = _redacted(stored.error, amendments)
        items.append(replace(stored, item=item, error=error))

    open_sessions = tuple(_redacted_item(session, amendments) for session in dump.open)
    return replace(dump, items=tuple(items), open=open_sessions, document=document)


def _redacted(value: Any, amendments: Amendments, current_texts: Collection[str] = ()) -> Any:
    """Return a JSON value whose deleted texts are `GONE`, but for those that entries say now."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _redacted(part, amendments, current_texts) for name, part in fields.items()}
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        return [_redacted(part, amendments, current_texts) for part in parts]
    if not isinstance(value, str) or not amendments.is_deleted_text(value):
        return value
    is_current = any(value in text for text in current_texts)
    return value if is_current else GONE


def _redacted_item(item: ItemT, amendments: Amendments) -> ItemT:
    """Return a raw item with `GONE` in place of the words of its hidden turns."""
    hidden_turn_ids = amendments.hidden_turn_ids
    if not any(turn.id in hidden_turn_ids for turn in item.turns):
        return item
    turns = tuple(_redacted_turn(turn, amendments) for turn in item.turns)
    return item.model_copy(update={"turns": turns})


def _redacted_turn(turn: Turn, amendments: Amendments) -> Turn:
    """Return a turn as it is now: as it was said, with another text, or `GONE`."""
    amended_turn = amendments.amended_turn(turn)
    if turn.id not in amendments.hidden_turn_ids:
        return amended_turn or turn

    is_reworded = amended_turn is not None and amended_turn is not turn
    if amended_turn is None or not is_reworded or amendments.is_deleted_text(amended_turn.content):
        return turn.model_copy(update={"text": GONE, "caption": None})
    return amended_turn
