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
        """Return the memory after sessions were read: facts are added or updated.

        A change updates the fact that it names, or else the fact with the same wording, and raises
        its frequency by one. If there is no such fact, the change adds a new fact. An id that
        several changes name does not count, since the model has mixed up ids.

        Args:
            changes: What a model read from the sessions; changes without a text are left out.
            sessions: What the changes were read from; facts get their dates and sources from these.
        """
        upsert = _Upsert(self, ambiguous_updates(changes))
        for change in changes:
            upsert.apply(change, sessions)
        return self.replace(
            facts=tuple(upsert.facts.values()),
            pending=(),  # no session waits any longer
            fresh=self.fresh + upsert.added_count,  # new facts since facts were last merged
            issued=upsert.issued,  # ids given so far
        )

    def merge(
        self, ids: Sequence[str], info: str, fact_type: str, entities: Sequence[str] = ()
    ) -> PersonalMemory:
        """Return the memory in which one fact replaces several (Memory Consolidation).

        The new fact takes the place and the id of the newest old fact, as in the paper's prompt.

        Args:
            ids: Ids of the facts to merge. Nothing is merged if fewer than two of them are there.
            info: What the new fact says; nothing is merged if it is blank.
            fact_type: The type of the new fact. If none of the old facts has this type, their most
                common type is taken instead.
            entities: Keywords of what the new fact is about.
        """
        old_facts = [fact for fact in self.facts if fact.id in ids]
        info = one_line(info)
        if len(old_facts) < 2 or not info:
            return self

        merged_fact = _merged_fact(old_facts, info, fact_type, entities)
        old_ids = {fact.id for fact in old_facts}
        facts: list[PersonalFact] = []
        for fact in self.facts:
            if fact.id == merged_fact.id:
                facts.append(merged_fact)
            elif fact.id not in old_ids:
                facts.append(fact)
        return self.replace(facts=tuple(facts))

    def parts(self) -> tuple[PersonalFact, ...]:
        """Return the facts; pending sessions are no parts."""
        return self.facts

    def with_text(self, part: PersonalFact, text: str) -> PersonalFact:
        """Return a fact with the text that its user wrote, and without earlier wordings."""
        return part.replace(info=text, earlier=())

    def entry(self, part: PersonalFact) -> Entry:
        """Return a fact as an entry; prompts show it with its type and its most recent date."""
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
        """How many facts were added, apart from those that replace an amended fact."""
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
        """Update the known fact that a change is about, or add a new fact.

        A fact that its user has amended is not updated but replaced, see `_replace_amended`.

        Args:
            change: What a model read; ignored if it has no text.
            sessions: What the model read it from.
        """
        info = one_line(change.info)
        if not info:
            return

        fact_id = self._known_id(change, info)
        if fact_id is None:
            fact_id = self._issue_id()
            self.facts[fact_id] = _fact_of(fact_id, info, change, sessions)
            self.added_count += 1
        elif fact_id in self._amended_ids:
            fact_id = self._replace_amended(fact_id, info, change, sessions)
        else:
            update = _fact_of(fact_id, info, change, sessions)
            self.facts[fact_id] = _updated_fact(self.facts[fact_id], update)

        # A later change with the same wording updates this fact, too.
        self._ids_by_wording[_plain(info)] = fact_id

    def _known_id(self, change: FactChange, info: str) -> str | None:
        """Return the id of the known fact that a change is about; None if there is no such fact.

        It is the fact that the change names, or else a fact with the same wording. An id that
        several changes name does not count: the model has mixed up ids.
        """
        named_id = _updated_id(change)
        if named_id in self.facts and named_id not in self._ambiguous_ids:
            return named_id
        return self._ids_by_wording.get(_plain(info))

    def _replace_amended(
        self, amended_id: str, info: str, change: FactChange, sessions: Sequence[Item]
    ) -> str:
        """Update a fact that its user has changed or deleted, under a new id.

        What the user changed is stored under the old id, and would be shown instead of the update.

        Returns:
            The new id.
        """
        new_id = self._issue_id()
        update = _fact_of(new_id, info, change, sessions)
        amended_fact = self.facts.pop(amended_id)
        updated_fact = _updated_fact(amended_fact, update)

        # Earlier texts are dropped, so that what the user removed does not live on.
        self.facts[new_id] = updated_fact.replace(id=new_id, earlier=())
        return new_id

    def _issue_id(self) -> str:
        """Return an id that no fact of the memory has ever had."""
        self.issued += 1
        return f"f{self.issued}"


