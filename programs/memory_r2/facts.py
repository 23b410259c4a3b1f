"""Facts about people, and the operations of the memory manager that change a list of them.

Code applies the operations and checks them first (released code; rules of the prompt in Figure 7):

| operation | what it does                                                       | refused        |
|-----------|--------------------------------------------------------------------|----------------|
| INSERT    | adds a fact; a duplicate gives its turns to the fact that is there | no content     |
| UPDATE    | replaces the wording, keeps the old one, and unites the turns      | no content, id |
| DELETE    | moves the fact to the removed ones                                 | id             |
| NONE      | nothing                                                            | never          |

An id is refused if no fact has it, or if the manager was not shown the fact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from rpds import HashTrieMap

from ...memory.edits import is_as_written
from ...memory.entry import Entry
from ...memory.memory import MemoryPart
from ...records import latest
from ...text import one_line

MAX_EARLIER_WORDINGS = 20
"""Earlier wordings kept with a fact (the released mention history keeps as many)."""

Outcome = Literal["inserted", "merged", "updated", "deleted", "unchanged", "refused"]
"""What became of an edit."""


class Wording(NamedTuple):
    """What a fact says of whom; facts with the same wording are duplicates."""

    speaker: str
    content: str


FactIdsByWording: TypeAlias = "HashTrieMap[Wording, tuple[str, ...]]"
"""Ids of the facts that have a wording now, or once had it."""


# The docstring is part of the schema that keys of stored memories are made of.
class StoredFact(MemoryPart):
    """One entry of the memory."""

    id: str
    """The letter m and a number; numbers rise in the order of insertion."""
    speaker: str
    content: str
    sources: tuple[str, ...]
    """Ids of the turns it rests on, oldest first."""
    time: datetime | None = None
    """Date of the session that first mentioned it."""
    updated: datetime | None = None
    """Date of the latest session that mentioned it."""
    earlier: tuple[str, ...] = ()
    """Wordings that updates replaced, oldest first."""

    @property
    def wording(self) -> Wording:
        """The wording by which duplicates are found."""
        return Wording(self.speaker, self.content)

    def entry(self) -> Entry:
        """Return the fact in the form in which it is searched and shown."""
        return Entry(
            id=self.id,
            text=self.content,
            kind="fact",
            sources=self.sources,
            time=self.time,
            speaker=self.speaker,
        )


@dataclass(frozen=True)
class Edit:
    """An operation, checked for its form but not yet against the memory."""

    op: Literal["INSERT", "UPDATE", "DELETE", "NONE"]
    memory_id: str | None = None
    """Id of the fact to update or delete."""
    speaker: str = ""
    content: str = ""
    sources: tuple[str, ...] = ()
    """Ids of the turns that gave the new information."""


class FactDraft:
    """The facts of a memory while edits are applied to them, one after another.

    Facts that their user amended (`memory.edits`) are never reworded, and no duplicate is merged
    into them: what is said about them later becomes a fact of its own.

    Args:
        facts: The facts before the edits, in the order of their ids.
        ids_by_wording: The ids of these facts.
        issued: How many ids were given so far.
        shown_ids: Ids of the facts that the manager saw; only these may be updated or deleted.
        session_time: Date of the session that the edits come from.
    """

    def __init__(
        self,
        facts: Sequence[StoredFact],
        ids_by_wording: FactIdsByWording,
        issued: int,
        shown_ids: Collection[str],
        session_time: datetime | None,
    ) -> None:
        self.facts = list(facts)
        self.removed: list[StoredFact] = []
        self.ids_by_wording = ids_by_wording
        self.issued = issued
        self.outcomes: Counter[str] = Counter()
        self._shown_ids = set(shown_ids)
        self._session_time = session_time

    def apply_edit(self, edit: Edit) -> None:
        """Apply one edit to the facts, and count what became of it in `outcomes`."""
        outcome: Outcome
        if edit.op == "INSERT":
            outcome = self._insert(edit)
        elif edit.op == "UPDATE":
            outcome = self._update(edit)
        elif edit.op == "DELETE":
            outcome = self._delete(edit)
        else:
            outcome = "unchanged"
        self.outcomes[outcome] += 1

    def _insert(self, edit: Edit) -> Outcome:
        """Add a fact; if it is there already, only add the turns of the edit to its sources.

        An edit without content is refused.
        """
        content = one_line(edit.content)
        if not content:
            return "refused"

        wording = Wording(edit.speaker, content)
        position = self._position_of_duplicate(wording)
        if position is None:
            sources = _distinct(edit.sources)
            self._append_fact(wording, sources, self._session_time)
            return "inserted"

        duplicate = self.facts[position]
        sources = _distinct((*duplicate.sources, *edit.sources))
        self._replace_fact(position, duplicate.replace(sources=sources))
        return "merged"

    def _update(self, edit: Edit) -> Outcome:
        """Give a fact a new wording and further turns, and keep its earlier wordings.

        If the user changed the fact, a new fact with the new wording takes its place. An edit
        without content, or of a fact that the manager was not shown, is refused.
        """
        position = self._target_position(edit)
        content = one_line(edit.content)
        if position is None or not content:
            return "refused"

        fact = self.facts[position]
        sources = _distinct((*fact.sources, *edit.sources))
        # The user's words are stored under the id of the fact, and are shown instead of whatever
        # the fact says. Under a new id the manager's words are shown.
        if _is_changed_by_user(fact):
            self._remove_fact(position)
            self._append_fact(Wording(fact.speaker, content), sources, fact.time)
            return "updated"

        earlier_wordings = fact.earlier
        if content != fact.content:
            earlier_wordings = (*earlier_wordings, fact.content)[-MAX_EARLIER_WORDINGS:]
        updated_fact = fact.replace(sources=sources, content=content, earlier=earlier_wordings)
        self._replace_fact(position, updated_fact)
        return "updated"

    def _delete(self, edit: Edit) -> Outcome:
        position = self._target_position(edit)
        if position is None:
            return "refused"
        self._remove_fact(position)
        return "deleted"

    def _target_position(self, edit: Edit) -> int | None:
        """Return the position of the fact that an edit is to update or delete.

        None is returned if no fact has the id in the edit, or if the manager was not shown it.
        """
        if edit.memory_id is None or edit.memory_id not in self._shown_ids:
            return None
        return _position_of(self.facts, edit.memory_id)

    def _position_of_duplicate(self, wording: Wording) -> int | None:
        """Return the position of the oldest fact that says the same of the same speaker, or None.

        Facts that the user changed or deleted do not count, since the memory shows the user's words
        in their place.
        """
        candidate_ids = self.ids_by_wording.get(wording, ())
        for position in positions_of(self.facts, candidate_ids):
            fact = self.facts[position]
            # The index also holds the wordings that a fact had before an update.
            has_wording_now = fact.wording == wording
            if has_wording_now and not _is_changed_by_user(fact):
                return position
        return None

    def _append_fact(
        self, wording: Wording, sources: tuple[str, ...], first_time: datetime | None
    ) -> None:
        """Add a fact with the next free id.

        Args:
            wording: What the fact says of whom.
            sources: Ids of the turns that it rests on.
            first_time: Date of the session that mentioned it first.
        """
        self.issued += 1
        fact = StoredFact(
            id=f"m{self.issued}",
            speaker=wording.speaker,
            content=wording.content,
            sources=sources,
            time=first_time,
            updated=self._session_time or first_time,
        )
        self.facts.append(fact)
        self._add_wording(fact)

    def _replace_fact(self, position: int, fact: StoredFact) -> None:
        """Put a changed fact in its place, and date it to the session of the edits."""
        updated = latest(fact.updated, self._session_time)
        self.facts[position] = fact.replace(updated=updated)
        self._add_wording(fact)

    def _remove_fact(self, position: int) -> None:
        """Move a fact to the removed ones."""
        # Its id may stay in `ids_by_wording`: `positions_of` leaves out ids that are gone.
        self.removed.append(self.facts.pop(position))

    def _add_wording(self, fact: StoredFact) -> None:
        """Enter a fact with its present wording into the index of wordings."""
        wording = fact.wording
        known_ids = self.ids_by_wording.get(wording, ())
        fact_ids = _distinct((*known_ids, fact.id))
        self.ids_by_wording = self.ids_by_wording.insert(wording, fact_ids)


def _is_changed_by_user(fact: StoredFact) -> bool:
    """Return whether the user reworded or deleted a fact of the memory that is written now."""
    return not is_as_written(fact, StoredFact.entry)


def index_by_wording(facts: Iterable[StoredFact]) -> FactIdsByWording:
    """Return an index of facts: for each wording, the ids of the facts that have it now."""
    ids_by_wording: dict[Wording, tuple[str, ...]] = {}
    for fact in facts:
        wording = fact.wording
        known_ids = ids_by_wording.get(wording, ())
        ids_by_wording[wording] = (*known_ids, fact.id)
    return HashTrieMap(ids_by_wording)


def positions_of(facts: Sequence[StoredFact], ids: Iterable[str]) -> list[int]:
    """Return the positions of the facts with some ids, in ascending order.

    Ids that no fact has are left out.

    Args:
        facts: The facts, in the order of the numbers in their ids.
        ids: Ids in any order.
    """
    positions: set[int] = set()
    for fact_id in ids:
        position = _position_of(facts, fact_id)
        if position is not None:
            positions.add(position)
    return sorted(positions)


def _position_of(facts: Sequence[StoredFact], fact_id: str) -> int | None:
    """Return the position of the fact with an id; None if there is none."""
    # Facts stand in the order of the numbers in their ids, so that a binary search finds them.
    position = bisect_left(facts, _number_in(fact_id), key=_number_of)
    if position < len(facts) and facts[position].id == fact_id:
        return position
    return None


def _number_of(fact: StoredFact) -> int:
    return _number_in(fact.id)


def _number_in(fact_id: str) -> int:
    """Return 12 for "m12", and 0 for what is no id of a fact."""
    digits = fact_id[1:]
    return int(digits) if digits.isdecimal() else 0


def _distinct(ids: Iterable[str]) -> tuple[str, ...]:
    """Return ids without repetitions, in the order in which they first occur."""
    return tuple(dict.fromkeys(ids))
