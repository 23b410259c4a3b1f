"""A stored memory as a reader may see it: what was deleted, or said before it was reworded, stands nowhere in it.

    contents of a store ── amended by the program that reads them ──> contents with a mark in the place of such words

Methods keep more than their entries: names, labels, what an entry said before. There a text is left out that says what
is gone (`Amendments.tells`), unless an entry says it now. Turns that a deleted entry rests on are left out as they are
of evidence. The store keeps all of it, for whoever takes the change back.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
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
    return _Left(seen.amendments, says).of(memory)


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
    left = _Left(amend)
    items = tuple(replace(one, item=_item(one.item, amend), error=left.of(one.error)) for one in found.items)
    opened = tuple(_item(session, amend) for session in found.open)
    return replace(found, items=items, open=opened, document=document)


@dataclass(frozen=True)
class _Left:
    """What is left of JSON values."""

    amend: Amendments
    says: Collection[str] = ()
    """The texts of the entries that are there."""

    def of(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.of(part) for name, part in cast(dict[str, Any], value).items()}
        if isinstance(value, list):
            return [self.of(part) for part in cast(list[Any], value)]
        return GONE if isinstance(value, str) and self._gone(value) else value

    def _gone(self, text: str) -> bool:
        return self.amend.tells(text) and not any(text in said for said in self.says)


def _item(item: I, amend: Amendments) -> I:
    if not any(turn.id in amend.withheld for turn in item.turns):
        return item
    return item.model_copy(update={"turns": tuple(_turn(turn, amend) for turn in item.turns)})


def _turn(turn: Turn, amend: Amendments) -> Turn:
    if turn.id not in amend.withheld:
        return turn
    after = amend.turn(turn)
    if after is None or after is turn or amend.tells(after.content):
        return turn.model_copy(update={"text": GONE, "caption": None})
    return after
