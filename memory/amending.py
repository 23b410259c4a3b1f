"""Amendments: a user's edits of single entries, applied to the memory whenever it is read.

The memory that a writer goes on with stays as it was written, and an amendment holds after every further session and
after a rebuild, which gives other ids: for the entry of its id, those in the same words, and those of a turn that is
gone. What a model made of an entry in a text of its own stays, unless its session is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal, TypeVar

from pydantic import ConfigDict, Field

from ..records import Item, Turn
from ..records.context_variables import set_context
from .incoming import Storable
from .index import Entry

P = TypeVar("P")
LONGEST, LONGEST_BY = 10_000, 200
"""Most characters of the new text of an entry, and of who made an amendment."""


@dataclass(frozen=True)
class Amendment:
    """One change that was made of an entry."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    number: Annotated[int, Field(ge=1, lt=2**31 - 1)]
    what: Literal["delete", "update", "undo"]
    entry: Storable
    """Its id."""
    kind: Storable
    text: Storable
    """What it said before."""
    sources: tuple[Storable, ...]
    """Ids of the turns it rests on."""
    new: Storable | None = None
    """What it says since; None where it is gone."""
    at: datetime | None = None
    by: Storable = ""
    """Who made it, in the words of the caller."""
    undoes: Annotated[int, Field(ge=0, lt=2**31 - 1)] = 0
    """The number of the one that an undo takes back."""

    @property
    def line(self) -> str:
        """What was done, without what the entry says or said: `delete of D1:2 (turn), 2025-03-05 18:20, by ada`."""
        when = f", {self.at:%Y-%m-%d %H:%M}" if self.at else ""
        return f"{self.what} of {self.entry} ({self.kind}){when}{f', by {self.by}' if self.by else ''}"

    @property
    def of_a_turn(self) -> bool:
        """Whether the entry is a turn as it was said."""
        return self.sources == (self.entry,)


def active_amendments(rows: Iterable[Amendment]) -> tuple[Amendment, ...]:
    """The changes that were not taken back, in their order."""
    rows = tuple(rows)
    undone = {row.undoes for row in rows}
    return tuple(row for row in rows if row.what != "undo" and row.number not in undone)


class EntryEdits:
    """What becomes of the entries of a memory; a `Reader` asks it for each. Subclasses say what."""

    def touches(self, id: str, sources: Sequence[str]) -> bool:
        """Whether anything may become of an entry; cheap."""
        return True

    def edited(self, entry: Entry) -> Entry | None:
        """The entry as it is now, looked at by itself; None if it is gone."""
        raise NotImplementedError

    def __call__(self, entry: Entry) -> Entry | None:
        """The same, where other entries may be why it is gone."""
        return self.edited(entry)

    def amended_turn(self, turn: Turn) -> Turn | None:
        """A turn as it was said, as it is now; None if it is gone."""
        return turn

    def amended_items(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """Raw items without the turns that are gone; those that nothing became of are the same objects."""
        return tuple(map(self.amended_item, items))

    def amended_item(self, item: Item) -> Item:
        """A raw item without the turns that are gone."""
        if not any(self.touches(turn.id, (turn.id,)) for turn in item.turns):
            return item
        kept = {turn.id: after for turn in item.turns if (after := self.amended_turn(turn)) is not None}
        if len(kept) < len(item.turns):
            item = item.select_turns(kept.keys())
        same = all(kept[turn.id] is turn for turn in item.turns)
        return item if same else item.model_copy(update={"turns": tuple(kept.values())})

    def amended_parts(
        self, parts: Sequence[P], entry: Callable[[P], Entry], reworded: Callable[[P, str], P]
    ) -> tuple[P, ...]:
        """The parts of a memory whose entries are still there; those that nothing became of are the same objects."""
        found: list[P] = []
        for part in parts:
            before = entry(part)
            if not self.touches(before.id, before.sources):
                found.append(part)
            elif (after := self(before)) is not None:
                found.append(part if after.text == before.text else reworded(part, after.text))
        return tuple(found)

    def amended_entries(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """The entries that are still there."""
        return self.amended_parts(
            entries, lambda entry: entry, lambda entry, text: entry.model_copy(update={"text": text})
        )


_amend: ContextVar[EntryEdits | None] = ContextVar("mempiler_writing_under", default=None)


def amendment_scope(amend: EntryEdits) -> AbstractContextManager[None]:
    """What is written in the block sees entries as an amendment leaves them."""
    return set_context(_amend, amend)


def amended_entry(part: P, entry: Callable[[P], Entry]) -> Entry | None:
    """The entry that is made of a part of a memory, as its user left it; None if it was deleted."""
    amend = _amend.get()
    return entry(part) if amend is None else amend(entry(part))


def is_as_written(part: P, entry: Callable[[P], Entry]) -> bool:
    """Whether the entry of a part is there as it was written."""
    if _amend.get() is None:
        return True
    after = amended_entry(part, entry)
    return after is not None and after.text == entry(part).text


class Amendments(EntryEdits):
    """The amendments of a user that are in force, in order."""

    def __init__(self, rows: Sequence[Amendment]) -> None:
        self.rows = tuple(rows)
        self._of_id: dict[str, list[Amendment]] = {}
        self._of_turn: dict[str, list[Amendment]] = {}
        for row in rows:
            self._of_id.setdefault(row.entry, []).append(row)
            for turn in row.sources:
                self._of_turn.setdefault(turn, []).append(row)
        self._gone = {row.entry for row in rows if row.of_a_turn and row.new is None}

    def touches(self, id: str, sources: Sequence[str]) -> bool:
        return id in self._of_id or not self._of_turn.keys().isdisjoint(sources)

    def edited(self, entry: Entry) -> Entry | None:
        for row in self._near(entry):
            if _means(row, entry):
                if row.new is None:
                    return None
                entry = entry.model_copy(update={"text": row.new})
        return entry

    def __call__(self, entry: Entry) -> Entry | None:
        after, rests_on_nothing = self.edited(entry), bool(entry.sources) and self._gone.issuperset(entry.sources)
        return None if after is entry and rests_on_nothing else after

    def amended_turn(self, turn: Turn) -> Turn | None:
        for row in self._of_id.get(turn.id, ()):
            if row.of_a_turn:
                if row.new is None:
                    return None
                said = row.new.removeprefix(f"{turn.speaker}: ")
                turn = turn.model_copy(update={"text": said, "caption": None})
        return turn

    def is_deleted_text(self, text: str) -> bool:
        """Whether a text is what an entry said that is gone; wherever the text stands."""
        return _plain(text) in {_plain(row.text) for row in self.rows}

    @cached_property
    def hidden_turn_ids(self) -> frozenset[str]:
        """Turns that are not shown as evidence: an entry that is gone rests on them, or they were worded anew."""
        return frozenset(turn for row in self.rows if row.new is None or row.of_a_turn for turn in row.sources)

    def _near(self, entry: Entry) -> list[Amendment]:
        found = {row.number: row for row in self._of_id.get(entry.id, ())}
        for turn in entry.sources:
            found.update((row.number, row) for row in self._of_turn.get(turn, ()))
        return [found[number] for number in sorted(found)]


def _means(row: Amendment, entry: Entry) -> bool:
    if row.sources and set(row.sources).isdisjoint(entry.sources):
        return False
    return row.entry == entry.id or (row.kind == entry.kind and _plain(row.text) == _plain(entry.text))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")
