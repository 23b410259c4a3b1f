"""The reader of H2Memory: what each part of the memory gives for a query.

See "Memory-based RAG" in the paper:

    m = {R(M_G^j), F_GB(R(M_G^j)), R(M_T^(j)), F_TP(R(M_T^(j)))}

    logs       3 situations of the current session (M_G^j) ──> their backgrounds (M_B)
    dialogues  3 topics of all sessions (M_T)              ──> their principles (M_P)

Situations and topics are searched even where they are switched off (w/o M_G, w/o M_T). Then they
are not shown, but their backgrounds and principles are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import cast

from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry, hit_as_entry
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...records import Context, Hit, Query, estimate_tokens, in_blocks
from ...records.query import About
from ...signatures.chinese import in_language
from ...signatures.h2memory import Aspect, SummarizeNeed
from ...text import one_line
from ..predictor import predictor
from ..reader import EntryReader
from .memory import Background, HeterogeneousMemory, Principle, Situation, Topic
from .writer import MemorySettings

BLOCKS = {
    "situation": "Recent situations of the user",
    "background": "Background of the user",
    "topic": "Needs of earlier dialogues, each with its date",
    "principle": "Principles drawn from many dialogues",
}
"""The headings of the four parts: a need of before must not read like the one at hand."""

_COUNT_NAMES = {
    "situation": "situations",
    "background": "backgrounds",
    "topic": "topics",
    "principle": "principles",
}
"""What the numbers of hits are called in the counts of a context, by the kind of the hits."""

_SHOWN = "shown"
"""The tag of entries that may be shown. Others only lead to another part."""

SearchedPart = Situation | Topic | Entry
"""A part of a memory that is searched; of a background or a principle, its entry."""


class RecallSettings(MemorySettings):
    """How the memory is written, and what of it is recalled."""

    use_topics: bool = Field(
        default=True, description="show topics (w/o M_T: they still lead to principles)"
    )
    topics: int = Field(default=3, ge=0, description="topics recalled per query")


class UserReader(EntryReader[HeterogeneousMemory]):
    """Recall from all four parts, or those that the settings leave.

    Args:
        settings: What is recalled, and how much.
        embedder: Compares queries with situations and needs.
    """

    settings: RecallSettings

    def __init__(self, settings: RecallSettings, embedder: Embedder) -> None:
        indexes = IndexCache(
            embedder,
            parts=partial(searched_parts, settings=settings),
            part_entries=partial(_entries_of_part, settings),
        )
        super().__init__(indexes=indexes, settings=settings)
        self.summarize_need = predictor(in_language(SummarizeNeed, settings.language))

    def search(
        self,
        memory: HeterogeneousMemory,
        queries: Sequence[str],
        k: int = 10,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Search by cosine in all parts that are shown, and in situations of all sessions."""
        lowest = 0.0 if min_score is None else min_score
        hits_per_query = self.indexes.search(memory, queries, k, lowest, where=_is_shown)
        return [complete_hits(memory, hits) for hits in hits_per_query]

    def entries(self, memory: HeterogeneousMemory) -> Sequence[Entry]:
        """Return all parts that are shown, with their whole text."""
        searched_entries = super().entries(memory)
        hits = [entry.hit() for entry in searched_entries if _is_shown(entry)]
        return [hit_as_entry(hit) for hit in complete_hits(memory, hits)]

    def with_edits(self, memory: HeterogeneousMemory, edits: EntryEdits) -> HeterogeneousMemory:
        return with_edits(memory, edits)

    def recall(self, memory: HeterogeneousMemory, query: Query) -> Context:
        """Return the context m of a query; empty, without a call, for an empty memory.

        The hits are situations, backgrounds, topics and principles, in this order. `counts` holds
        how many of each there are, the `tokens` of all, and the LM `calls`.
        """
        if not memory.situations and not memory.topics:
            return Context()

        query_text = query.search_text
        call_count = 0
        if query.modality == "dialogue":
            query_text = self._summarize_need(query_text)
            call_count = 1

        # A task about needs is shown no solutions and no preferences (appendix C).
        about = query.about or "solutions"
        log_hits = self._recall_from_logs(memory, query_text)
        dialogue_hits = self._recall_from_dialogues(memory, query_text, about)
        context = Context(hits=in_blocks([*log_hits, *dialogue_hits], BLOCKS))

        counts = {name: len(context.with_kinds(kind)) for kind, name in _COUNT_NAMES.items()}
        counts["tokens"] = estimate_tokens(context.text())
        counts["calls"] = call_count
        return context.model_copy(update={"counts": counts})

    def _summarize_need(self, dialogue: str) -> str:
        """Ask what the user of a dialogue needs now; the dialogue itself if there is no answer.

        The summary is the query ("Query Generation for Multi-turn Dialogue Interaction").
        """
        prediction = self.try_call(self.summarize_need, dialogue_so_far=dialogue)
        if prediction is None:
            return dialogue
        return one_line(prediction.current_need) or dialogue

    def _recall_from_logs(self, memory: HeterogeneousMemory, query_text: str) -> list[Hit]:
        """Return R(M_G^j) and F_GB of it: situations of the current session, and backgrounds."""
        situations = {situation.id: situation for situation in memory.current_situations}
        nearest = self._nearest_entries(memory, situations, query_text, self.settings.situations)

        hits: list[Hit] = []
        if self.settings.use_situations:
            for hit in nearest:
                hits.append(situation_hit(situations[hit.id], hit.score))
        if self.settings.use_background:
            for aspect in memory.aspects_behind(situations[hit.id] for hit in nearest):
                hits.append(background_hit(memory, aspect))
        return hits

    def _recall_from_dialogues(
        self, memory: HeterogeneousMemory, query_text: str, about: About
    ) -> list[Hit]:
        """Return R(M_T^(j)) and F_TP of it: topics of all sessions, and their principles."""
        topics = {topic.id: topic for topic in memory.topics}
        nearest = self._nearest_entries(memory, topics, query_text, self.settings.topics)

        hits: list[Hit] = []
        if self.settings.use_topics:
            for hit in nearest:
                hits.append(topic_hit(topics[hit.id], about, hit.score))
        if self.settings.use_principles:
            for principle in memory.principles_above(topics[hit.id] for hit in nearest):
                # A principle scores as the best of its topics among those that are nearest.
                score = max(hit.score for hit in nearest if hit.id in principle.members)
                hits.append(principle_hit(memory, principle, about, score))
        return hits

    def _nearest_entries(
        self, memory: HeterogeneousMemory, ids: Collection[str], query_text: str, k: int
    ) -> list[Hit]:
        """Return the `k` entries nearest to a query among those with some ids, at any cosine."""
        has_id = partial(_has_id_in, ids)
        hits_per_query = self.indexes.search(memory, [query_text], k, where=has_id)
        return hits_per_query[0]