def ambiguous_updates(changes: Iterable[FactChange]) -> dict[str, int]:
    """Return the ids of facts that several changes update at once, with the number of changes.

    A model that answers so has mixed up ids. None of these changes can be trusted to be about the
    fact that it names.
    """
    # Changes that add a fact are counted under "".
    update_counts = Counter(_updated_id(change) for change in changes)
    return {fact_id: count for fact_id, count in update_counts.items() if fact_id and count > 1}


def _updated_id(change: FactChange) -> str:
    """Return the id of the fact that a change updates; "" if it adds a fact."""
    return change.fact_id.strip() if change.state == "update" else ""


def _fact_of(fact_id: str, info: str, change: FactChange, sessions: Sequence[Item]) -> PersonalFact:
    """Return the fact that a change states, with the turns and sessions that it comes from.

    A change names its turns. If none of these is in the sessions, all turns count as its source.

    Args:
        fact_id: The id of the fact.
        info: The text of the fact.
        change: What a model read from the sessions.
        sessions: The sessions.
    """
    sessions_by_turn: dict[str, Item] = {}
    for session in sessions:
        for turn in session.turns:
            sessions_by_turn[turn.id] = session

    turn_ids = _named_turns(change, sessions_by_turn)
    if not turn_ids:
        turn_ids = list(sessions_by_turn)

    source_sessions = _sessions_of_turns(turn_ids, sessions_by_turn)
    if not source_sessions:  # the sessions have no turns at all
        source_sessions = list(sessions)

    times = [session.time for session in source_sessions if session.time is not None]
    return PersonalFact(
        id=fact_id,
        info=info,
        type=change.type,
        entities=_distinct(change.related_entities),
        dates=_distinct(times),
        sessions=_distinct(session.id for session in source_sessions),
        sources=_distinct(turn_ids),
    )


def _named_turns(change: FactChange, known_turns: Mapping[str, Item]) -> list[str]:
    """Return the ids of the turns that a change names as its source, without unknown ids."""
    # Prompts show turn ids in brackets, and a model may copy these too.
    turn_ids = [turn_id.strip("[]() ") for turn_id in change.turn_ids]
    return [turn_id for turn_id in turn_ids if turn_id in known_turns]


def _sessions_of_turns(turn_ids: Sequence[str], sessions_by_turn: Mapping[str, Item]) -> list[Item]:
    """Return the sessions that turns belong to, without repetitions.

    The parts of a long session share its id. They count as one session, the last part.
    """
    sessions_by_id: dict[str, Item] = {}
    for turn_id in turn_ids:
        session = sessions_by_turn[turn_id]
        sessions_by_id[session.id] = session
    return list(sessions_by_id.values())


def _updated_fact(fact: PersonalFact, update: PersonalFact) -> PersonalFact:
    """Return a fact with the text and type of its update, and with the sources of both.

    The old text moves to `earlier`.
    """
    earlier_texts = fact.earlier
    if fact.info != update.info:
        earlier_texts = (*earlier_texts, fact.info)
    return fact.replace(
        info=update.info,
        type=update.type,
        # In the paper the model counts; code cannot miscount.
        frequency=fact.frequency + 1,
        entities=_distinct((*fact.entities, *update.entities)),
        dates=_distinct((*fact.dates, *update.dates)),
        sessions=_distinct((*fact.sessions, *update.sessions)),
        sources=_distinct((*fact.sources, *update.sources)),
        earlier=_distinct(earlier_texts),
    )


