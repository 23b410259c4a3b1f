"""Dated facts about a user, as PGR keeps them (section 3.2): how they change, and which may merge.

A model words the facts. Code gives them ids, counts how often they came up, and keeps their
provenance:

    memory = memory.upsert(changes, sessions)               # every few sessions
    for ids in merge_groups(facts, vectors, 0.8):           # every 50 new facts
        memory = memory.merge(ids, info, fact_type)

Nothing is lost: a wording that an update or a merge replaces is kept in `earlier`, and not
searched.
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

COSINE_TOLERANCE = 1e-6
"""Cosines of equal texts may be rounded to less than 1; a threshold of 1 must not part them."""


# The docstrings of these two classes, and their fields, are part of the key of stored memories.


class PersonalFact(MemoryPart):
    """One fact."""

    id: str
    """f1, f2, ... in the order in which facts were first written."""
    info: str
    """What it says."""
    type: str
    """Identity, Preference, Goal, Interest, Activity or Event."""
    frequency: int = 1
    """How often it has come up."""
    entities: tuple[str, ...] = ()
    """Keywords of what it is about."""
    dates: tuple[datetime, ...] = ()
    """Dates of the sessions it comes from."""
    sessions: tuple[str, ...] = ()
    """Ids of the sessions it comes from."""
    sources: tuple[str, ...] = ()
    """Ids of the turns it rests on."""
    merged: tuple[str, ...] = ()
    """Ids of the facts it was consolidated from; empty for one that never was."""
    earlier: tuple[str, ...] = ()
    """Wordings that updates and merges replaced."""

    @property
    def latest(self) -> datetime | None:
        """Its most recent date."""
        return max(self.dates, key=_iso_format, default=None)


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
        """Return a memory with changes in it and without pending sessions (Memory Upsert).

        An update of a fact that is not there adds a new fact. So do several updates of one fact.
        A change in the words of a known fact updates it.

        Args:
            changes: What a model read from the sessions: new facts, and updates of known ones. A
                change without words is left out. An update adds one to the frequency of its fact.
            sessions: What the changes were read from; gives them dates and provenance.
        """
        upsert = _Upsert(self, ambiguous_updates(changes))
        for change in changes:
            upsert.apply(change, sessions)
        return self.replace(
            facts=tuple(upsert.facts.values()),
            pending=(),
            fresh=self.fresh + upsert.added_count,
            issued=upsert.issued,
        )

    def merge(
        self, ids: Sequence[str], info: str, fact_type: str, entities: Sequence[str] = ()
    ) -> PersonalMemory:
        """Return a memory with one fact in the place of several (Memory Consolidation).

        The fact has the highest of their ids (as in the paper's prompt), all dates, sessions and
        turns of its parts, and the sum of their frequencies.

        Args:
            ids: Ids of the facts.
            info: What they say together; without words nothing is merged.
            fact_type: The type of the fact. If none of its parts has it, the type that most of
                them have is taken instead.
            entities: Keywords of what the fact is about.
        """
        parts = [fact for fact in self.facts if fact.id in ids]
        info = one_line(info)
        if len(parts) < 2 or not info:
            return self

        merged_fact = _merged_fact(parts, info, fact_type, entities)
        part_ids = {part.id for part in parts}
        facts: list[PersonalFact] = []
        for fact in self.facts:
            if fact.id == merged_fact.id:
                facts.append(merged_fact)
            elif fact.id not in part_ids:
                facts.append(fact)
        return self.replace(facts=tuple(facts))

    def parts(self) -> tuple[PersonalFact, ...]:
        return self.facts

    def with_text(self, part: PersonalFact, text: str) -> PersonalFact:
        return part.replace(info=text, earlier=())

    def entry(self, part: PersonalFact) -> Entry:
        """Return the entry of a fact: its info, shown with its type in front and its last date."""
        return Entry(
            id=part.id,
            text=part.info,
            kind="fact",
            sources=part.sources,
            time=part.latest,
            tags={LABEL: part.type},
        )


class _Upsert:
    """The facts of a memory while changes are applied to them one by one.

    Args:
        memory: The memory before the changes.
        ambiguous_ids: Ids that several of the changes name; an update of one adds a new fact.
    """

    def __init__(self, memory: PersonalMemory, ambiguous_ids: Iterable[str]) -> None:
        self.facts = {fact.id: fact for fact in memory.facts}
        """All facts by id."""
        self.issued = memory.issued
        """Ids given so far."""
        self.added_count = 0
        """New facts; the successor of an amended fact is none."""
        self._ambiguous_ids = set(ambiguous_ids)
        self._amended_ids: set[str] = set()
        """Facts whose text their user changed or deleted; they take nothing in."""
        self._ids_by_wording: dict[str, str] = {}
        """The other facts, by what they say."""
        for fact in memory.facts:
            if is_as_written(fact, memory.entry):
                self._ids_by_wording[_plain(fact.info)] = fact.id
            else:
                self._amended_ids.add(fact.id)

    def apply(self, change: FactChange, sessions: Sequence[Item]) -> None:
        """Update the fact that a change names, or that says the same; else add a new fact."""
        info = one_line(change.info)
        if not info:
            return

        fact_id = self._known_id(change, info)
        if fact_id is None:
            fact_id = self._issue_id()
            self.facts[fact_id] = _fact_of(fact_id, info, change, sessions)
            self.added_count += 1
        elif fact_id in self._amended_ids:
            fact_id = self._succeed_amended(fact_id, info, change, sessions)
        else:
            update = _fact_of(fact_id, info, change, sessions)
            self.facts[fact_id] = _updated_fact(self.facts[fact_id], update)
        self._ids_by_wording[_plain(info)] = fact_id

    def _known_id(self, change: FactChange, info: str) -> str | None:
        """Return the id of the fact that a change is about; None if it is about a new one."""
        updated_id = _updated_id(change)
        if updated_id in self.facts and updated_id not in self._ambiguous_ids:
            return updated_id
        return self._ids_by_wording.get(_plain(info))

    def _succeed_amended(
        self, amended_id: str, info: str, change: FactChange, sessions: Sequence[Item]
    ) -> str:
        """Put a new fact in the place of one that its user amended, and return its id.

        The amendment holds for the old id. Earlier wordings stay behind with it.
        """
        fact_id = self._issue_id()
        update = _fact_of(fact_id, info, change, sessions)
        successor = _updated_fact(self.facts.pop(amended_id), update)
        self.facts[fact_id] = successor.replace(id=fact_id, earlier=())
        return fact_id

    def _issue_id(self) -> str:
        self.issued += 1
        return f"f{self.issued}"


def ambiguous_updates(changes: Iterable[FactChange]) -> dict[str, int]:
    """Return the ids of facts that several changes update at once, each with their number.

    A model that answers so has mistaken one id for the id of all. None of the updates can be
    trusted to say what has become of the fact.
    """
    updates = Counter(_updated_id(change) for change in changes)
    return {fact_id: count for fact_id, count in updates.items() if fact_id and count > 1}


def _updated_id(change: FactChange) -> str:
    """Return the id of the fact that a change updates; "" if it adds one."""
    return change.fact_id.strip() if change.state == "update" else ""


def _fact_of(fact_id: str, info: str, change: FactChange, sessions: Sequence[Item]) -> PersonalFact:
    """Return a change as a fact, with its provenance.

    The provenance is the turns that the change names and the sessions of these turns. Turn ids that
    are in none of the sessions do not count; if no other is named, all turns are the provenance.
    """
    session_by_turn: dict[str, Item] = {}
    for session in sessions:
        for turn in session.turns:
            session_by_turn[turn.id] = session

    turn_ids = _named_turns(change, session_by_turn) or list(session_by_turn)
    source_sessions: dict[str, Item] = {}
    for turn_id in turn_ids:
        session = session_by_turn[turn_id]
        source_sessions[session.id] = session

    # Without any turn, the sessions themselves are the provenance.
    provenance = list(source_sessions.values()) or sessions
    return PersonalFact(
        id=fact_id,
        info=info,
        type=change.type,
        entities=_distinct(change.related_entities),
        dates=_distinct(session.time for session in provenance if session.time is not None),
        sessions=_distinct(session.id for session in provenance),
        sources=_distinct(turn_ids),
    )


def _named_turns(change: FactChange, known_turns: Mapping[str, Item]) -> list[str]:
    """Return those of the turn ids that a change names which are known."""
    # Prompts show turn ids in brackets, and a model may copy these too.
    turn_ids = [turn_id.strip("[]() ") for turn_id in change.turn_ids]
    return [turn_id for turn_id in turn_ids if turn_id in known_turns]


def _updated_fact(fact: PersonalFact, update: PersonalFact) -> PersonalFact:
    """Return a fact with the words and type of its update, and with the provenance of both."""
    earlier = fact.earlier
    if fact.info != update.info:
        earlier = (*earlier, fact.info)
    return fact.replace(
        info=update.info,
        type=update.type,
        # The paper's prompt has the model increment it; code cannot miscount.
        frequency=fact.frequency + 1,
        entities=_distinct((*fact.entities, *update.entities)),
        dates=_distinct((*fact.dates, *update.dates)),
        sessions=_distinct((*fact.sessions, *update.sessions)),
        sources=_distinct((*fact.sources, *update.sources)),
        earlier=_distinct(earlier),
    )


def _merged_fact(
    parts: Sequence[PersonalFact], info: str, fact_type: str, entities: Sequence[str]
) -> PersonalFact:
    """Return one fact for several, see `PersonalMemory.merge`."""
    types = Counter(part.type for part in parts)
    if fact_type not in types:
        fact_type = types.most_common(1)[0][0]

    dates: list[datetime] = []
    sessions: list[str] = []
    sources: list[str] = []
    merged_ids: list[str] = []
    wordings: list[str] = []
    for part in parts:
        dates.extend(part.dates)
        sessions.extend(part.sessions)
        sources.extend(part.sources)
        merged_ids.extend((*part.merged, part.id))
        wordings.extend((*part.earlier, part.info))

    newest_part = max(parts, key=_id_number)
    return PersonalFact(
        id=newest_part.id,
        info=info,
        type=fact_type,
        frequency=sum(part.frequency for part in parts),
        entities=_distinct(entities),
        dates=_distinct(dates),
        sessions=_distinct(sessions),
        sources=_distinct(sources),
        merged=_distinct(merged_ids),
        earlier=_distinct(wordings),
    )


def merge_groups(
    facts: Sequence[PersonalFact], vectors: np.ndarray, min_cosine: float, window_days: int = 7
) -> list[tuple[str, ...]]:
    """Return the ids of each group of facts to merge, in the order of the facts (section 3.2).

    The facts of a group are alike and close in time. Each group has two or more.

    Args:
        facts: The facts.
        vectors: Their embeddings, of length 1, one row per fact.
        min_cosine: The lowest cosine of two facts that are alike.
        window_days: Most calendar days from the first fact of a group, by latest date, to its last.
    """
    if not facts:
        return []

    groups: list[list[int]] = []
    for cluster in _clusters(vectors, min_cosine):
        groups.extend(_split_by_date(cluster, facts, window_days))

    mergeable = [sorted(group) for group in groups if len(group) > 1]
    return [tuple(facts[position].id for position in group) for group in sorted(mergeable)]


def _clusters(vectors: np.ndarray, min_cosine: float) -> list[list[int]]:
    """Return clusters of rows: two rows are in one if a chain of similar rows joins them."""
    # Imported here: importing SciPy's graphs takes a second, and most programs merge nothing.
    from scipy.sparse.csgraph import connected_components

    precise_vectors = vectors.astype(np.float64)
    cosines = precise_vectors @ precise_vectors.T
    _, labels = connected_components(cosines >= min_cosine - COSINE_TOLERANCE)

    clusters: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        clusters.setdefault(label, []).append(row)
    return list(clusters.values())


def _split_by_date(
    cluster: Sequence[int], facts: Sequence[PersonalFact], window_days: int
) -> list[list[int]]:
    """Return a cluster of positions in groups of facts with close latest dates.

    A group holds the facts at most `window_days` after its first. Facts without a date are a group
    of their own.
    """
    undated: list[int] = []
    dated: list[tuple[date, int]] = []
    for position in cluster:
        latest = facts[position].latest
        if latest is None:
            undated.append(position)
        else:
            dated.append((latest.date(), position))

    groups = [undated]
    first_day: date | None = None
    for day, position in sorted(dated):
        if first_day is None or (day - first_day).days > window_days:
            first_day = day
            groups.append([])
        groups[-1].append(position)
    return groups


def _iso_format(time: datetime) -> str:
    # Times with and without a zone cannot be compared; their texts can.
    return time.isoformat()


def _id_number(fact: PersonalFact) -> int:
    return int(fact.id.removeprefix("f"))


def _plain(text: str) -> str:
    """Return a wording without what makes no difference: case, white space and a final stop."""
    return " ".join(text.casefold().split()).rstrip(".")


def _distinct(values: Iterable[T]) -> tuple[T, ...]:
    """Return the values in their order, each once."""
    return tuple(dict.fromkeys(values))
