"""A user's corrections of single entries, and how they are applied when a memory is read.

A correction is stored beside the memory, as an `Amendment`, and never written into it: the memory
that a writer goes on with stays as it was written. So a correction can be undone, and it outlives
further sessions and a rebuild, which gives entries other ids. `Amendments` applies those that are
in force, whenever the memory is read:

    >>> from mempiler.memory.edits import Amendment, Amendments
    >>> from mempiler.memory.entry import Entry
    >>> correction = Amendment(
    ...     number=1,
    ...     action="update",
    ...     entry="f1",
    ...     kind="fact",
    ...     old_text="Ada lives in Lissabon",
    ...     sources=("D1:1",),
    ...     new_text="Ada lives in Lisbon",
    ... )
    >>> edits = Amendments([correction])
    >>> fact = Entry(id="f1", kind="fact", text="Ada lives in Lissabon", sources=("D1:1",))
    >>> edits.visible_entry(fact).text
    'Ada lives in Lisbon'
    >>> rebuilt = fact.model_copy(update={"id": "f7"})
    >>> edits.visible_entry(rebuilt).text
    'Ada lives in Lisbon'

An amendment holds for the entry of its id, for entries of its kind in the same words, and, if it
deletes a turn, for entries that rest on deleted turns alone. Each must share a turn with it.
What a model wrote from an entry in other words stays; forgetting the session removes that too.

`EntryEdits` is the contract that readers of a method are given (`Reader.with_edits`). Amendments
are one kind of edits. A search in some sessions only is another: it hides all other entries.

Writers that show entries to a model must show what the user sees. They are called deep inside of a
program, with no parameter for it, so `amendment_scope` puts the edits into a context variable, and
`amended_entry` and `is_as_written` read it.
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
from .entry import Entry
from .names import StorableText

PartT = TypeVar("PartT")

_MAX_NUMBER = 2**31 - 1
"""Numbers of amendments are less, so that an integer column of a database holds them."""


@dataclass(frozen=True)
class Amendment:
    """One change that a user made to one entry, as it is stored."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    number: Annotated[int, Field(ge=1, lt=_MAX_NUMBER)]
    """Amendments of a user are numbered from 1 in the order in which they came. Numbers are missing
    where forgetting a session has deleted amendments."""
    action: Literal["delete", "update", "undo"]
    entry: StorableText
    """The id of the entry."""
    kind: StorableText
    """The kind of the entry, e.g. `turn` or `fact`."""
    old_text: StorableText
    """The text of the entry before the change."""
    sources: tuple[StorableText, ...]
    """Ids of the turns that the entry rests on."""
    new_text: StorableText | None = None
    """The text of the entry after an update; None after a deletion."""
    at: datetime | None = None
    """When the change was made, in UTC without a zone."""
    by: StorableText = ""
    """Who made the change, in the words of the caller."""
    undoes: Annotated[int, Field(ge=0, lt=_MAX_NUMBER)] = 0
    """The number of the amendment that an undo takes back; 0 for every other one."""

    @property
    def line(self) -> str:
        """The change on one line, without its texts.

        An example is `delete of D1:2 (turn), 2025-03-05 18:20, by ada`.
        """
        line = f"{self.action} of {self.entry} ({self.kind})"
        if self.at:
            line += f", {self.at:%Y-%m-%d %H:%M}"
        if self.by:
            line += f", by {self.by}"
        return line

    @property
    def is_of_turn(self) -> bool:
        """Whether the entry is a raw turn: its only source is itself."""
        return self.sources == (self.entry,)

    def applies_to(self, entry: Entry) -> bool:
        """Return whether an entry is the one that was changed, by its id or by its words.

        Ids change when a memory is written anew, so an entry of the same kind with the same words
        counts as well. In both cases it must come from one of the turns of the entry that was
        changed, if that came from any.
        """
        if self.sources and set(self.sources).isdisjoint(entry.sources):
            return False
        if self.entry == entry.id:
            return True
        return self.kind == entry.kind and _normalized(self.old_text) == _normalized(entry.text)


def active_amendments(amendments: Iterable[Amendment]) -> tuple[Amendment, ...]:
    """Return the amendments that are still in force, in the same order.

    Left out are undos, and amendments that an undo has taken back.
    """
    amendments = tuple(amendments)
    undone_numbers = {amendment.undoes for amendment in amendments}
    return tuple(
        amendment
        for amendment in amendments
        if amendment.action != "undo" and amendment.number not in undone_numbers
    )


