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
        """Return, for each query, the `k` nearest parts of the memory by cosine, best first.

        Parts of all sessions are searched, but none that is switched off by the settings.
        """
        lowest_cosine = 0.0 if min_score is None else min_score
        hits_per_query = self.indexes.search(memory, queries, k, lowest_cosine, where=_is_shown)
        return [complete_hits(memory, hits) for hits in hits_per_query]

    def entries(self, memory: HeterogeneousMemory) -> Sequence[Entry]:
        """Return all parts of the memory as entries, without parts that are switched off.

        An entry has the whole text of its part. A search compares less, e.g. the need of a topic.
        """
        searched_entries = super().entries(memory)
        hits = [entry.hit() for entry in searched_entries if _is_shown(entry)]
        return [hit_as_entry(hit) for hit in complete_hits(memory, hits)]

    def with_edits(self, memory: HeterogeneousMemory, edits: EntryEdits) -> HeterogeneousMemory:
        return with_edits(memory, edits)

    def recall(self, memory: HeterogeneousMemory, query: Query) -> Context:
        """Return the situations, background, topics and principles that bear on a query.

        `counts` of the context says how many of each there are, how many `tokens` all have, and how
        many `calls` of a model it took: 1 for a query that is a dialogue, else 0.
        """
        if not memory.situations and not memory.topics:
            return Context()

        query_text = query.search_text
        call_count = 0
        if query.modality == "dialogue":
            query_text = self._summarize_need(query_text)
            call_count = 1

        # A query about needs is shown needs alone, any other also solutions and preferences
        # (appendix C).
        about = query.about or "solutions"
        log_hits = self._recall_from_logs(memory, query_text)
        dialogue_hits = self._recall_from_dialogues(memory, query_text, about)
        context = Context(hits=in_blocks([*log_hits, *dialogue_hits], BLOCKS))

        counts = {name: len(context.with_kinds(kind)) for kind, name in _COUNT_NAMES.items()}
        counts["tokens"] = estimate_tokens(context.text())
        counts["calls"] = call_count
        return context.model_copy(update={"counts": counts})

    def _summarize_need(self, dialogue: str) -> str:
        """Ask what the user of a dialogue needs now, to search for that and not for the dialogue.

        Returns:
            The need in a sentence; the dialogue itself if no answer can be read ("Query Generation
            for Multi-turn Dialogue Interaction" in the paper).
        """
        prediction = self.try_call(self.summarize_need, dialogue_so_far=dialogue)
        if prediction is None:
            return dialogue
        return one_line(prediction.current_need) or dialogue

    def _recall_from_logs(self, memory: HeterogeneousMemory, query_text: str) -> list[Hit]:
        """Return the situations of the current session nearest to a query, then their background.

        Where situations are switched off, they are searched all the same, since they decide which
        background is shown.
        """
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
        """Return the topics nearest to a query, of all dialogues, and then their principles.

        Where topics are switched off, they are searched all the same, since they decide which
        principles are shown. If `about` is "needs", the hits name needs alone.
        """
        topics = {topic.id: topic for topic in memory.topics}
        nearest = self._nearest_entries(memory, topics, query_text, self.settings.topics)

        hits: list[Hit] = []
        if self.settings.use_topics:
            for hit in nearest:
                hits.append(topic_hit(topics[hit.id], about, hit.score))
        if self.settings.use_principles:
            for principle in memory.principles_above(topics[hit.id] for hit in nearest):
                # The score of a principle is that of its best topic.
                topic_scores = [hit.score for hit in nearest if hit.id in principle.members]
                hits.append(principle_hit(memory, principle, about, max(topic_scores)))
        return hits

    def _nearest_entries(
        self, memory: HeterogeneousMemory, ids: Collection[str], query_text: str, k: int
    ) -> list[Hit]:
        """Return the `k` entries nearest to a query, however low their cosine is.

        Only entries with one of the ids are searched.
        """
        has_id = partial(_has_id_in, ids)
        hits_per_query = self.indexes.search(memory, [query_text], k, where=has_id)
        return hits_per_query[0]


def _has_id_in(ids: Collection[str], entry: Entry) -> bool:
    return entry.id in ids


def _is_shown(entry: Entry) -> bool:
    # The tag is "yes" or "", see `_make_entry`.
    return bool(entry.tags[_SHOWN])


# What is searched.