def _has_id_in(ids: Collection[str], entry: Entry) -> bool:
    return entry.id in ids


def _is_shown(entry: Entry) -> bool:
    return bool(entry.tags[_SHOWN])


# What is searched.


def searched_parts(memory: HeterogeneousMemory, settings: RecallSettings) -> list[SearchedPart]:
    """Return what is searched: situations and topics, then backgrounds and principles.

    Situations and topics are searched even where they are not shown, since they lead to the others.
    Backgrounds and principles change as a whole, and so stand at the end.
    """
    parts: list[SearchedPart] = []
    parts.extend(_concrete_parts(memory))
    if settings.use_background:
        for aspect, background in memory.background.items():
            parts.append(_make_entry(aspect, background.text, "background", is_shown=True))
    if settings.use_principles:
        for principle in memory.principles:
            entry = _make_entry(principle.id, principle.need_type, "principle", is_shown=True)
            parts.append(entry)
    return parts


def _concrete_parts(memory: HeterogeneousMemory) -> list[Situation | Topic]:
    """Return situations and topics in an order in which new ones stand behind all others.

    Each topic stands behind the situations of the logs before its dialogue.
    """
    # How many situations there are up to the end of each batch of logs.
    counts_by_batch: dict[str, int] = {}
    for count, situation in enumerate(memory.situations, start=1):
        counts_by_batch[situation.batch] = count

    parts: list[Situation | Topic] = []
    situation_count = 0
    for topic in memory.topics:
        batch_counts = [counts_by_batch.get(batch, 0) for batch in topic.own]
        count_before_topic = max([situation_count, *batch_counts])
        parts.extend(memory.situations[situation_count:count_before_topic])
        parts.append(topic)
        situation_count = count_before_topic
    parts.extend(memory.situations[situation_count:])
    return parts


def _entries_of_part(
    settings: RecallSettings, memory: HeterogeneousMemory, part: SearchedPart
) -> tuple[Entry, ...]:
    """Return the entry of a part, with the text that queries are compared with."""
    if isinstance(part, Situation):
        return (_make_entry(part.id, part.text, "situation", settings.use_situations),)
    if isinstance(part, Topic):
        return (_make_entry(part.id, part.need, "topic", settings.use_topics),)
    return (part,)


