"""A user's memory and sessions as JSON, without the texts that the user deleted or reworded."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar, cast

from ...memory.answers import KeptAnswer, StoredFeedback
from ...memory.edits import Amendments
from ...memory.store.records import StoredItem, UserDump
from ...records import Item, Turn
from .view import MemoryView

ItemT = TypeVar("ItemT", bound=Item)

GONE = "(deleted)"
"""Shown in place of words that were deleted, or that an entry said before it was reworded."""


def redacted_memory(view: MemoryView) -> dict[str, Any]:
    """Return the finalized memory as JSON without any text that was deleted or reworded.

    Entries themselves are as the user left them. But a memory may hold more texts than its entries,
    e.g. names, labels, or what an entry said before. If such a text is one that the user deleted
    or reworded (`Amendments.is_deleted_text`), `GONE` stands in its place.

    A text stays if an entry still says it: after "Ada likes tea" was deleted at one entry, another
    entry may say the same. The store keeps all texts, so that the change can be undone.
    """
    memory = view.finalized.model_dump(mode="json")
    if not view.amendments:
        return memory
    current_texts = [entry.text for entry in view.method.reader.entries(view.finalized)]
    return _redacted(memory, view.amendments, current_texts)


def redacted_dump(view: MemoryView, dump: UserDump) -> UserDump:
    """Return all that the store holds of a user, without any text that was deleted or reworded."""
    amendments = view.amendments
    if not amendments:
        return dump

    document = dump.document
    if document:
        # Amendments are applied to the finalized memory only. So it stands for both forms of the
        # memory, and the stored texts of both are left out.
        document = replace(document, memory=json.dumps(redacted_memory(view)), finalized=None)

    items: list[StoredItem] = []
    for stored in dump.items:
        item = _redacted_item(stored.item, amendments)
        # The message of a failure may be something that was said.
        error = _redacted(stored.error, amendments)
        items.append(replace(stored, item=item, error=error))

    open_sessions = tuple(_redacted_item(session, amendments) for session in dump.open)
    feedback_by_answer = {feedback.answer: feedback for feedback in dump.feedback}
    answers: list[KeptAnswer] = []
    kept_feedback: list[StoredFeedback] = []
    for answer in dump.answers:
        feedback = feedback_by_answer.get(answer.id)
        if _may_quote_change(answer, feedback, amendments):
            continue
        answers.append(answer)
        if feedback is not None:
            kept_feedback.append(feedback)
    return replace(
        dump,
        items=tuple(items),
        open=open_sessions,
        document=document,
        answers=tuple(answers),
        feedback=tuple(kept_feedback),
    )


def _may_quote_change(
    answer: KeptAnswer, feedback: StoredFeedback | None, amendments: Amendments
) -> bool:
    """Return whether an answer, or the feedback on it, may quote what was deleted or reworded."""
    if answer.rests_on_all:
        return True
    turn_ids = set(answer.sources)
    if feedback is not None:
        # A user may correct an answer in the words of the entries that the feedback calls useful.
        for entry in feedback.useful_entries:
            turn_ids.update(entry.sources)
    return amendments.touches("", sorted(turn_ids))


def _redacted(value: Any, amendments: Amendments, current_texts: Collection[str] = ()) -> Any:
    """Return a JSON value with `GONE` in place of deleted texts.

    Args:
        value: A text, or anything of JSON that holds texts.
        amendments: They know which texts were deleted.
        current_texts: The texts of all entries. A deleted text that is a part of one stays.
    """
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _redacted(part, amendments, current_texts) for name, part in fields.items()}
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        return [_redacted(part, amendments, current_texts) for part in parts]
    if not isinstance(value, str) or not amendments.is_deleted_text(value):
        return value
    # A part, since entries are shown as "Ada: I moved." where a field may hold "I moved." alone.
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
    """Return a turn as it was said, or with its new words, or with `GONE` as its words.

    A turn is hidden if its words were changed, or if an entry that rests on it was deleted.
    """
    # None if the turn itself was deleted; the same object if nobody changed its words.
    amended_turn = amendments.amended_turn(turn)
    if turn.id not in amendments.hidden_turn_ids:
        return amended_turn or turn

    gone_turn = turn.model_copy(update={"text": GONE, "caption": None})
    if amended_turn is None or amended_turn is turn:
        return gone_turn
    # Its new words may be shown, unless they are words that the user deleted elsewhere.
    if amendments.is_deleted_text(amended_turn.content):
        return gone_turn
    return amended_turn
