"""A list of dated facts about people, edited by operations that code applies and checks.

    FactMemory ── apply(operations, sources, time) ──> FactMemory      (the old one is unchanged)

Nothing is lost: every wording that an update replaced is kept with its entry, a deleted entry moves to
`removed`, and what could not be applied is counted in `counts`.

Example:
    >>> from mempiler.programs.memory_r2.memory import Edit, FactMemory
    >>> memory = FactMemory().apply([Edit("INSERT", speaker="Ann", content="Ann lives in Lisbon")], ("D1:1",))
    >>> memory.facts[0].id
    'm1'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ...memory.amending import is_as_written
from ...memory.index import Entry
from ...memory.memory import Memory
from ...records import comparable

WORDINGS = 20
"""Earlier wordings kept with an entry (the released mention history keeps as many)."""


class StoredFact(BaseModel):
    """One entry of the memory."""

    model_config = ConfigDict(frozen=True)

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
        changed = {
            "facts": tuple(draft.facts),
            "removed": (*self.removed, *draft.removed),
            "issued": draft.issued,
            "counts": dict(Counter(self.counts) + draft.counts),
        }
        return self.model_copy(update=changed)

    def having(self, ids: Collection[str]) -> list[StoredFact]:
        """The facts of some ids, in order; ids that are not there are passed over."""
        return [fact for fact in self.facts if fact.id in ids]

    def entries(self) -> list[Entry]:
        return list(map(self.entry, self.facts))

    def parts(self) -> tuple[StoredFact, ...]:
        return self.facts

    def entry(self, part: StoredFact) -> Entry:
        return Entry(
            id=part.id,
            text=part.content,
            kind="fact",
            sources=part.sources,
            time=part.time,
            speaker=part.speaker,
        )


class _Draft:
    """The mutable state of one `apply`."""

    def __init__(self, memory: FactMemory, shown: set[str], time: datetime | None) -> None:
        self.facts = list(memory.facts)
        self._entry = memory.entry
        self.removed: list[StoredFact] = []
        self.issued = memory.issued
        self.counts: Counter[str] = Counter()
        self._shown = shown
        self._time = time

    def apply(self, edit: Edit) -> None:
        act = {"INSERT": self._insert, "UPDATE": self._update, "DELETE": self._delete}.get(edit.op)
        self.counts[act(edit) if act else "unchanged"] += 1

    def _insert(self, edit: Edit) -> str:
        content = " ".join(edit.content.split())
        if not content:
            return "refused"
        for place, fact in enumerate(self.facts):
            same = (fact.speaker, fact.content) == (edit.speaker, content)
            if same and is_as_written(fact, self._entry):
                changes = {"sources": _united(fact.sources, edit.sources), "updated": self._latest(fact)}
                self.facts[place] = fact.model_copy(update=changes)
                return "merged"
        self._add(edit.speaker, content, _united((), edit.sources), self._time)
        return "inserted"

    def _update(self, edit: Edit) -> str:
        place, content = self._target(edit), " ".join(edit.content.split())
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
        self.facts[place] = fact.model_copy(update=changes)
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
        new = StoredFact(id=id, speaker=speaker, content=content, sources=sources, time=time, updated=updated)
        self.facts.append(new)

    def _latest(self, fact: StoredFact) -> datetime | None:
        return max((time for time in (fact.updated, self._time) if time), key=comparable, default=None)

    def _target(self, edit: Edit) -> int | None:
        known = edit.memory_id is not None and edit.memory_id in self._shown
        return next((n for n, fact in enumerate(self.facts) if known and fact.id == edit.memory_id), None)


def _united(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
