"""Amendments: what a user changed in single entries of a memory, applied to the memory whenever it is read.

    delete, update, undo ──> rows of the store, in order ──> those in force ── Reader.amended ──> what is searched

The memory that a writer goes on with stays as it was written: an amendment is one row, costs no language model, and is
taken back by another row. So what holds for an entry holds after every further session and after a rebuild, as long as
it can be found again. An amendment means

    the entry of its id                     that rests on a turn in common
    an entry in the same words              of the same kind that rests on a turn in common: a rebuild gives other ids
    what came of a turn that is gone        an entry that rests on nothing else
    what else holds the same                an entry that rests on a turn in common and has half of its telling words,
                                            or quotes it; an abstract (`records.ABSTRACT`) that has one of them

A telling word of an entry is one that no entry of other turns has, and the new wording neither.

Example:
    >>> from mempiler.memory.amending import Amendment, Amendments
    >>> from mempiler.memory.index import Entry
    >>> secret = Entry(id="D1:1", text="Ada: the code is falcon", kind="turn", sources=("D1:1",))
    >>> turns = secret, Entry(id="D1:2", text="Ada: hello", kind="turn", sources=("D1:2",))
    >>> gone = Amendment(number=1, what="delete", entry="D1:1", kind="turn", text=secret.text, sources=("D1:1",))
    >>> [entry.id for entry in Amendments([gone], turns).entries(turns)]
    ['D1:2']

Limits: words are compared, not meanings: what a model said of an entry in other words stays. The model that writes sees
the turns as they were, and of most methods the entries too (`memory.hiding`): only forgetting a session keeps them
from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal, TypeVar

from ..errors import UserError
from ..records import ABSTRACT, Item, Turn
from .index import Entry
from .tokens import tokens

P = TypeVar("P")
LONGEST = 10_000
"""Most characters of the new text of an entry."""
LONGEST_BY = 200
"""Most characters of who made an amendment."""


@dataclass(frozen=True)
class Amendment:
    """One change that was made of an entry."""

    number: int
    what: Literal["delete", "update", "undo"]
    entry: str
    """Its id."""
    kind: str
    text: str
    """What it said before."""
    sources: tuple[str, ...]
    """Ids of the turns it rests on."""
    new: str | None = None
    """What it says since; None where it is gone."""
    at: datetime | None = None
    by: str = ""
    """Who made it, in the words of the caller."""
    undoes: int = 0
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


def in_force(rows: Iterable[Amendment]) -> tuple[Amendment, ...]:
    """The changes that were not taken back, in their order."""
    rows = tuple(rows)
    undone = {row.undoes for row in rows}
    return tuple(row for row in rows if row.what != "undo" and row.number not in undone)


class Amend:
    """What becomes of the entries of a memory; a `Reader` asks it for each. Subclasses say what."""

    def touches(self, id: str, sources: Sequence[str]) -> bool:
        """Whether anything may become of an entry that is no abstract; cheap."""
        return True

    def own(self, entry: Entry) -> Entry | None:
        """The entry as it is now, looked at by itself; None if it is gone."""
        raise NotImplementedError

    def __call__(self, entry: Entry) -> Entry | None:
        """The same, where other entries may be why it is gone."""
        return self.own(entry)

    def turn(self, turn: Turn) -> Turn | None:
        """A turn as it was said, as it is now; None if it is gone."""
        return turn

    def items(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """Raw items without the turns that are gone; those that nothing became of are the same objects."""
        return tuple(map(self.item, items))

    def item(self, item: Item) -> Item:
        """A raw item without the turns that are gone."""
        if not any(self.touches(turn.id, (turn.id,)) for turn in item.turns):
            return item
        kept = {turn.id: after for turn in item.turns if (after := self.turn(turn)) is not None}
        if len(kept) < len(item.turns):
            item = item.only(kept.keys())
        same = all(kept[turn.id] is turn for turn in item.turns)
        return item if same else item.model_copy(update={"turns": tuple(kept.values())})

    def parts(self, parts: Sequence[P], entry: Callable[[P], Entry], reworded: Callable[[P, str], P]) -> tuple[P, ...]:
        """The parts of a memory that are still there; those that nothing became of are the same objects.

        Args:
            parts: What entries are made of, one each.
            entry: Makes the entry of a part.
            reworded: Makes a part with another text.
        """
        found: list[P] = []
        for part in parts:
            before = entry(part)
            if before.kind not in ABSTRACT and not self.touches(before.id, before.sources):
                found.append(part)
            elif (after := self(before)) is not None:
                found.append(part if after.text == before.text else reworded(part, after.text))
        return tuple(found)

    def entries(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """The entries that are still there."""
        return self.parts(entries, lambda entry: entry, lambda entry, text: entry.model_copy(update={"text": text}))


class Amendments(Amend):
    """The amendments of a user that are in force.

    Args:
        rows: In order.
        entries: Of the memory as it was written: which words tell of an entry hangs on all others.
    """

    def __init__(self, rows: Sequence[Amendment], entries: Iterable[Entry]) -> None:
        self.rows = tuple(rows)
        self._entries = entries
        self._of_id: dict[str, list[Amendment]] = {}
        self._of_turn: dict[str, list[Amendment]] = {}
        for row in rows:
            self._of_id.setdefault(row.entry, []).append(row)
            for turn in row.sources:
                self._of_turn.setdefault(turn, []).append(row)
        self._gone = {row.entry for row in rows if row.of_a_turn and row.new is None}

    def touches(self, id: str, sources: Sequence[str]) -> bool:
        return id in self._of_id or not self._of_turn.keys().isdisjoint(sources)

    def own(self, entry: Entry) -> Entry | None:
        for row in self._near(entry):
            if _means(row, entry):
                if row.new is None:
                    return None
                entry = entry.model_copy(update={"text": row.new})
        return entry

    def __call__(self, entry: Entry) -> Entry | None:
        near = self._near(entry)
        after = self.own(entry) if near else entry
        if after is None or after.text != entry.text:
            return after
        if entry.sources and self._gone.issuperset(entry.sources):
            return None
        if entry.kind in ABSTRACT and not self._told.isdisjoint(tokens(entry.text)):
            return None
        return None if any(self._holds(entry, row) for row in near) else entry

    def turn(self, turn: Turn) -> Turn | None:
        for row in self._of_id.get(turn.id, ()):
            if row.of_a_turn:
                if row.new is None:
                    return None
                said = row.new.removeprefix(f"{turn.speaker}: ")
                turn = turn.model_copy(update={"text": said, "caption": None})
        return turn

    def tells(self, text: str) -> bool:
        """Whether a text says what is gone, in the words that it had; wherever the text stands."""
        near = (row for word in set(tokens(text)) for row in self._of_word.get(word, ()))
        plain = _plain(text)
        return any(said in plain for said in self._untelling) or any(self._says(text, row) for row in near)

    @cached_property
    def withheld(self) -> frozenset[str]:
        """Turns that are not shown as evidence: an entry that is gone rests on them, or they were worded anew."""
        return frozenset(turn for row in self.rows if row.new is None or row.of_a_turn for turn in row.sources)

    def _near(self, entry: Entry) -> list[Amendment]:
        """What may concern an entry, in order."""
        found = {row.number: row for row in self._of_id.get(entry.id, ())}
        for turn in entry.sources:
            found.update((row.number, row) for row in self._of_turn.get(turn, ()))
        return [found[number] for number in sorted(found)]

    def _holds(self, entry: Entry, row: Amendment) -> bool:
        """Whether an entry that rests on a turn of another one says what is gone."""
        return not set(row.sources).isdisjoint(entry.sources) and self._says(entry.text, row)

    def _says(self, text: str, row: Amendment) -> bool:
        """Whether a text quotes what an entry said, or has half of its telling words."""
        if (said := _plain(row.text)) and said in _plain(text):
            return True
        telling = self._telling[row.number]
        shared = len(telling.intersection(tokens(text)))
        return shared > 0 and 2 * shared >= len(telling)

    @cached_property
    def _told(self) -> set[str]:
        """The telling words of all amendments."""
        return set[str]().union(*self._telling.values())

    @cached_property
    def _of_word(self) -> dict[str, list[Amendment]]:
        """The amendments by each telling word of theirs."""
        found: dict[str, list[Amendment]] = {}
        for row in self.rows:
            for word in self._telling[row.number]:
                found.setdefault(word, []).append(row)
        return found

    @cached_property
    def _untelling(self) -> frozenset[str]:
        """What entries said that have no telling word."""
        return frozenset(_plain(row.text) for row in self.rows if not self._telling[row.number]) - {""}

    @cached_property
    def _telling(self) -> dict[int, set[str]]:
        """Of each amendment the words that tell of its entry."""
        found = {row.number: set(tokens(row.text)) - set(tokens(row.new or "")) for row in self.rows}
        left = set[str]().union(*found.values())
        for entry in self._entries:
            if not left:
                break
            if entry.kind not in ABSTRACT and not self.touches(entry.id, entry.sources):
                left.difference_update(tokens(entry.text))
        return {number: words & left for number, words in found.items()}


def _means(row: Amendment, entry: Entry) -> bool:
    if row.sources and set(row.sources).isdisjoint(entry.sources):
        return False
    return row.entry == entry.id or (row.kind == entry.kind and _plain(row.text) == _plain(entry.text))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def worded(entry: Entry, text: str) -> str:
    """The new text of an entry, on one line; that of a turn begins with who said it.

    Raises:
        UserError: It is empty, too long, or no plain text.
    """
    said = plain_line("text", text, LONGEST)
    speaker = f"{entry.speaker}: "
    return f"{speaker}{said}" if entry.text.startswith(speaker) and not said.startswith(speaker) else said


def plain_line(what: str, value: object, most: int) -> str:
    """A text on one line, as a store and a prompt can hold it.

    Raises:
        UserError: It is empty, too long, or no plain text.
    """
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{what} {value!a:.60} must be a text that is not empty")
    if len(value) > most:
        raise UserError(f"{what} has {len(value)} characters; use at most {most}")
    return " ".join(storable(value).split())


def storable(text: str) -> str:
    """A text that a store can hold.

    Raises:
        UserError: It holds NUL or half a character.
    """
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise UserError(f"the text {text!a:.60} holds NUL or half a character; use plain text")
    return text
