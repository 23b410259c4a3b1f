"""Principles out of topics: once by clustering, then topic by topic (Mem-PAL, steps 4-1 to 4-4; M_P).

A centre is always the mean of its members' vectors, so it is not stored.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeVar, cast

import numpy as np
from pydantic import Field

from ...memory.search.embedder import Embedder
from ...signatures.chinese import PromptLanguage
from ...text import one_line
from ..settings import Settings
from .._component import CallPredictor
from ..threads import gather
from .memory import HeterogeneousMemory, Principle, Topic

T = TypeVar("T")
RESTARTS = 10
"""Starts of KMeans, of which the best counts."""


class H2WriterSettings(Settings):
    """How the memory is written, and which parts of it there are."""

    clusters: int = Field(default=8, ge=1, description="most clusters of needs (appendix C)")
    sample_per_cluster: int = Field(default=10, ge=1, description="most topics of a cluster that a prompt is shown (code)")
    seed: int = Field(default=0, ge=0, description="of clusters and samples")
    clustered: bool = Field(default=True, description="if not, there is a principle for every topic (Table 4)")
    online_month: bool = Field(default=True, description="whether dialogues of the history's last month join one by one")
    use_situations: bool = Field(
        default=True, description="show situations (w/o M_G, Table 2: they still lead to a background)"
    )
    use_background: bool = Field(default=True, description="write and show the background (w/o M_B)")
    use_principles: bool = Field(default=True, description="make and show principles (w/o M_P)")
    situations: int = Field(default=3, ge=0, description="situations recalled per query, and shown where a need is refined")
    language: PromptLanguage = Field(
        default="English", description="of the prompts, English or Chinese; what they write is in the language of the texts"
    )
    window: int = Field(default=10, ge=1, description="logs per call that links them; it sees as many before (appendix C)")


class Principles:
    """Makes and updates the principles of memories."""

    def __init__(self, ask: CallPredictor, embedder: Embedder, settings: H2WriterSettings) -> None:
        self._ask, self._embedder, self._settings = ask, embedder, settings

    def of(self, memory: HeterogeneousMemory) -> HeterogeneousMemory:
        """The memory in which every topic belongs to a principle."""
        new = memory.unassigned()
        if not new:
            return memory
        if not self._settings.clustered:
            return self._abstracted(memory, [[topic] for topic in new])
        if memory.clustered < self._settings.clusters:
            first = self._first(memory)
            memory = memory.replace(principles=(), clustered=len(first))
            groups = clusters(self._vectors(first), self._settings.clusters, self._settings.seed)
            memory = self._abstracted(memory, [[first[n] for n in group] for group in groups])
        return self._joined(memory, memory.unassigned())

    def _first(self, memory: HeterogeneousMemory) -> list[Topic]:
        """The topics to cluster: those before the last month if there are enough of them, or else all."""
        end = memory.ended
        if not self._settings.online_month or end is None:
            return list(memory.topics)
        early = [t for t in memory.topics if t.time is None or (t.time.year, t.time.month) != (end.year, end.month)]
        return early if len(early) >= self._settings.clusters else list(memory.topics)

    def _vectors(self, topics: Sequence[Topic]) -> np.ndarray:
        return self._embedder.embed([topic.need for topic in topics])

    def _abstracted(self, memory: HeterogeneousMemory, groups: Sequence[Sequence[Topic]]) -> HeterogeneousMemory:
        made = gather([lambda group=group: self._abstract(group) for group in groups])
        first = len(memory.principles) + 1
        new = [principle.replace(id=f"p{n}") for n, principle in enumerate(made, first)]
        return memory.replace(principles=(*memory.principles, *new))

    def _abstract(self, group: Sequence[Topic]) -> Principle:
        shown = sampled(group, self._settings.sample_per_cluster, self._settings.seed)
        said = self._ask("abstract_need", specific_needs=[topic.need for topic in shown])
        kind = one_line(said and said.general_need) or shown[0].need
        principle = Principle(id="", need_type=kind, members=tuple(topic.id for topic in group))
        liked = [topic.preference for topic in shown if topic.preference]
        if not liked:
            return principle
        said = self._ask("abstract_preference", type_of_need=kind, preference_experiences=liked)
        return principle.replace(preference=one_line(said and said.general_preference))

    def _joined(self, memory: HeterogeneousMemory, topics: Sequence[Topic]) -> HeterogeneousMemory:
        if not topics:
            return memory
        needs = {topic.id: topic for topic in memory.topics}
        members = [self._vectors([needs[id] for id in one.members]) for one in memory.principles]
        centres = [rows.astype(np.float64).mean(0) for rows in members]
        places = assigned(self._vectors(topics), centres, [len(rows) for rows in members])
        rows = list(zip(topics, places, strict=True))
        for _, dialogue in groupby(rows, key=lambda row: row[0].dialogue):
            memory = self._adjusted(memory, list(dialogue))
        return memory

    def _adjusted(self, memory: HeterogeneousMemory, rows: Sequence[tuple[Topic, int]]) -> HeterogeneousMemory:
        touched = sorted({place for _, place in rows})
        joining = {place: [topic for topic, other in rows if other == place] for place in touched}
        made = gather([lambda n=n: self._adjust(memory.principles[n], joining[n]) for n in touched])
        principles = list(memory.principles)
        for n, principle in zip(touched, made, strict=True):
            principles[n] = principle
        return memory.replace(principles=tuple(principles))

    def _adjust(self, principle: Principle, topics: Sequence[Topic]) -> Principle:
        members = (*principle.members, *(topic.id for topic in topics))
        said = self._ask("adjust_need", type_so_far=principle.need_type, needs_since=[topic.need for topic in topics])
        kind = _revised(said and said.type_verdict) or principle.need_type
        liked = [topic.preference for topic in topics if topic.preference]
        principle = principle.replace(need_type=kind, members=members)
        if not liked:
            return principle
        if not principle.preference:
            # No preference was stated before: there is nothing to adjust yet.
            said = self._ask("abstract_preference", type_of_need=kind, preference_experiences=liked)
            text = one_line(said and said.general_preference)
        else:
            known = {"kind_of_need": kind, "principle_so_far": principle.preference}
            said = self._ask("adjust_preference", **known, experiences_since=liked)
            text = _revised(said and said.principle_verdict) or principle.preference
        return principle.replace(preference=text)


def _revised(verdict: Any) -> str:
    return one_line(verdict.revised) if verdict and verdict.adjust else ""


def clusters(vectors: np.ndarray, count: int, seed: int) -> list[list[int]]:
    """KMeans: groups of rows, by their first row; at most `count`, and no more than there are different rows."""
    if not len(vectors):
        return []
    # In double precision, so that equal texts stay equal and nearly equal ones are not split by rounding.
    rows = np.asarray(vectors, dtype=np.float64)
    count = min(count, len(np.unique(rows.round(6), axis=0)))
    if count < 2:
        return [list(range(len(rows)))]
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    means = KMeans(n_clusters=count, n_init=cast("Any", RESTARTS), random_state=seed)
    # A few hundred rows are done before other threads have begun, which then wait busily for one another. OpenMP keeps
    # the number per calling thread: no other one sees it.
    with threadpool_limits(1, user_api="openmp"):
        labels = means.fit_predict(rows)
    found: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        found.setdefault(label, []).append(row)
    return list(found.values())


def assigned(vectors: np.ndarray, centres: Sequence[np.ndarray], counts: Sequence[int]) -> list[int]:
    """The centre that each new row joins: the nearest, of equally near ones the first; it moves to its members' mean.

    `counts` are the members of each centre so far.
    """
    moved, sizes = [np.asarray(centre, dtype=np.float64) for centre in centres], list(counts)
    found: list[int] = []
    for row in np.asarray(vectors, dtype=np.float64):
        nearest = int(np.argmin([np.linalg.norm(row - centre) for centre in moved]))
        sizes[nearest] += 1
        moved[nearest] = moved[nearest] + (row - moved[nearest]) / sizes[nearest]
        found.append(nearest)
    return found


def sampled(members: Sequence[T], most: int, seed: int) -> list[T]:
    """At most `most` members, drawn by a seed, in their order."""
    if len(members) <= most:
        return list(members)
    chosen = random.Random(seed).sample(range(len(members)), most)
    return [members[n] for n in sorted(chosen)]
