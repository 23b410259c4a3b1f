"""Principles out of topics: once by clustering, then topic by topic (Mem-PAL, steps 4-1 to 4-4).

    topics so far  ── clusters of their needs ── abstract ──> type of need ── abstract ──> principle
    later topics   ── nearest centre, dialogue by dialogue ── adjust ──> type of need ── adjust ──> principle

The clusters of one step do not depend on one another, so their calls run at once; of a cluster the type comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import dspy
import numpy as np

from ...errors import one_line
from ...memory.index import Embedder
from ..gather import gather
from .clusters import Principle, assigned, clusters, sampled
from .memory import HeterogeneousMemory
from .outlines import Topic

Asks = Callable[..., dspy.Prediction | None]
"""Calls a predictor by its attribute name; None where its output stays unparseable."""


@dataclass(frozen=True)
class Principles:
    """Makes and updates the principles of memories.

    Args:
        ask: Calls `abstract_need`, `abstract_preference`, `adjust_need` and `adjust_preference`.
        embedder: Vectors of needs.
        most: Clusters.
        sample: Topics of a cluster that a prompt is shown.
        seed: Of the clusters and of the samples.
        clustered: False: every topic has a principle of its own.
        online_month: Whether dialogues of the month in which the history ends join one by one.
    """

    ask: Asks
    embedder: Embedder
    most: int = 8
    sample: int = 10
    seed: int = 0
    clustered: bool = True
    online_month: bool = True

    def of(self, memory: HeterogeneousMemory) -> HeterogeneousMemory:
        """The memory in which every topic belongs to a principle."""
        new = memory.unassigned()
        if not new:
            return memory
        if not self.clustered:
            return self._abstracted(memory, [[topic] for topic in new])
        if memory.clustered < self.most:
            first = self._first(memory)
            memory = memory.changed(principles=(), clustered=len(first))
            groups = clusters(self._vectors(first), self.most, self.seed)
            memory = self._abstracted(memory, [[first[n] for n in group] for group in groups])
        return self._joined(memory, memory.unassigned())

    def _first(self, memory: HeterogeneousMemory) -> list[Topic]:
        """The topics to cluster: those before the last month if there are enough of them, or else all."""
        end = memory.ended
        if not self.online_month or end is None:
            return list(memory.topics)
        early = [t for t in memory.topics if t.time is None or (t.time.year, t.time.month) != (end.year, end.month)]
        return early if len(early) >= self.most else list(memory.topics)

    def _vectors(self, topics: Sequence[Topic]) -> np.ndarray:
        return self.embedder.embed([topic.need for topic in topics])

    def _abstracted(self, memory: HeterogeneousMemory, groups: Sequence[Sequence[Topic]]) -> HeterogeneousMemory:
        """The memory with a principle for each group of topics."""
        made = gather([lambda group=group: self._abstract(group) for group in groups])
        first = len(memory.principles) + 1
        new = [principle.model_copy(update={"id": f"p{n}"}) for n, (principle, _) in enumerate(made, first)]
        memory = memory.changed(principles=(*memory.principles, *new))
        return memory.deeper(principles=max(levels for _, levels in made))

    def _abstract(self, group: Sequence[Topic]) -> tuple[Principle, int]:
        """One group's principle, and the calls that followed one another for it."""
        shown = sampled(group, self.sample, self.seed)
        said = self.ask("abstract_need", specific_needs=[topic.need for topic in shown])
        kind = one_line(said and said.general_need) or shown[0].need
        principle = Principle(id="", need_type=kind, members=tuple(topic.id for topic in group))
        liked = [topic.preference for topic in shown if topic.preference]
        if not liked:
            return principle, 1
        said = self.ask("abstract_preference", type_of_need=kind, preference_experiences=liked)
        return principle.model_copy(update={"preference": one_line(said and said.general_preference)}), 2

    def _joined(self, memory: HeterogeneousMemory, topics: Sequence[Topic]) -> HeterogeneousMemory:
        """The memory in which later topics have joined the nearest principles, dialogue by dialogue."""
        if not topics:
            return memory
        needs = {topic.id: topic for topic in memory.topics}
        members = [self._vectors([needs[id] for id in one.members]) for one in memory.principles]
        centres = [rows.astype(np.float64).mean(0) for rows in members]
        places, _ = assigned(self._vectors(topics), centres, [len(rows) for rows in members])
        rows = list(zip(topics, places, strict=True))
        for _, dialogue in groupby(rows, key=lambda row: row[0].dialogue):
            memory = self._adjusted(memory, list(dialogue))
        return memory

    def _adjusted(self, memory: HeterogeneousMemory, rows: Sequence[tuple[Topic, int]]) -> HeterogeneousMemory:
        """The memory after one dialogue's topics have joined."""
        touched = sorted({place for _, place in rows})
        joining = {place: [topic for topic, other in rows if other == place] for place in touched}
        made = gather([lambda n=n: self._adjust(memory.principles[n], joining[n]) for n in touched])
        principles = list(memory.principles)
        for n, (principle, _) in zip(touched, made, strict=True):
            principles[n] = principle
        memory = memory.changed(principles=tuple(principles))
        return memory.deeper(principles=max(levels for _, levels in made))

    def _adjust(self, principle: Principle, topics: Sequence[Topic]) -> tuple[Principle, int]:
        members = (*principle.members, *(topic.id for topic in topics))
        said = self.ask("adjust_need", type_so_far=principle.need_type, needs_since=[topic.need for topic in topics])
        kind = _revised(said and said.type_verdict) or principle.need_type
        liked = [topic.preference for topic in topics if topic.preference]
        principle = principle.model_copy(update={"need_type": kind, "members": members})
        if not liked:
            return principle, 1
        if not principle.preference:
            # No preference was stated before: there is nothing to adjust yet.
            said = self.ask("abstract_preference", type_of_need=kind, preference_experiences=liked)
            text = one_line(said and said.general_preference)
        else:
            said = self.ask(
                "adjust_preference",
                kind_of_need=kind,
                principle_so_far=principle.preference,
                experiences_since=liked,
            )
            text = _revised(said and said.principle_verdict) or principle.preference
        return principle.model_copy(update={"preference": text}), 2


def _revised(verdict: Any) -> str:
    """The new text where a verdict asks for one and gives it."""
    return one_line(verdict.revised) if verdict and verdict.adjust else ""
