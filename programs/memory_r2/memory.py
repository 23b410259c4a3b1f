"""A list of dated facts about people, edited by operations that code applies and checks.

Nothing is lost: every wording that an update replaced is kept with its entry, a deleted entry moves to
`removed`, and what could not be applied is counted in `counts`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, PrivateAttr
from rpds import HashTrieMap

from ...memory.edits import is_as_written
from ...memory.entry import Entry
from ...memory.memory import Memory, MemoryPart
from ...records import latest
from ...records.shared_by_copies import SharedByCopies
from ...text import one_line

WORDINGS = 20
"""Earlier wordings kept with an entry (the released mention history keeps as many)."""


class StoredFact(MemoryPart):
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


@dataclass(frozen=True)
class Edit:
    """An operation, checked for its form but not yet against the memory."""

    op: Literal["INSERT", "UPDATE", "DELETE", "NONE"]
    memory_id: str | None = None
    speaker: str = ""
    content: str = ""
    sources: tuple[str, ...] = ()
    """Turn ids of the new information."""


def _no_ids() -> HashTrieMap[tuple[str, str], tuple[str, ...]]:
    return HashTrieMap()


@dataclass
class WordingIndex(SharedByCopies):
    """The ids of some facts, by who says what: a memory hands it on to the next one, which changes a few of them.

    It holds for one tuple of facts, and no other. Two of them are equal, so that memories are equal by their fields.
    """

    facts: tuple[StoredFact, ...] = field(default=(), compare=False)
    ids: HashTrieMap[tuple[str, str], tuple[str, ...]] = field(default_factory=_no_ids, compare=False)
    """Ids by speaker and content, earlier content of a fact included where it is known."""

    @classmethod
    def of(cls, facts: tuple[StoredFact, ...]) -> WordingIndex:
        """Return the index of what facts say now."""
        ids: dict[tuple[str, str], tuple[str, ...]] = {}
        for fact in facts:
            wording = (fact.speaker, fact.content)
            ids[wording] = (*ids.get(wording, ()), fact.id)
        return cls(facts, HashTrieMap(ids))

    def __reduce__(self) -> tuple[type[WordingIndex], tuple[()]]:
        # A pickled memory makes it anew.
        return WordingIndex, ()


class FactMemory(Memory[StoredFact]):
    """Facts in order of insertion."""

    facts: tuple[StoredFact, ...] = ()
    removed: tuple[StoredFact, ...] = ()
    """Deleted entries with their provenance; never searched."""
    issued: int = 0
    """Ids given so far."""
    counts: dict[str, int] = Field(default_factory=dict)
    """Edits by outcome: inserted, merged, updated, deleted, unchanged, refused."""
    _wording_index: WordingIndex = PrivateAttr(default_factory=WordingIndex)

    def apply(self, edits: Sequence[Edit], shown: Sequence[str] = (), time: datetime | None = None) -> FactMemory:
        """The memory after some edits.

        Args:
            edits: What to do, in order.
            shown: Ids the manager saw; an edit of any other entry is refused and counted.
            time: Date of the session the edits come from.

        Returns:
            A new memory. An INSERT of a fact that is there already, in the same letters and of the same speaker, merges
            its sources; an UPDATE unites sources and keeps the date of the first mention; an edit without content, or
            of an id that is not there, is refused. Entries that their user amended (`memory.edits`) take nothing in:
            what is said of them is an entry of its own.
        """
        draft = _Draft(self, set(shown), time)
        for edit in edits:
            draft.apply(edit)
        facts = tuple(draft.facts)
        after = self.replace(
            facts=facts,
            removed=(*self.removed, *draft.removed),
            issued=draft.issued,
            counts=dict(Counter(self.counts) + draft.counts),
        )
        after._wording_index = WordingIndex(facts, draft.wordings)
        return after

    def having(self, ids: Collection[str]) -> list[StoredFact]:
        """The facts of some ids, in order."""
        return [self.facts[place] for place in _places(self.facts, ids)]

    @property
    def wordings(self) -> HashTrieMap[tuple[str, str], tuple[str, ...]]:
        """Ids of facts by who says what, or said it once; look up whether the fact still says it."""
        # A copy of this memory with other facts has the index of these.
        if self._wording_index.facts is not self.facts:
            self._wording_index = WordingIndex.of(self.facts)
        return self._wording_index.ids

    @property
    def operations(self) -> Mapping[str, int]:
        return self.counts

    def parts(self) -> tuple[StoredFact, ...]:
        return self.facts

    def with_text(self, part: StoredFact, text: str) -> StoredFact:
        return part.replace(content=text, earlier=())

    def entry(self, part: StoredFact) -> Entry:
        about = {"kind": "fact", "sources": part.sources, "time": part.time, "speaker": part.speaker}
        return Entry(id=part.id, text=part.content, **about)


class _Draft:
    def __init__(self, memory: FactMemory, shown: set[str], time: datetime | None) -> None:
        self.facts, self.wordings = list(memory.facts), memory.wordings
        self.removed: list[StoredFact] = []
        self.issued = memory.issued
        self.counts: Counter[str] = Counter()
        self._entry, self._shown, self._time = memory.entry, shown, time

    def apply(self, edit: Edit) -> None:
        act = {"INSERT": self._insert, "UPDATE": self._update, "DELETE": self._delete}.get(edit.op)
        self.counts[act(edit) if act else "unchanged"] += 1

    def _insert(self, edit: Edit) -> str:
        content = one_line(edit.content)
        if not content:
            return "refused"
        places = _places(self.facts, self.wordings.get((edit.speaker, content), ()))
        same = (place for place in places if self.facts[place].content == content)
        known = next((place for place in same if is_as_written(self.facts[place], self._entry)), None)
        if known is not None:
            self._put(known, sources=_united(self.facts[known].sources, edit.sources))
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
        earlier = fact.earlier if content == fact.content else (*fact.earlier, fact.content)[-WORDINGS:]
        self._put(place, sources=sources, content=content, earlier=earlier)
        return "updated"

    def _delete(self, edit: Edit) -> str:
        place = self._target(edit)
        if place is None:
            return "refused"
        self.removed.append(self.facts.pop(place))
        return "deleted"

    def _add(self, speaker: str, content: str, sources: tuple[str, ...], time: datetime | None) -> None:
        self.issued += 1
        id, updated = f"m{self.issued}", self._time or time
        fact = StoredFact(id=id, speaker=speaker, content=content, sources=sources, time=time, updated=updated)
        self.facts.append(fact)
        self._say(fact)

    def _put(self, place: int, **changes: Any) -> None:
        fact = self.facts[place]
        self.facts[place] = fact.replace(**changes, updated=latest(fact.updated, self._time))
        self._say(self.facts[place])

    def _say(self, fact: StoredFact) -> None:
        said = fact.speaker, fact.content
        self.wordings = self.wordings.insert(said, _united(self.wordings.get(said, ()), (fact.id,)))

    def _target(self, edit: Edit) -> int | None:
        shown = edit.memory_id is not None and edit.memory_id in self._shown
        return next(iter(_places(self.facts, [edit.memory_id or ""] if shown else [])), None)


def _places(facts: Sequence[StoredFact], ids: Collection[str]) -> list[int]:
    """Where the facts of some ids are, in order; ids rise with the places."""
    found = {id: bisect_left(facts, _number(id), key=lambda fact: _number(fact.id)) for id in ids}
    return sorted(place for id, place in found.items() if place < len(facts) and facts[place].id == id)


def _number(id: str) -> int:
    return int(id[1:]) if id[1:].isdecimal() else 0


def _united(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