def _merged_fact(
    old_facts: Sequence[PersonalFact], info: str, fact_type: str, entities: Sequence[str]
) -> PersonalFact:
    """Return one fact that replaces several: with a new text, and with the sources of all.

    Text, type and keywords come from a model. A type that none of the old facts has is not trusted;
    their most common type is taken instead. The id is that of the newest fact.
    """
    type_counts = Counter(fact.type for fact in old_facts)
    if fact_type not in type_counts:
        fact_type = type_counts.most_common(1)[0][0]

    dates: list[datetime] = []
    sessions: list[str] = []
    sources: list[str] = []
    merged_ids: list[str] = []
    earlier_texts: list[str] = []
    for fact in old_facts:
        dates.extend(fact.dates)
        sessions.extend(fact.sessions)
        sources.extend(fact.sources)
        # An old fact may itself be a merged one, and may have had other texts before.
        merged_ids.extend((*fact.merged, fact.id))
        earlier_texts.extend((*fact.earlier, fact.info))

    newest_fact = max(old_facts, key=_id_number)
    return PersonalFact(
        id=newest_fact.id,
        info=info,
        type=fact_type,
        frequency=sum(fact.frequency for fact in old_facts),
        entities=_distinct(entities),
        dates=_distinct(dates),
        sessions=_distinct(sessions),
        sources=_distinct(sources),
        merged=_distinct(merged_ids),
        earlier=_distinct(earlier_texts),
    )


def merge_groups(
    facts: Sequence[PersonalFact], vectors: np.ndarray, min_cosine: float, window_days: int = 7
) -> list[tuple[str, ...]]:
    """Find the groups of two or more facts that are similar and close in time (section 3.2).

    Such facts probably say the same, so a model is asked to merge them.

    Args:
        facts: The facts.
        vectors: Their embeddings, of length 1, one row per fact.
        min_cosine: The lowest cosine of two similar facts.
        window_days: Most calendar days between the latest dates of two facts of a group.

    Returns:
        The ids of each group. Groups, and the ids in a group, are in the order of the facts.
    """
    if not facts:
        return []

    groups: list[list[int]] = []
    for cluster in _clusters(vectors, min_cosine):
        groups.extend(_split_by_date(cluster, facts, window_days))

    # A group holds positions of facts. Sorting these puts groups into the order of the facts.
    groups_to_merge = sorted(sorted(group) for group in groups if len(group) > 1)
    return [tuple(facts[position].id for position in group) for group in groups_to_merge]


def _clusters(vectors: np.ndarray, min_cosine: float) -> list[list[int]]:
    """Group the rows of `vectors` by similarity; return the row numbers of each group.

    Two rows are similar if their cosine is at least `min_cosine`. A group also holds rows that are
    similar through others: if a is similar to b and b to c, all three are in one group.
    """
    # Imported here: importing SciPy's graphs takes a second, and most programs merge nothing.
    from scipy.sparse.csgraph import connected_components

    precise_vectors = vectors.astype(np.float64)
    cosines = precise_vectors @ precise_vectors.T
    # Rounding may leave the cosine of equal texts just below 1, hence the tolerance.
    is_similar = cosines >= min_cosine - COSINE_TOLERANCE
    _, labels = connected_components(is_similar)

    rows_by_label: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        rows_by_label.setdefault(label, []).append(row)
    return list(rows_by_label.values())


def _split_by_date(
    cluster: Sequence[int], facts: Sequence[PersonalFact], window_days: int
) -> list[list[int]]:
    """Split a cluster of similar facts into groups of facts that are close in time.

    The time of a fact is the latest date on which it came up. A group spans at most `window_days`.
    Facts without a date form one group, which may be empty.

    Args:
        cluster: Positions of the facts of the cluster in `facts`.
        facts: All facts.
        window_days: Most calendar days from the first fact of a group to its last.

    Returns:
        The positions of each group.
    """
    undated: list[int] = []
    dated: list[tuple[date, int]] = []
    for position in cluster:
        latest_time = facts[position].latest
        if latest_time is None:
            undated.append(position)
        else:
            dated.append((latest_time.date(), position))

    groups = [undated]
    first_day: date | None = None
    for day, position in sorted(dated):
        begins_group = first_day is None or (day - first_day).days > window_days
        if begins_group:
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
    """Return a text in the form in which texts of facts are compared.

    Case, the amount of white space and final full stops make no difference.
    """
    return " ".join(text.casefold().split()).rstrip(".")


def _distinct(values: Iterable[T]) -> tuple[T, ...]:
    """Return the values in their order, each once."""
    return tuple(dict.fromkeys(values))
