"""The changes that a user can make to one entry, each as the amendment that it becomes.

An amendment is stored beside the memory and applied whenever the memory is read
(`memory.edits`). A change here only makes it; `UserEntries` gives it its number, time and author,
and stores it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from ...errors import UserError
from ...memory.edits import Amendment, Amendments
from ...memory.entry import Entry
from ...memory.names import MAX_ENTRY_LENGTH, plain_line
from .view import MemoryView

_NO_NUMBER = 0
"""Stands for the number of an amendment that is not stored yet; `UserEntries` numbers it."""


class EntryChanger(Protocol):
    """A change that a user wants."""

    def amendment(self, view: MemoryView) -> Amendment | None:
        """Return the amendment that makes the change, or None if there is nothing to change.

        Raises:
            UserError: The change would not show, or is none.
        """
        ...


@dataclass(frozen=True)
class Rewording:
    """Another text for an entry."""

    entry_id: str
    text: str

    def amendment(self, view: MemoryView) -> Amendment | None:
        """Return the amendment, or None if there is no such entry.

        Raises:
            UserError: The text is empty, too long or the present one; or the entry is made from
                others and has no text of its own.
        """
        entry = _find_entry(view, self.entry_id)
        if entry is None:
            return None

        new_text = _with_speaker(entry, plain_line("text", self.text, MAX_ENTRY_LENGTH))
        label = f"the {entry.kind} {self.entry_id!r:.100}"
        if new_text == entry.text:
            raise UserError(f"{label} says this already; nothing is to be changed")

        amendment = Amendment(
            number=_NO_NUMBER,
            action="update",
            entry=self.entry_id,
            kind=entry.kind,
            old_text=entry.text,
            sources=entry.sources,
            new_text=new_text,
        )
        changed_entry = _find_entry(_with_amendment(view, amendment), self.entry_id)
        if changed_entry is None or changed_entry.text == entry.text:
            raise UserError(f"{label} cannot be changed by itself here; update its turns")
        return amendment


@dataclass(frozen=True)
class Deletion:
    """The removal of an entry."""

    entry_id: str

    def amendment(self, view: MemoryView) -> Amendment | None:
        """Return the amendment, or None if there is no such entry.

        Raises:
            UserError: The entry would not disappear, since the method makes it from others.
        """
        entry = _find_entry(view, self.entry_id)
        if entry is None:
            return None

        amendment = Amendment(
            number=_NO_NUMBER,
            action="delete",
            entry=self.entry_id,
            kind=entry.kind,
            old_text=entry.text,
            sources=entry.sources,
        )
        # Only the method knows whether an entry can be hidden, so it is tried.
        remaining_entry = _find_entry(_with_amendment(view, amendment), self.entry_id)
        if remaining_entry is not None:
            label = f"the {entry.kind} {self.entry_id!r:.100}"
            raise UserError(f"{label} cannot be changed by itself here; forget its session")
        return amendment


@dataclass(frozen=True)
class Undo:
    """The return to what an entry was before its last change."""

    entry_id: str
    """The id that the entry had when it was changed."""

    def amendment(self, view: MemoryView) -> Amendment | None:
        """Return the amendment that undoes the last change of the entry; None if there is none."""
        last_change: Amendment | None = None
        if view.amendments is not None:
            # Active amendments are sorted from the oldest to the newest. Changes that were undone
            # before are not among them.
            for amendment in view.amendments.active:
                if amendment.entry == self.entry_id:
                    last_change = amendment

        if last_change is None:
            return None
        # The copy keeps the texts, which the history shows. It also has the number, the author and
        # the time of the undone change: `UserEntries` replaces them when it stores the copy.
        return replace(last_change, action="undo", undoes=last_change.number)


def _find_entry(view: MemoryView, entry_id: str) -> Entry | None:
    """Return an entry of the memory, or a turn that is not in it yet; None if there is none."""
    current_entry = view.entries().get(entry_id)
    return current_entry.entry if current_entry else None


def _with_amendment(view: MemoryView, amendment: Amendment) -> MemoryView:
    """Return the memory as one more amendment would leave it."""
    edits = Amendments([amendment])
    memory = view.method.apply_edits(view.finalized, edits)
    pending_items = edits.amended_items(view.pending.items)
    return replace(view, finalized=memory, pending=replace(view.pending, items=pending_items))


def _with_speaker(entry: Entry, text: str) -> str:
    """Return a new text of an entry, with the speaker in front if the present text has it there.

    Turns say `Ada: I moved to Lisbon.`, and callers give the new words with or without `Ada: `.
    """
    speaker_prefix = f"{entry.speaker}: "
    if not entry.text.startswith(speaker_prefix):
        return text
    if text.startswith(speaker_prefix):
        return text
    return f"{speaker_prefix}{text}"
