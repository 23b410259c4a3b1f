"""Dated facts about a user, as PGR keeps them (section 3.2); a model words them, code gives ids and provenance.

Nothing is lost: the wording that an update or a merge replaces is kept in `earlier`, and not searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import TypeVar

import numpy as np

from ...memory.edits import is_as_written
from ...memory.entry import LABEL, Entry
from ...memory.memory import Memory, MemoryPart
from ...records import AnyItem, Item
from ...signatures.pgr import FactChange
from ...text import one_line

T = TypeVar("T")


class PersonalFact(MemoryPart):
    """One fact."""

    id: str
    info: str
    type: str
    """Identity, Preference, Goal, Interest, Activity or Event."""
    frequency: int = 1
    """How often it has come up."""
    entities: tuple[str, ...] = ()
    dates: tuple[datetime, ...] = ()
    """Dates of the sessions it comes from."""
    sessions: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    """Ids of the turns it rests on."""
    merged: tuple[str, ...] = ()
    """Ids of the facts it was consolidated from; empty for one that never was."""
    earlier: tuple[str, ...] = ()
    """Wordings that updates and merges replaced."""

    @property
    def latest(self) -> datetime | None:
        """Its most recent date."""
        return max(self.dates, key=lambda time: time.isoformat(), default=None)


class PersonalMemory(Memory[PersonalFact]):
    """What is kept for one user."""

    facts: tuple[PersonalFact, ...] = ()
    pending: tuple[AnyItem, ...] = ()
    """Sessions, or other items, that wait for the next upsert."""
    fresh: int = 0
    """Facts added since the last consolidation."""
    issued: int = 0
    """Ids given so far."""

    def upsert(self, changes: Sequence[FactChange], sessions: Sequence[Item]) -> PersonalMemory:
        """Takes changes in, with the dates, ids and turns of the sessions that they were read from as provenance.

        A change without words is refused. An update of a fact that is not there becomes a new one, and so do several
        that name the same fact: none says what has become of it. A fact that its user amended (`memory.edits`) takes
        nothing in: what it is updated to is a fact of its own in its place. Turn ids that are in none of the sessions
        do not count, and without any all turns do.

        Returns:
            A new memory without pending sessions. An update adds one to the frequency, whatever the model said.
        """
        facts = {fact.id: fact for fact in self.facts}
        amended = {fact.id for fact in self.facts if not is_as_written(fact, self.entry)}
        wordings = {_plain(fact.info): fact.id for fact in self.facts if fact.id not in amended}
        issued, added, clashes = self.issued, 0, clashing(changes)
        for change in changes:
            info, named = one_line(change.info), _named(change)
            if not info:
                continue
            known = named if named in facts and named not in clashes else wordings.get(_plain(info))
            if known is not None and known not in amended:
                facts[known] = _updated(facts[known], _fact(known, info, change, sessions))
            else:
                issued += 1
                new = _fact(f"f{issued}", info, change, sessions)
                if known is None:
                    added += 1
                else:
                    new = _updated(facts.pop(known), new).replace(id=new.id, earlier=())
                facts[new.id], known = new, new.id
            wordings[_plain(info)] = known
        return self.replace(facts=tuple(facts.values()), pending=(), fresh=self.fresh + added, issued=issued)

    def merge(self, ids: Sequence[str], info: str, type: str, entities: Sequence[str] = ()) -> PersonalMemory:
        """Puts one fact in the place of several; without words nothing is merged.

        The fact has the highest of their ids (the paper's rule), all dates, sessions and turns of its parts, and the
        sum of their frequencies. A type that none of them has gives way to the one most of them have.
        """
        parts = [fact for fact in self.facts if fact.id in set(ids)]
        info = one_line(info)
        if len(parts) < 2 or not info:
            return self
        types = Counter(fact.type for fact in parts)
        new = PersonalFact(
            id=max((fact.id for fact in parts), key=lambda id: int(id[1:])),
            info=info,
            type=type if type in types else types.most_common(1)[0][0],
            frequency=sum(fact.frequency for fact in parts),
            entities=_united(entities),
            dates=_united(time for fact in parts for time in fact.dates),
            sessions=_united(session for fact in parts for session in fact.sessions),
            sources=_united(turn for fact in parts for turn in fact.sources),
            merged=_united(id for fact in parts for id in (*fact.merged, fact.id)),
            earlier=_united(text for fact in parts for text in (*fact.earlier, fact.info)),
        )
        gone = {fact.id for fact in parts}
        kept = [new if fact.id == new.id else fact for fact in self.facts if fact.id == new.id or fact.id not in gone]
        return self.replace(facts=tuple(kept))

    def parts(self) -> tuple[PersonalFact, ...]:
        return self.facts

    def with_text(self, part: PersonalFact, text: str) -> PersonalFact:
        return part.replace(info=text, earlier=())

    def entry(self, part: PersonalFact) -> Entry:
        """A fact: the text is the info, shown with the type before it; the time is the most recent date."""
        about = {"kind": "fact", "sources": part.sources, "time": part.latest}
        return Entry(id=part.id, text=part.info, tags={LABEL: part.type}, **about)


def clashing(changes: Iterable[FactChange]) -> dict[str, int]:
    """The facts that several changes name at once, and how many do: a model has mistaken one id for the id of all."""
    named = Counter(map(_named, changes))
    return {id: times for id, times in named.items() if id and times > 1}


def _named(change: FactChange) -> str:
    return change.fact_id.strip() if change.state == "update" else ""


def merge_groups(
    facts: Sequence[PersonalFact], vectors: np.ndarray, min_cosine: float, window_days: int = 7
) -> list[tuple[str, ...]]:
    """Ids of each group of two or more facts that are to be merged with one another, in the order of the facts.

    Facts form a cluster when a chain of cosines of at least `min_cosine` joins them. A cluster is cut by date: its
    facts are taken by most recent date, and a group holds those at most `window_days` calendar days after its first.
    Facts without a date are a group of their own. The vectors are their embeddings, of length 1.
    """
    from scipy.sparse.csgraph import connected_components

    if not facts:
        return []
    wide = vectors.astype(np.float64)
    # Rounding must not push a pair of equal texts below a threshold of 1.
    labels = connected_components(wide @ wide.T >= min_cosine - 1e-6)[1]
    days = [fact.latest.date() if fact.latest else None for fact in facts]
    begun: dict[int, date] = {}
    groups: dict[tuple[int, date | None], list[int]] = {}
    for n in sorted(range(len(facts)), key=lambda n: days[n] or date.min):
        label, day = int(labels[n]), days[n]
        if day is not None and (label not in begun or (day - begun[label]).days > window_days):
            begun[label] = day
        groups.setdefault((label, day and begun[label]), []).append(n)
    found = sorted(sorted(group) for group in groups.values() if len(group) > 1)
    return [tuple(facts[n].id for n in group) for group in found]


def _fact(id: str, info: str, change: FactChange, sessions: Sequence[Item]) -> PersonalFact:
    of_turn: Mapping[str, Item] = {turn.id: session for session in sessions for turn in session.turns}
    turns = [turn for turn in (source.strip("[]() ") for source in change.turn_ids) if turn in of_turn]
    turns = turns or list(of_turn)
    used = list({of_turn[turn].id: of_turn[turn] for turn in turns}.values()) or list(sessions)
    return PersonalFact(
        id=id,
        info=info,
        type=change.type,
        entities=_united(change.related_entities),
        dates=_united(session.time for session in used if session.time is not None),
        sessions=_united(session.id for session in used),
        sources=_united(turns),
    )


def _updated(old: PersonalFact, new: PersonalFact) -> PersonalFact:
    replaced = (old.info,) if old.info != new.info else ()
    both = ("entities", "dates", "sessions", "sources")
    united = {name: _united((*getattr(old, name), *getattr(new, name))) for name in both}
    earlier = _united((*old.earlier, *replaced))
    return old.replace(info=new.info, type=new.type, frequency=old.frequency + 1, earlier=earlier, **united)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def _united(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))
