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
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar, cast

import dspy
import numpy as np
from pydantic import Field

from ...memory.search.embedder import Embedder
from ...memory.tuning_range import TuningRange
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

    clusters: Annotated[int, TuningRange(2, 20)] = Field(
        default=8, ge=1, description="most clusters of needs (appendix C)"
    )
    sample_per_cluster: Annotated[int, TuningRange(3, 30, log=True)] = Field(
        default=10, ge=1, description="most topics of a cluster that a prompt is shown (code)"
    )
    seed: int = Field(default=0, ge=0, description="seed of the clusters and of the sampled topics")
    clustered: bool = Field(
        default=True,
        description="whether topics are clustered; off: a principle for every topic (Table 4)",
    )
    online_month: bool = Field(
        default=True,
        description="whether topics of the history's last month join the clusters one by one",
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
        """Return the centre after one more member, with this vector, joined the cluster."""
        size = self.size + 1
        # The mean of all members, without having to keep their vectors.
        mean = self.mean + (vector - self.mean) / size
        return Centre(mean, size)


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
        """Return the memory in which every topic belongs to a principle.

        At first, topics with similar needs are grouped into clusters, and each cluster gets a
        principle. Later topics join the principles that are there. If clusters are switched off,
        every topic gets a principle for itself.
        """
        new_topics = memory.unassigned_topics()
        if not new_topics:
            return memory

        uses_clusters = self._settings.clustered
        if not uses_clusters:
            single_topics = [[topic] for topic in new_topics]
            return self._add_principles(memory, groups=single_topics)

        # The clusters are made anew as long as they were made from too few topics: fewer than the
        # number of clusters that is wanted.
        clustered_topic_count = memory.clustered
        wanted_cluster_count = self._settings.clusters
        if clustered_topic_count < wanted_cluster_count:
            memory = self._cluster(memory)

        later_topics = memory.unassigned_topics()
        return self._join(memory, later_topics)

    def _cluster(self, memory: HeterogeneousMemory) -> HeterogeneousMemory:
        """Return the memory with its principles replaced: one for each cluster of similar needs."""
        topics = self._topics_to_cluster(memory)
        vectors = self._embed_needs(topics)
        clusters = cluster_rows(vectors, self._settings.clusters, self._settings.seed)

        # A cluster holds row numbers of `vectors`; row i is the need of topic i.
        groups: list[list[Topic]] = []
        for rows in clusters:
            groups.append([topics[row] for row in rows])
        # `clustered` is the number of topics that the clusters are made from.
        memory = memory.replace(principles=(), clustered=len(topics))
        return self._add_principles(memory, groups)

    def _topics_to_cluster(self, memory: HeterogeneousMemory) -> list[Topic]:
        """Return the topics that clusters are made from; all others join the clusters one by one.

        By default these are the topics from before the last month of the history, as in the paper.
        All topics are returned if these are fewer than the clusters, or if no time is known.
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
        """Return the vectors of the needs of topics, with shape (topics, dimension)."""
        return self._embedder.embed([topic.need for topic in topics])

    def _add_principles(
        self, memory: HeterogeneousMemory, groups: Sequence[Sequence[Topic]]
    ) -> HeterogeneousMemory:
        """Return the memory with one more principle for each group of topics.

        The model is asked about all groups at the same time.
        """
        calls: list[partial[Principle]] = []
        for number, group in enumerate(groups, start=len(memory.principles) + 1):
            calls.append(partial(self._make_principle, f"p{number}", group))
        new_principles = gather(calls)
        return memory.replace(principles=(*memory.principles, *new_principles))

    def _make_principle(self, principle_id: str, topics: Sequence[Topic]) -> Principle:
        """Return a new principle: the type of need that topics share, and what the user prefers.

        The model is shown a sample of the topics, but all of them become members. If the sample
        shows no preference, the principle has none either.
        """
        shown_topics = sample(topics, self._settings.sample_per_cluster, self._settings.seed)
        need_type = self._abstract_need(shown_topics)
        if not need_type:
            # No answer could be read. One of the needs stands for the type.
            need_type = shown_topics[0].need

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
        """Return the memory in which later topics have joined the principles for similar needs.

        A topic joins the principle with the nearest needs, and the model may then reword that
        principle. It is asked dialogue by dialogue, since a rewording starts from the last one.
        """
        if not topics:
            return memory

        centres = self._centres_of(memory)
        positions = nearest_centres(self._embed_needs(topics), centres)
        assignments = [
            _Assignment(topic, position) for topic, position in zip(topics, positions, strict=True)
        ]

        # `groupby` finds each dialogue once, since its topics stand next to one another.
        for _, assignments_of_dialogue in groupby(assignments, key=_dialogue_of):
            memory = self._join_dialogue(memory, list(assignments_of_dialogue))
        return memory

    def _centres_of(self, memory: HeterogeneousMemory) -> list[Centre]:
        """Return, for each principle, the mean of the vectors of its topics' needs."""
        topics_by_id = {topic.id: topic for topic in memory.topics}
        centres: list[Centre] = []
        for principle in memory.principles:
            members = [topics_by_id[topic_id] for topic_id in principle.members]
            vectors = self._embed_needs(members).astype(np.float64)
            centres.append(Centre(mean=vectors.mean(axis=0), size=len(vectors)))
        return centres

    def _join_dialogue(
        self, memory: HeterogeneousMemory, assignments: Sequence[_Assignment]
    ) -> HeterogeneousMemory:
        """Return the memory after the topics of one dialogue became members of principles.

        The model may reword a principle for its new members. It is asked about all of these
        principles at the same time.

        Args:
            memory: The memory before.
            assignments: The topics, each with the position of its principle in the memory.
        """
        topics_by_position: dict[int, list[Topic]] = {}
        for assignment in assignments:
            topics_by_position.setdefault(assignment.position, []).append(assignment.topic)

        positions = sorted(topics_by_position)
        calls: list[partial[Principle]] = []
        for position in positions:
            principle = memory.principles[position]
            calls.append(partial(self._adjust_principle, principle, topics_by_position[position]))
        adjusted_principles = gather(calls)

        principles = list(memory.principles)
        for position, principle in zip(positions, adjusted_principles, strict=True):
            principles[position] = principle
        return memory.replace(principles=tuple(principles))

    def _adjust_principle(self, principle: Principle, topics: Sequence[Topic]) -> Principle:
        """Return a principle with more topics, and with new wording where the model asks for it.

        First the type of need is adjusted, and then the preference, if the topics show any.
        """
        new_ids = [topic.id for topic in topics]
        principle = principle.replace(
            need_type=self._adjust_need(principle, topics),
            members=(*principle.members, *new_ids),
        )
        new_preferences = _preferences_of(topics)
        if not new_preferences:
            return principle

        if principle.preference:
            preference = self._adjust_preference(principle, new_preferences)
        else:
            # Earlier topics showed no preference, so there is no wording to adjust.
            preference = self._abstract_preference(principle.need_type, new_preferences)
        return principle.replace(preference=preference)

    def _abstract_need(self, topics: Sequence[Topic]) -> str:
        """Ask which type of need the needs of several topics have in common (step 4-1).

        Returns:
            The type of need in one sentence; "" if no answer can be read.
        """
        prediction = self._prompts.try_call(
            self._prompts.abstract_need, specific_needs=[topic.need for topic in topics]
        )
        if prediction is None:
            return ""
        return one_line(prediction.general_need)

    def _abstract_preference(self, need_type: str, preferences: Sequence[str]) -> str:
        """Ask what several preferences for one type of need have in common (step 4-2).

        Returns:
            The general preference; "" if no answer can be read.
        """
        prediction = self._prompts.try_call(
            self._prompts.abstract_preference,
            type_of_need=need_type,
            preference_experiences=preferences,
        )
        if prediction is None:
            return ""
        return one_line(prediction.general_preference)

    def _adjust_need(self, principle: Principle, topics: Sequence[Topic]) -> str:
        """Ask whether the type of need of a principle has to change because of later needs.

        A principle says what the user prefers for one type of need.

        Returns:
            The new wording. It is the old one if no change is needed, or if no answer can be read
            (step 4-3).
        """
        prediction = self._prompts.try_call(
            self._prompts.adjust_need,
            type_so_far=principle.need_type,
            needs_since=[topic.need for topic in topics],
        )
        if prediction is None:
            return principle.need_type
        return _adjusted_text(principle.need_type, prediction.type_verdict)

    def _adjust_preference(self, principle: Principle, preferences: Sequence[str]) -> str:
        """Ask whether the preference of a principle has to change because of later preferences.

        A principle says what the user prefers for one type of need.

        Returns:
            The new wording. It is the old one if no change is needed, or if no answer can be read
            (step 4-4).
        """
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
    """Return the revised text if a model's verdict asks for a revision, or else the old text."""
    if verdict is None or not verdict.adjust:
        return text
    # A model may ask for a revision and leave the revised text empty.
    return one_line(verdict.revised) or text


def cluster_rows(vectors: np.ndarray, count: int, seed: int) -> list[list[int]]:
    """Group similar vectors into clusters by k-means.

    Args:
        vectors: The rows, with shape (rows, dimension).
        count: Most clusters; there are no more than there are different rows.
        seed: Seeds the random centres that k-means starts with.

    Returns:
        For each cluster the positions of its rows, in order. Clusters are ordered by their first
        row.
    """
    if len(vectors) == 0:
        return []

    # Equal texts may have vectors that differ by rounding errors. These must not make a cluster:
    # hence double precision for k-means, and rounding where rows are told apart.
    rows = np.asarray(vectors, dtype=np.float64)
    distinct_rows = np.unique(rows.round(6), axis=0)
    cluster_count = min(count, len(distinct_rows))
    if cluster_count < 2:
        all_rows = list(range(len(rows)))
        return [all_rows]

    rows_by_label: dict[int, list[int]] = {}
    labels = _kmeans_labels(rows, cluster_count, seed)
    for row, label in enumerate(labels):
        rows_by_label.setdefault(label, []).append(row)
    return list(rows_by_label.values())


def _kmeans_labels(rows: np.ndarray, count: int, seed: int) -> list[int]:
    """Return the number of the cluster that k-means puts each row into.

    Args:
        rows: The vectors, with shape (rows, dimension).
        count: How many clusters to make.
        seed: Seeds the random centres that k-means starts with.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    # Type checkers take `n_init` for a str, from its default "auto".
    kmeans = KMeans(n_clusters=count, n_init=cast("Any", RESTARTS), random_state=seed)
    # One thread is fastest: a few hundred rows are done before other threads have even started,
    # and these would then burn CPU time waiting for one another. OpenMP keeps the limit per
    # calling thread, so other threads of this process are not limited.
    with threadpool_limits(1, user_api="openmp"):
        return kmeans.fit_predict(rows).tolist()


def nearest_centres(vectors: np.ndarray, centres: Sequence[Centre]) -> list[int]:
    """Return, for each new vector, the position of the centre that it joins.

    Vectors join one after another. A vector joins the nearest centre, or the first of equally near
    ones. The centre then moves to the mean of its members before the next vector joins.

    Args:
        vectors: The new vectors, with shape (rows, dimension).
        centres: The centres of the clusters before any of the vectors joins.
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
    """Return at most `size` of the members, drawn at random; they stay in their order.

    The same seed always draws the same members.
    """
    if len(members) <= size:
        return list(members)
    positions = random.Random(seed).sample(range(len(members)), size)
    return [members[position] for position in sorted(positions)]
