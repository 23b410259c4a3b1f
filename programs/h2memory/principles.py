"""Principles out of topics, M_P: once by clustering, then topic by topic (Mem-PAL, "Principle").

    all topics       ── KMeans ──> clusters C_i ── abstract ──> types γ_i, principles ρ_i (4-1, 4-2)
    a later topic    ── nearest centre ──> principle ── adjust ──> γ_i, ρ_i           (4-3, 4-4)

The centre of a cluster is always the mean of the vectors of its members, so it is not stored.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import dspy
import numpy as np
from pydantic import Field

from ...memory.search.embedder import Embedder
from ...signatures.h2memory import Adjustment
from ...text import one_line
from ..predictor import Predictor
from ..settings import Settings
from ..threads import gather
from .memory import HeterogeneousMemory, Principle, Topic

T = TypeVar("T")

RESTARTS = 10
"""Starts of KMeans, of which the best counts."""


class PrincipleSettings(Settings):
    """How principles are made."""

    clusters: int = Field(default=8, ge=1, description="most clusters of needs (appendix C)")
    sample_per_cluster: int = Field(
        default=10, ge=1, description="most topics of a cluster that a prompt is shown (code)"
    )
    seed: int = Field(default=0, ge=0, description="of clusters and samples")
    clustered: bool = Field(
        default=True, description="if not, there is a principle for every topic (Table 4)"
    )
    online_month: bool = Field(
        default=True, description="whether dialogues of the history's last month join one by one"
    )


class PrinciplePrompts(Protocol):
    """The prompts of a writer that make and change principles, and how they are called."""

    abstract_need: Predictor
    abstract_preference: Predictor
    adjust_need: Predictor
    adjust_preference: Predictor

    def try_call(self, predictor: dspy.Module, **inputs: Any) -> dspy.Prediction | None:
        """Call a predictor; None if no answer can be read."""
        ...


class Centre(NamedTuple):
    """The centre of a cluster."""

    mean: np.ndarray
    """The mean of the vectors of its members, in double precision; shape (dimension,)."""
    size: int
    """How many members it has."""

    def with_member(self, vector: np.ndarray) -> Centre:
        """Return the centre after one more member joined the cluster."""
        size = self.size + 1
        return Centre(self.mean + (vector - self.mean) / size, size)


class _Assignment(NamedTuple):
    """A later topic, and the principle that it joins."""

    topic: Topic
    position: int
    """The position of the principle among those of the memory."""


class PrincipleMaker:
    """Gives every topic of a memory a principle.

    Args:
        prompts: The writer with the prompts.
        embedder: Compares needs.
        settings: How principles are made.
    """

    def __init__(
        self, prompts: PrinciplePrompts, embedder: Embedder, settings: PrincipleSettings
    ) -> None:
        self._prompts = prompts
        self._embedder = embedder
        self._settings = settings

    def assign_all(self, memory: HeterogeneousMemory) -> HeterogeneousMemory:
        """Return the memory in which every topic belongs to a principle."""
        new_topics = memory.unassigned_topics()
        if not new_topics:
            return memory
        if not self._settings.clustered:
            return self._add_principles(memory, [[topic] for topic in new_topics])

        # As long as fewer topics than clusters have been clustered, clusters are made anew.
        if memory.clustered < self._settings.clusters:
            memory = self._cluster(memory)
        return self._join(memory, memory.unassigned_topics())

    def _cluster(self, memory: HeterogeneousMemory) -> HeterogeneousMemory:
        """Return the memory with principles of clusters alone (initialisation of M_P)."""
        topics = self._topics_to_cluster(memory)
        clusters = cluster_rows(
            self._embed_needs(topics), self._settings.clusters, self._settings.seed
        )

        groups: list[list[Topic]] = []
        for rows in clusters:
            groups.append([topics[row] for row in rows])
        memory = memory.replace(principles=(), clustered=len(topics))
        return self._add_principles(memory, groups)

    def _topics_to_cluster(self, memory: HeterogeneousMemory) -> list[Topic]:
        """Return the topics of the history set, which are clustered; later ones join one by one.

        These are the topics before the last month if there are enough of them, or else all.
        """
        topics = list(memory.topics)
        end = memory.ended
        if not self._settings.online_month or end is None:
            return topics

        last_month = (end.year, end.month)
        early_topics: list[Topic] = []
        for topic in topics:
            if topic.time is None or (topic.time.year, topic.time.month) != last_month:
                early_topics.append(topic)
        if len(early_topics) < self._settings.clusters:
            return topics
        return early_topics

    def _embed_needs(self, topics: Sequence[Topic]) -> np.ndarray:
        """Return the vectors of needs, with shape (topics, dimension)."""
        return self._embedder.embed([topic.need for topic in topics])

    def _add_principles(
        self, memory: HeterogeneousMemory, groups: Sequence[Sequence[Topic]]
    ) -> HeterogeneousMemory:
        """Return the memory with a new principle for each group of topics."""
        calls: list[partial[Principle]] = []
        for number, group in enumerate(groups, start=len(memory.principles) + 1):
            calls.append(partial(self._make_principle, f"p{number}", group))
        return memory.replace(principles=(*memory.principles, *gather(calls)))

    def _make_principle(self, principle_id: str, topics: Sequence[Topic]) -> Principle:
        """Return the principle of a cluster C_i.

        It has the first need as its type if none can be read, and no preference if the topics
        showed none.
        """
        shown_topics = sample(topics, self._settings.sample_per_cluster, self._settings.seed)
        need_type = self._abstract_need(shown_topics) or shown_topics[0].need

        preference = ""
        preferences = _preferences_of(shown_topics)
        if preferences:
            preference = self._abstract_preference(need_type, preferences)
        return Principle(
            id=principle_id,
            need_type=need_type,
            preference=preference,
            members=tuple(topic.id for topic in topics),
        )

    def _join(self, memory: HeterogeneousMemory, topics: Sequence[Topic]) -> HeterogeneousMemory:
        """Return the memory in which later topics joined the principles with the nearest centres.

        Principles change dialogue by dialogue, since each change starts from the one before.
        """
        if not topics:
            return memory

        centres = self._centres_of(memory)
        positions = nearest_centres(self._embed_needs(topics), centres)
        assignments = [
            _Assignment(topic, position) for topic, position in zip(topics, positions, strict=True)
        ]
        for _, assignments_of_dialogue in groupby(assignments, key=_dialogue_of):
            memory = self._join_dialogue(memory, list(assignments_of_dialogue))
        return memory

    def _centres_of(self, memory: HeterogeneousMemory) -> list[Centre]:
        """Return the centre of every principle."""
        topics = {topic.id: topic for topic in memory.topics}
        centres: list[Centre] = []
        for principle in memory.principles:
            vectors = self._embed_needs([topics[topic_id] for topic_id in principle.members])
            centres.append(Centre(vectors.astype(np.float64).mean(axis=0), len(vectors)))
        return centres

    def _join_dialogue(
        self, memory: HeterogeneousMemory, assignments: Sequence[_Assignment]
    ) -> HeterogeneousMemory:
        """Return the memory in which the topics of one dialogue joined their principles."""
        topics_by_position: dict[int, list[Topic]] = {}
        for assignment in assignments:
            topics_by_position.setdefault(assignment.position, []).append(assignment.topic)

        positions = sorted(topics_by_position)
        calls: list[partial[Principle]] = []
        for position in positions:
            principle = memory.principles[position]
            calls.append(partial(self._adjust_principle, principle, topics_by_position[position]))

        principles = list(memory.principles)
        for position, principle in zip(positions, gather(calls), strict=True):
            principles[position] = principle
        return memory.replace(principles=tuple(principles))

    def _adjust_principle(self, principle: Principle, topics: Sequence[Topic]) -> Principle:
        """Return a principle that topics joined; its texts change only if that is necessary."""
        new_ids = [topic.id for topic in topics]
        principle = principle.replace(
            need_type=self._adjust_need(principle, topics),
            members=(*principle.members, *new_ids),
        )
        preferences = _preferences_of(topics)
        if not preferences:
            return principle

        if principle.preference:
            preference = self._adjust_preference(principle, preferences)
        else:
            # Earlier topics showed no preference: there is nothing to adjust yet.
            preference = self._abstract_preference(principle.need_type, preferences)
        return principle.replace(preference=preference)

    def _abstract_need(self, topics: Sequence[Topic]) -> str:
        """Ask for the type γ of several needs (step 4-1); "" if no answer can be read."""
        prediction = self._prompts.try_call(
            self._prompts.abstract_need, specific_needs=[topic.need for topic in topics]
        )
        if prediction is None:
            return ""
        return one_line(prediction.general_need)

    def _abstract_preference(self, need_type: str, preferences: Sequence[str]) -> str:
        """Ask for the principle ρ behind preferences (step 4-2); "" if no answer can be read."""
        prediction = self._prompts.try_call(
            self._prompts.abstract_preference,
            type_of_need=need_type,
            preference_experiences=preferences,
        )
        if prediction is None:
            return ""
        return one_line(prediction.general_preference)

    def _adjust_need(self, principle: Principle, topics: Sequence[Topic]) -> str:
        """Ask whether the type γ has to change because of later needs (step 4-3)."""
        prediction = self._prompts.try_call(
            self._prompts.adjust_need,
            type_so_far=principle.need_type,
            needs_since=[topic.need for topic in topics],
        )
        if prediction is None:
            return principle.need_type
        return _adjusted_text(principle.need_type, prediction.type_verdict)

    def _adjust_preference(self, principle: Principle, preferences: Sequence[str]) -> str:
        """Ask whether the principle ρ has to change because of later preferences (step 4-4)."""
        prediction = self._prompts.try_call(
            self._prompts.adjust_preference,
            kind_of_need=principle.need_type,
            principle_so_far=principle.preference,
            experiences_since=preferences,
        )
        if prediction is None:
            return principle.preference
        return _adjusted_text(principle.preference, prediction.principle_verdict)


def _preferences_of(topics: Sequence[Topic]) -> list[str]:
    """Return the preferences that topics showed."""
    return [topic.preference for topic in topics if topic.preference]


def _dialogue_of(assignment: _Assignment) -> str:
    return assignment.topic.dialogue


def _adjusted_text(text: str, verdict: Adjustment | None) -> str:
    """Return the text that a verdict puts in the place of another one, or that text itself."""
    if verdict is None or not verdict.adjust:
        return text
    return one_line(verdict.revised) or text


def cluster_rows(vectors: np.ndarray, count: int, seed: int) -> list[list[int]]:
    """Group rows by KMeans.

    Args:
        vectors: The rows, with shape (rows, dimension).
        count: Most clusters; there are no more than there are different rows.
        seed: Seeds the centres that KMeans starts with.

    Returns:
        For each cluster the positions of its rows, in order. Clusters are ordered by their first
        row.
    """
    if len(vectors) == 0:
        return []
    # In double precision, so that equal texts stay equal, and nearly equal ones are not split by
    # rounding.
    rows = np.asarray(vectors, dtype=np.float64)
    distinct_rows = np.unique(rows.round(6), axis=0)
    count = min(count, len(distinct_rows))
    if count < 2:
        return [list(range(len(rows)))]

    rows_by_label: dict[int, list[int]] = {}
    for row, label in enumerate(_kmeans_labels(rows, count, seed)):
        rows_by_label.setdefault(label, []).append(row)
    return list(rows_by_label.values())


def _kmeans_labels(rows: np.ndarray, count: int, seed: int) -> list[int]:
    """Return the label of the cluster of each row."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    # Type checkers take `n_init` for a str, from its default "auto".
    kmeans = KMeans(n_clusters=count, n_init=cast("Any", RESTARTS), random_state=seed)
    # A few hundred rows are done before other threads have begun, which then wait busily for one
    # another. OpenMP keeps the limit per calling thread: no other thread sees it.
    with threadpool_limits(1, user_api="openmp"):
        return kmeans.fit_predict(rows).tolist()


def nearest_centres(vectors: np.ndarray, centres: Sequence[Centre]) -> list[int]:
    """Return the position of the centre that each new row joins, row after row.

    A row joins the nearest centre, or the first of equally near ones. That centre then moves to
    the mean of its members.

    Args:
        vectors: The rows, with shape (rows, dimension).
        centres: The centres before.
    """
    moving_centres = list(centres)
    positions: list[int] = []
    for row in np.asarray(vectors, dtype=np.float64):
        distances = [np.linalg.norm(row - centre.mean) for centre in moving_centres]
        position = int(np.argmin(distances))
        moving_centres[position] = moving_centres[position].with_member(row)
        positions.append(position)
    return positions


def sample(members: Sequence[T], size: int, seed: int) -> list[T]:
    """Return at most `size` members, drawn at random by a seed, in their order."""
    if len(members) <= size:
        return list(members)
    positions = random.Random(seed).sample(range(len(members)), size)
    return [members[position] for position in sorted(positions)]