def _make_entry(entry_id: str, text: str, kind: str, is_shown: bool) -> Entry:
    """Return an entry whose tag says whether it may be shown."""
    return Entry(id=entry_id, text=text, kind=kind, tags={_SHOWN: "yes" if is_shown else ""})


# What is shown.


def situation_hit(situation: Situation, score: float = 0.0) -> Hit:
    """Return a situation as a hit."""
    return Hit(
        id=situation.id,
        text=situation.text,
        kind="situation",
        score=score,
        sources=situation.sources,
        time=situation.time,
    )


def background_hit(memory: HeterogeneousMemory, aspect: Aspect, score: float = 0.0) -> Hit:
    """Return the background of an aspect as a hit, e.g. `work: is a nurse`.

    It rests on the turns of all situations that it was updated from.
    """
    background = memory.background[aspect]
    return Hit(
        id=aspect,
        text=f"{aspect}: {background.text}",
        kind="background",
        score=score,
        sources=memory.source_turns(background.situations),
    )


def topic_hit(topic: Topic, about: About | None = None, score: float = 0.0) -> Hit:
    """Return a topic as a hit, with its need alone if `about` is "needs"."""
    return Hit(
        id=topic.id,
        text=topic.text(about),
        kind="topic",
        score=score,
        sources=topic.sources,
        time=topic.time,
    )


def principle_hit(
    memory: HeterogeneousMemory,
    principle: Principle,
    about: About | None = None,
    score: float = 0.0,
) -> Hit:
    """Return a principle as a hit, with its type of need alone if `about` is "needs"."""
    return Hit(
        id=principle.id,
        text=principle.text(about),
        kind="principle",
        score=score,
        sources=memory.source_turns(principle.members),
    )


def complete_hits(memory: HeterogeneousMemory, hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits of a search with all that there is to them, not the searched text alone."""
    situations = {situation.id: situation for situation in memory.situations}
    topics = {topic.id: topic for topic in memory.topics}
    principles = {principle.id: principle for principle in memory.principles}

    whole_hits: list[Hit] = []
    for hit in hits:
        if hit.kind == "situation":
            whole_hits.append(situation_hit(situations[hit.id], hit.score))
        elif hit.kind == "topic":
            whole_hits.append(topic_hit(topics[hit.id], score=hit.score))
        elif hit.kind == "principle":
            whole_hits.append(principle_hit(memory, principles[hit.id], score=hit.score))
        else:
            # The id of a background is its aspect.
            aspect = cast("Aspect", hit.id)
            whole_hits.append(background_hit(memory, aspect, hit.score))
    return whole_hits


# What the user's edits leave.


def with_edits(memory: HeterogeneousMemory, edits: EntryEdits) -> HeterogeneousMemory:
    """Return the memory with what its user left of the four parts.

    A topic or principle whose text the user changed keeps the need alone.
    """
    return memory.replace(
        situations=edits.amended_parts(memory.situations, _situation_entry, _with_text),
        background=_edited_background(memory, edits),
        topics=edits.amended_parts(memory.topics, _topic_entry, _with_need),
        principles=edits.amended_parts(
            memory.principles, partial(_principle_entry, memory), _with_need_type
        ),
    )


def _edited_background(memory: HeterogeneousMemory, edits: EntryEdits) -> dict[Aspect, Background]:
    """Return what the user left of the background."""
    remaining: dict[Aspect, Background] = {}
    for aspect, background in memory.background.items():
        entry = hit_as_entry(background_hit(memory, aspect))
        visible_entry = edits.visible_entry(entry)
        if visible_entry is None:
            continue
        if visible_entry.text == entry.text:
            remaining[aspect] = background
        else:
            text = visible_entry.text.removeprefix(f"{aspect}: ")
            remaining[aspect] = background.replace(text=text)
    return remaining


def _situation_entry(situation: Situation) -> Entry:
    return hit_as_entry(situation_hit(situation))


def _topic_entry(topic: Topic) -> Entry:
    return hit_as_entry(topic_hit(topic))


def _principle_entry(memory: HeterogeneousMemory, principle: Principle) -> Entry:
    return hit_as_entry(principle_hit(memory, principle))


def _with_text(situation: Situation, text: str) -> Situation:
    return situation.replace(text=text)


def _with_need(topic: Topic, text: str) -> Topic:
    """Return a topic that says what its user wrote, and nothing else."""
    return topic.replace(need=text.removeprefix("Need: "), solutions=(), preference="")


def _with_need_type(principle: Principle, text: str) -> Principle:
    """Return a principle that says what its user wrote, and nothing else."""
    return principle.replace(need_type=text.removeprefix("Type of need: "), preference="")
