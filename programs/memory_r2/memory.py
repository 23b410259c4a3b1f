"""A list of dated facts about people, edited by operations that code applies and checks.

    FactMemory ── apply(operations, sources, time) ──> FactMemory      (the old one is unchanged)

Nothing is lost: every wording that an update replaced is kept with its entry, a deleted entry moves to
`removed`, and what could not be applied is counted in `counts`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

from pydantic import Field
from rpds import HashTrieMap

from ...memory.amending import is_as_written
from ...memory.index import Entry
from ...memory.memory import Memory, Stored
from ...records import latest, one_line

WORDINGS = 20
"""Earlier wordings kept with an entry (the released mention history keeps as many)."""


class StoredFact(Stored):
    """One entry of the memory."""

    id: str
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
    def said(self) -> tuple[str, str]:
        """Who said what: two facts that are alike in this are one."""
        return self.speaker, self.content


@dataclass(frozen=True)
class Edit:
    """An operation, checked for its form but not yet against the memory."""

    op: Literal["INSERT", "UPDATE", "DELETE", "NONE"]
    memory_id: str | None = None
    speaker: str = ""
    content: str = ""
    sources: tuple[str, ...] = ()
    """Turn ids of the new information."""


class FactMemory(Memory):
    """Facts in order of insertion."""

    facts: tuple[StoredFact, ...] = ()
    removed: tuple[StoredFact, ...] = ()
    """Deleted entries with their provenance; never searched."""
    issued: int = 0
    """Ids given so far."""
    counts: dict[str, int] = Field(default_factory=dict)
    """Edits by outcome: inserted, merged, updated, deleted, unchanged, refused."""

    def apply(self, edits: Sequence[Edit], shown: Sequence[str] = (), time: datetime | None = None) -> FactMemory:
        """The memory after some edits.

        Args:
            edits: What to do, in order.
            shown: Ids the manager saw; an edit of any other entry is refused and counted.
            time: Date of the session the edits come from.

        Returns:
            A new memory. An INSERT of a fact that is there already, in the same letters and of the same speaker, merges
            its sources; an UPDATE unites sources and keeps the date of the first mention; an edit without content, or
            of an id that is not there, is refused. Entries that their user amended (`memory.amending`) take nothing in:
            what is said of them is an entry of its own.
        """
        draft = _Draft(self, set(shown), time)
        for edit in edits:
            draft.apply(edit)
        after = self.changed(
            facts=tuple(draft.facts),
            removed=(*self.removed, *draft.removed),
            issued=draft.issued,
            counts=dict(Counter(self.counts) + draft.counts),
        )
        vars(after)["wordings"] = draft.wordings
        return after

    def having(self, ids: Collection[str]) -> list[StoredFact]:
        """The facts of some ids, in order; ids that are not there are passed over."""
        places = sorted(place for id in ids if (place := place_of(self.facts, id)) is not None)
        return [self.facts[place] for place in places]

    @cached_property
    def wordings(self) -> HashTrieMap[tuple[str, str], tuple[str, ...]]:
        """The facts of a speaker in the same words; what a memory has in common with the next one, they share."""
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        for fact in self.facts:
            found[fact.said] = (*found.get(fact.said, ()), fact.id)
        return HashTrieMap(found)

    def entries(self) -> list[Entry]:
        return list(map(self.entry, self.facts))

    def parts(self) -> tuple[StoredFact, ...]:
        return self.facts

    def entry(self, part: StoredFact) -> Entry:
        about = {"kind": "fact", "sources": part.sources, "time": part.time, "speaker": part.speaker}
        return Entry(id=part.id, text=part.content, **about)


class _Draft:
    """The mutable state of one `apply`."""

    def __init__(self, memory: FactMemory, shown: set[str], time: datetime | None) -> None:
        self.facts = list(memory.facts)
        self._entry = memory.entry
        self.wordings = memory.wordings
        self.removed: list[StoredFact] = []
        self.issued = memory.issued
        self.counts: Counter[str] = Counter()
        self._shown = shown
        self._time = time

    def apply(self, edit: Edit) -> None:
        act = {"INSERT": self._insert, "UPDATE": self._update, "DELETE": self._delete}.get(edit.op)
        self.counts[act(edit) if act else "unchanged"] += 1

    def _insert(self, edit: Edit) -> str:
        content = one_line(edit.content)
        if not content:
            return "refused"
        found = [place_of(self.facts, id) for id in self.wordings.get((edit.speaker, content), ())]
        same = [place for place in found if place is not None and is_as_written(self.facts[place], self._entry)]
        if same:
            place = min(same)
            fact = self.facts[place]
            self._put(place, {"sources": _united(fact.sources, edit.sources), "updated": self._latest(fact)})
            return "merged"
        self._add(edit.speaker, content, _united((), edit.sources), self._time)
        return "inserted"

    def _update(self, edit: Edit) -> str:
        place, content = self._target(edit), one_line(edit.content)
        if place is None or not content:
            return "refused"
        fact = self.facts[place]
        sources = _united(fact.sources, edit.sources)
        if not is_as_written(fact, self._entry):
            self._delete(edit)
            self._add(fact.speaker, content, sources, fact.time)
            return "updated"
        changes: dict[str, object] = {"sources": sources, "updated": self._latest(fact)}
        if content != fact.content:
            changes |= {"content": content, "earlier": (*fact.earlier, fact.content)[-WORDINGS:]}
        self._put(place, changes)
        return "updated"

    def _delete(self, edit: Edit) -> str:
        place = self._target(edit)
        if place is None:
            return "refused"
        self._unsay(self.facts[place])
        self.removed.append(self.facts.pop(place))
        return "deleted"

    def _add(self, speaker: str, content: str, sources: tuple[str, ...], time: datetime | None) -> None:
        self.issued += 1
        id, updated = f"m{self.issued}", self._time or time
        new = StoredFact(id=id, speaker=speaker, content=content, sources=sources, time=time, updated=updated)
        self.facts.append(new)
        self._say(new)

    def _put(self, place: int, changes: dict[str, object]) -> None:
        before = self.facts[place]
        self.facts[place] = after = before.model_copy(update=changes)
        if after.said != before.said:
            self._unsay(before)
            self._say(after)

    def _say(self, fact: StoredFact) -> None:
        self.wordings = self.wordings.insert(fact.said, (*self.wordings.get(fact.said, ()), fact.id))

    def _unsay(self, fact: StoredFact) -> None:
        others = tuple(id for id in self.wordings.get(fact.said, ()) if id != fact.id)
        self.wordings = self.wordings.insert(fact.said, others) if others else self.wordings.discard(fact.said)

    def _latest(self, fact: StoredFact) -> datetime | None:
        return latest(fact.updated, self._time)

    def _target(self, edit: Edit) -> int | None:
        known = edit.memory_id is not None and edit.memory_id in self._shown
        return place_of(self.facts, edit.memory_id) if known and edit.memory_id else None


def place_of(facts: Sequence[StoredFact], id: str) -> int | None:
    """Where the fact of an id is; None if it is not there. Ids rise, so that nearly always a few looks are enough."""
    place = bisect_left(facts, _number(id), key=lambda fact: _number(fact.id))
    if place < len(facts) and facts[place].id == id:
        return place
    return next((place for place, fact in enumerate(facts) if fact.id == id), None)


def _number(id: str) -> int:
    return int(id[1:]) if id[1:].isdecimal() else 0


def _united(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