class EntryEdits:
    """Decides for each entry of a memory whether it is visible, and with which text.

    Subclasses override `edited_entry` and, where they need to, `touches`, `visible_entry`,
    `amended_turn` or `amended_item`.
    """

    def touches(self, entry_id: str, sources: Sequence[str]) -> bool:
        """Return whether these edits may change or hide an entry.

        This is a cheap check before the others; it may be True for an entry that stays as it is.

        Args:
            entry_id: The id of the entry.
            sources: Ids of the turns that the entry comes from.
        """
        return True

    def edited_entry(self, entry: Entry) -> Entry | None:
        """Return an entry as the user's edits of this very entry leave it, or None if hidden.

        Edits of other entries, e.g. of the turns it comes from, do not count here. An entry that
        does not change is returned as the same object.
        """
        raise NotImplementedError

    def visible_entry(self, entry: Entry) -> Entry | None:
        """Return an entry as its user sees it, or None if it is hidden.

        A subclass may also hide an entry because all turns that it comes from are hidden.
        """
        return self.edited_entry(entry)

    def amended_turn(self, turn: Turn) -> Turn | None:
        """Return a raw turn as its user sees it, or None if it is hidden."""
        return turn

    def amended_items(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """Return raw items as their user sees them: without hidden turns."""
        return tuple(self.amended_item(item) for item in items)

    def amended_item(self, item: Item) -> Item:
        """Return a raw item as its user sees it: without hidden turns, others perhaps reworded.

        An item that does not change is returned as the same object.
        """
        if not any(self.touches(turn.id, (turn.id,)) for turn in item.turns):
            return item

        visible_turns: dict[str, Turn] = {}
        for turn in item.turns:
            visible_turn = self.amended_turn(turn)
            if visible_turn is not None:
                visible_turns[turn.id] = visible_turn

        # First leave out the hidden turns, then put in the turns with another text.
        if len(visible_turns) < len(item.turns):
            item = item.select_turns(visible_turns.keys())
        if all(visible_turns[turn.id] is turn for turn in item.turns):
            return item
        return item.model_copy(update={"turns": tuple(visible_turns.values())})

    def amended_parts(
        self,
        parts: Sequence[PartT],
        entry: Callable[[PartT], Entry],
        with_text: Callable[[PartT, str], PartT],
    ) -> tuple[PartT, ...]:
        """Return the parts of a memory as their user sees them, without hidden ones.

        A part is what an entry is made from, e.g. a fact. Parts that do not change are returned as
        the same objects.

        Args:
            parts: What `Memory.parts` returned.
            entry: `Memory.entry`, which makes the entry of a part.
            with_text: `Memory.with_text`, which gives a part another text.
        """
        visible_parts: list[PartT] = []
        for part in parts:
            written_entry = entry(part)
            if not self.touches(written_entry.id, written_entry.sources):
                visible_parts.append(part)
                continue

            visible_entry = self.visible_entry(written_entry)
            if visible_entry is None:
                continue
            if visible_entry.text == written_entry.text:
                visible_parts.append(part)
            else:
                visible_parts.append(with_text(part, visible_entry.text))
        return tuple(visible_parts)

    def amended_entries(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return entries as their user sees them, without hidden ones.

        Entries that do not change are returned as the same objects.
        """
        # An entry is its own part.
        return self.amended_parts(entries, _entry_itself, _entry_with_text)


class Amendments(EntryEdits):
    """The amendments of a user that are in force.

    Args:
        active: The amendments that `active_amendments` returns, oldest first.
    """

    def __init__(self, active: Sequence[Amendment]) -> None:
        self.active = tuple(active)
        self._by_entry: dict[str, list[Amendment]] = {}
        self._by_turn: dict[str, list[Amendment]] = {}
        for amendment in active:
            self._by_entry.setdefault(amendment.entry, []).append(amendment)
            for turn_id in amendment.sources:
                self._by_turn.setdefault(turn_id, []).append(amendment)

        self._deleted_turn_ids = {
            amendment.entry
            for amendment in active
            if amendment.is_of_turn and amendment.new_text is None
        }

    def touches(self, entry_id: str, sources: Sequence[str]) -> bool:
        """Return whether an amendment names the entry, or one of the turns that it comes from."""
        return entry_id in self._by_entry or not self._by_turn.keys().isdisjoint(sources)

    def edited_entry(self, entry: Entry) -> Entry | None:
        """Return an entry with the text of its last amendment, or None if one deletes it."""
        for amendment in self._candidates(entry):
            if not amendment.applies_to(entry):
                continue
            if amendment.new_text is None:
                return None
            # The user may have changed the new text again: later amendments are compared with it.
            entry = _entry_with_text(entry, amendment.new_text)
        return entry

    def visible_entry(self, entry: Entry) -> Entry | None:
        """Return an entry as its user sees it, or None if the user deleted it.

        An entry that the user left alone is also hidden if the user deleted all of its turns.
        """
        edited_entry = self.edited_entry(entry)
        is_changed = edited_entry is not entry
        if is_changed:
            # What the user did with the entry itself counts, whatever became of its turns.
            return edited_entry

        are_all_deleted = self._deleted_turn_ids.issuperset(entry.sources)
        if entry.sources and are_all_deleted:
            return None
        return entry

    def amended_turn(self, turn: Turn) -> Turn | None:
        """Return a raw turn with the words that its user gave it last, or None if it was deleted.

        An entry of a turn has one text, `speaker: words [image caption]`, which the user edits as a
        whole. So the new text of an amendment replaces both the words and the caption.
        """
        # Amendments come oldest first, so the words of the last one stay.
        for amendment in self._by_entry.get(turn.id, ()):
            # Another entry, e.g. a fact, may have the same id as the turn.
            if not amendment.is_of_turn:
                continue
            # None stands for a deletion. Undone deletions are not among these amendments.
            if amendment.new_text is None:
                return None
            words = amendment.new_text.removeprefix(f"{turn.speaker}: ")
            turn = turn.model_copy(update={"text": words, "caption": None})
        return turn

    def is_deleted_text(self, text: str) -> bool:
        """Return whether a text is what some entry said before its user changed or deleted it."""
        return _normalized(text) in self._former_texts

    @cached_property
    def hidden_turn_ids(self) -> frozenset[str]:
        """Ids of turns that must not be shown as evidence any more.

        These are the turns of deleted entries, and turns whose own words were changed.
        """
        turn_ids: set[str] = set()
        for amendment in self.active:
            if amendment.new_text is None or amendment.is_of_turn:
                turn_ids.update(amendment.sources)
        return frozenset(turn_ids)

    @cached_property
    def _former_texts(self) -> frozenset[str]:
        """The texts that entries had before they were changed or deleted, normalized."""
        return frozenset(_normalized(amendment.old_text) for amendment in self.active)

    def _candidates(self, entry: Entry) -> list[Amendment]:
        """Return the amendments that may be about an entry, oldest first.

        They name the id of the entry, or a turn that it comes from. `Amendment.applies_to` decides.
        """
        # By number, because an amendment may be found both by the id and by a turn.
        by_number = {amendment.number: amendment for amendment in self._by_entry.get(entry.id, ())}
        for turn_id in entry.sources:
            for amendment in self._by_turn.get(turn_id, ()):
                by_number[amendment.number] = amendment
        return [by_number[number] for number in sorted(by_number)]


_writer_edits: ContextVar[EntryEdits | None] = ContextVar("mempiler_writer_edits", default=None)
"""The user's edits, for a writer that runs inside of `amendment_scope`; None outside of it."""


def amendment_scope(edits: EntryEdits) -> AbstractContextManager[None]:
    """Let writers that run in the `with` block see entries as the user's edits leave them."""
    return set_context(_writer_edits, edits)


def amended_entry(part: PartT, entry: Callable[[PartT], Entry]) -> Entry | None:
    """Return the entry of a part as its user sees it, or None if it is hidden.

    Writers call it; the user's edits come from the `amendment_scope` in which they run.

    Args:
        part: What the entry is made from, e.g. a fact.
        entry: `Memory.entry` of that memory.
    """
    edits = _writer_edits.get()
    written_entry = entry(part)
    if edits is None:
        return written_entry
    return edits.visible_entry(written_entry)


def is_as_written(part: PartT, entry: Callable[[PartT], Entry]) -> bool:
    """Return whether the user neither changed nor deleted the entry of a part.

    Writers call it; the user's edits come from the `amendment_scope` in which they run.

    Args:
        part: What the entry is made from, e.g. a fact.
        entry: `Memory.entry` of that memory.
    """
    if _writer_edits.get() is None:
        return True
    visible_entry = amended_entry(part, entry)
    return visible_entry is not None and visible_entry.text == entry(part).text


def _entry_itself(entry: Entry) -> Entry:
    """Stand in for `Memory.entry` where the parts are entries."""
    return entry


def _entry_with_text(entry: Entry, text: str) -> Entry:
    """Return a copy of an entry with another text."""
    return entry.model_copy(update={"text": text})


def _normalized(text: str) -> str:
    """Return a text for comparisons: lower case, single spaces, no full stops at the end."""
    return " ".join(text.casefold().split()).rstrip(".")
