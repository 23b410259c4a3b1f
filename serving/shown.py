"""A stored memory as a reader may see it: what was deleted, or said before it was reworded, stands nowhere in it.

    contents of a store ── amended by the program that reads them ──> contents with a mark in the place of such words

Methods keep more than their entries: names, labels, what an entry said before. There a text is left out that says what
is gone (`Amendments.tells`), unless an entry says it now. Turns that a deleted entry rests on are left out as they are
of evidence. The store keeps all of it, for whoever takes the change back.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar, cast

from ..memory.amending import Amendments
from ..memory.stored import Contents
from ..programs.program import MemoryProgram
from ..records import Item, Turn
from .view import View

I = TypeVar("I", bound=Item)  # noqa: E741

GONE = "(deleted)"


def memory_shown(program: MemoryProgram, seen: View) -> dict[str, Any]:
    """The settled memory as JSON, as it may be shown.

    Args:
        program: Reads it.
        seen: As amendments leave it.
    """
    memory = seen.settled.model_dump(mode="json")
    if not seen.amendments:
        return memory
    says = [entry.text for entry in program.method.reader.entries(seen.settled)]
    return _left(memory, seen.amendments, says)


def contents_shown(program: MemoryProgram, seen: View, found: Contents) -> Contents:
    """Everything of a user, as it may be shown.

    Args:
        program: Reads the memory.
        seen: The memory as amendments leave it.
        found: What the store holds.
    """
    amend, document = seen.amendments, found.document
    if not amend:
        return found
    if document:
        document = replace(document, memory=json.dumps(memory_shown(program, seen)), settled=None)
    items = tuple(replace(one, item=_item(one.item, amend), error=_left(one.error, amend)) for one in found.items)
    opened = tuple(_item(session, amend) for session in found.open)
    return replace(found, items=items, open=opened, document=document)


def _left(value: Any, amend: Amendments, says: Collection[str] = ()) -> Any:
    """What is left of a JSON value, where entries say these texts."""
    if isinstance(value, dict):
        return {name: _left(part, amend, says) for name, part in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_left(part, amend, says) for part in cast(list[Any], value)]
    gone = isinstance(value, str) and amend.tells(value) and not any(value in said for said in says)
    return GONE if gone else value


def _item(item: I, amend: Amendments) -> I:
    if not any(turn.id in amend.withheld for turn in item.turns):
        return item
    return item.model_copy(update={"turns": tuple(_turn(turn, amend) for turn in item.turns)})


def _turn(turn: Turn, amend: Amendments) -> Turn:
    after = amend.turn(turn)
    if turn.id in amend.withheld and (after is None or after is turn or amend.tells(after.content)):
        return turn.model_copy(update={"text": GONE, "caption": None})
    return after or turn