def searched_parts(memory: HeterogeneousMemory, settings: RecallSettings) -> list[SearchedPart]:
    """Return the parts of a memory that are searched, in the order of the search index.

    Situations and topics are searched even where they are switched off, since they lead to
    backgrounds and principles.
    """
    parts: list[SearchedPart] = []
    parts.extend(_concrete_parts(memory))

    # Two versions of a memory share the part of their search index with which both begin.
    # Backgrounds and principles are rewritten again and again, so they stand at the end.
    if settings.use_background:
        for aspect, background in memory.background.items():
            entry = _make_entry(aspect, background.text, "background", is_shown=True)
            parts.append(entry)
    if settings.use_principles:
        for principle in memory.principles:
            entry = _make_entry(principle.id, principle.need_type, "principle", is_shown=True)
            parts.append(entry)
    return parts


def _concrete_parts(memory: HeterogeneousMemory) -> list[Situation | Topic]:
    """Return situations and topics in the order in which they came into the memory.

    So the parts of a longer memory begin with those of a shorter one, and can share their index. A
    dialogue comes after the logs of its session, so its topics stand after their situations.
    """
    # How many situations the memory had after each item of logs, by the id of the item.
    counts_after_logs: dict[str, int] = {}
    for count, situation in enumerate(memory.situations, start=1):
        counts_after_logs[situation.batch] = count

    parts: list[Situation | Topic] = []
    placed_count = 0  # how many situations are in `parts`
    for topic in memory.topics:
        count_before_topic = placed_count
        for log_id in topic.own:  # the logs before the topic's dialogue
            count_before_topic = max(count_before_topic, counts_after_logs.get(log_id, 0))

        parts.extend(memory.situations[placed_count:count_before_topic])
        parts.append(topic)
        placed_count = count_before_topic
    parts.extend(memory.situations[placed_count:])
    return parts


def _entries_of_part(
    settings: RecallSettings, memory: HeterogeneousMemory, part: SearchedPart
) -> tuple[Entry, ...]:
    """Return the single entry by which a part of a memory is searched, as the search index asks.

    Queries are compared with the text of a situation, and with the need of a topic. Backgrounds and
    principles are entries already. The memory is not needed.
    """
    if isinstance(part, Situation):
        return (_make_entry(part.id, part.text, "situation", settings.use_situations),)
    if isinstance(part, Topic):
        return (_make_entry(part.id, part.need, "topic", settings.use_topics),)
    return (part,)


def _make_entry(entry_id: str, text: str, kind: str, is_shown: bool) -> Entry:
    """Return an entry with a tag that says whether a search may return it; tags hold texts."""
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
    """Return what is known of one aspect of life as a hit, e.g. "work: is a nurse".

    Its sources are the turns of all situations that it was made from.
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
    """Return a topic as a hit: need, proposed solutions and preference.

    If `about` is "needs", its text is the need alone.
    """
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
    """Return a principle as a hit: a type of need, and what the user prefers then.

    If `about` is "needs", its text is the type of need alone. Its sources are those of its topics.
    """
    return Hit(
        id=principle.id,
        text=principle.text(about),
        kind="principle",
        score=score,
        sources=memory.source_turns(principle.members),
    )


def complete_hits(memory: HeterogeneousMemory, hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits of a search with the whole text, the sources and the time of their parts.

    The search index holds the searched text alone, e.g. the need of a topic without solutions.
    """
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
    """Return the memory as its user sees it: without deleted entries, and with changed texts.

    If the user changed the text of a topic or a principle, the new text becomes its need, and
    solutions and preference are dropped.
    """
    # `amended_parts` is told how a part looks as an entry, and how it takes a text from the user.
    return memory.replace(
        situations=edits.amended_parts(memory.situations, _situation_entry, _with_text),
        background=_edited_background(memory, edits),
        topics=edits.amended_parts(memory.topics, _topic_entry, _with_need),
        principles=edits.amended_parts(
            memory.principles, partial(_principle_entry, memory), _with_need_type
        ),
    )


def _edited_background(memory: HeterogeneousMemory, edits: EntryEdits) -> dict[Aspect, Background]:
    """Return the background without what the user deleted, and with the texts that they changed."""
    edited_background: dict[Aspect, Background] = {}
    for aspect, background in memory.background.items():
        entry = hit_as_entry(background_hit(memory, aspect))
        visible_entry = edits.visible_entry(entry)
        if visible_entry is None:  # the user deleted it
            continue

        if visible_entry.text == entry.text:
            edited_background[aspect] = background
        else:
            # Users see, and may change, a text with the aspect in front: "work: is a nurse".
            text = visible_entry.text.removeprefix(f"{aspect}: ")
            edited_background[aspect] = background.replace(text=text)
    return edited_background


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
