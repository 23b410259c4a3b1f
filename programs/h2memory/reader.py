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
from typing import Annotated, cast

from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry, hit_as_entry
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...memory.tuning_range import TuningRange
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
        default=True,
        description="whether topics are shown (M_T); off: they still lead to principles",
    )
    topics: Annotated[int, TuningRange(0, 10)] = Field(
        default=3, ge=0, description="topics recalled per query"
    )


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

        Parts of all sessions are searched, without parts that the settings switch off. If
        `min_score` is None, parts with a negative cosine are left out.
        """
        lowest_cosine = 0.0 if min_score is None else min_score
        hits_per_query = self.indexes.search(memory, queries, k, lowest_cosine, where=_is_shown)
        return [complete_hits(memory, hits) for hits in hits_per_query]

    def entries(self, memory: HeterogeneousMemory) -> Sequence[Entry]:
        """Return all parts of the memory as entries, without parts that are switched off.

        An entry has the whole text of its part, e.g. a topic with its solutions.
        """
        # Entries of the search index hold less: of a topic, only the need. `complete_hits` looks up
        # the whole part. It takes and returns hits, so entries are turned into hits and back.
        searched_entries = super().entries(memory)
        searched_hits = [entry.hit() for entry in searched_entries if _is_shown(entry)]
        whole_hits = complete_hits(memory, searched_hits)
        return [hit_as_entry(hit) for hit in whole_hits]

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

        # A query about needs is shown needs alone. A query about solutions, or about nothing in
        # particular, is shown needs with solutions and preferences (appendix C).
        about = query.about
        if about is None:
            about = "solutions"
        log_hits = self._recall_from_logs(memory, query_text)
        dialogue_hits = self._recall_from_dialogues(memory, query_text, about)
        context = Context(hits=in_blocks([*log_hits, *dialogue_hits], BLOCKS))

        # E.g. `counts["topics"]` is how many hits of the kind "topic" there are.
        counts: dict[str, int] = {}
        for kind, count_name in _COUNT_NAMES.items():
            counts[count_name] = len(context.with_kinds(kind))
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
        """Return the topics nearest to a query, and then the principles of these topics.

        A topic is a need of the user in one dialogue. A principle says what the user prefers for
        the needs of several topics, its members. If `about` is "needs", hits name needs alone.
        """
        # Topics are searched even if the settings do not show them: a principle is shown if one of
        # its topics is near.
        topics = {topic.id: topic for topic in memory.topics}
        nearest = self._nearest_entries(memory, topics, query_text, self.settings.topics)

        hits: list[Hit] = []
        if self.settings.use_topics:
            for hit in nearest:
                hits.append(topic_hit(topics[hit.id], about, hit.score))
        if self.settings.use_principles:
            for principle in memory.principles_above(topics[hit.id] for hit in nearest):
                # `members` are the ids of the principle's topics. The best of their scores counts.
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

    Situations and topics are always among them. Even where they are switched off, and so not shown,
    a search needs them to get from situations to backgrounds and from topics to principles.
    """
    parts: list[SearchedPart] = []
    parts.extend(_situations_and_topics(memory))

    # The index of an older memory is reused up to the first part that differs. Backgrounds and
    # principles are reworded often, so they stand at the end. They lead to no other part, so they
    # are searched only if they are shown.
    if settings.use_background:
        for aspect, background in memory.background.items():
            entry = _make_entry(aspect, background.text, "background", is_shown=True)
            parts.append(entry)
    if settings.use_principles:
        for principle in memory.principles:
            entry = _make_entry(principle.id, principle.need_type, "principle", is_shown=True)
            parts.append(entry)
    return parts


def _situations_and_topics(memory: HeterogeneousMemory) -> list[Situation | Topic]:
    """Return all situations and topics in the order in which they came into the memory.

    A topic stands after the situations of the logs before its dialogue. In this order a memory only
    grows at its end, so that a longer memory can reuse the search index of a shorter one.
    """
    # `batch` is the id of the item of logs that a situation comes from. The end of an item is the
    # position after its last situation.
    end_of_logs: dict[str, int] = {}
    for position, situation in enumerate(memory.situations):
        end_of_logs[situation.batch] = position + 1

    parts: list[Situation | Topic] = []
    next_position = 0  # of the first situation that is not in `parts` yet
    for topic in memory.topics:
        # `own` holds the ids of the items of logs before the topic's dialogue. Items without
        # situations have no end.
        ends = [end_of_logs[logs_id] for logs_id in topic.own if logs_id in end_of_logs]
        end = max(ends, default=0)
        if end > next_position:
            parts.extend(memory.situations[next_position:end])
            next_position = end
        parts.append(topic)

    situations_since_last_topic = memory.situations[next_position:]
    parts.extend(situations_since_last_topic)
    return parts


def _entries_of_part(
    settings: RecallSettings, memory: HeterogeneousMemory, part: SearchedPart
) -> tuple[Entry, ...]:
    """Return the entry by which a part of a memory is searched, alone in a tuple.

    Queries are compared with the text of a situation, and with the need of a topic. Backgrounds and
    principles are entries already. `memory` is not used: `IndexCache` passes it to every such
    function, and takes a tuple since a part may have several entries.
    """
    if isinstance(part, Situation):
        is_shown = settings.use_situations
        entry = _make_entry(part.id, part.text, "situation", is_shown=is_shown)
    elif isinstance(part, Topic):
        is_shown = settings.use_topics
        entry = _make_entry(part.id, part.need, "topic", is_shown=is_shown)
    else:
        entry = part
    return (entry,)


def _make_entry(entry_id: str, text: str, kind: str, is_shown: bool) -> Entry:
    """Return an entry with a tag for `is_shown`, which is "yes" or "" since tags are texts.

    An entry that is not shown is searched all the same, to find other parts by it.
    """
    tag = "yes" if is_shown else ""
    return Entry(id=entry_id, text=text, kind=kind, tags={_SHOWN: tag})


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
    """Return the hits of a search, completed with their whole text, sources and time.

    The search index knows only the text that queries are compared with: of a topic the need, but
    not its solutions. So the situation, topic, principle or background of each hit is looked up.
    """
    situations = {situation.id: situation for situation in memory.situations}
    topics = {topic.id: topic for topic in memory.topics}
    principles = {principle.id: principle for principle in memory.principles}

    whole_hits: list[Hit] = []
    for hit in hits:
        if hit.kind == "situation":
            whole_hits.append(situation_hit(situations[hit.id], score=hit.score))
        elif hit.kind == "topic":
            whole_hits.append(topic_hit(topics[hit.id], score=hit.score))
        elif hit.kind == "principle":
            # The memory holds the source turns of the principle's topics.
            whole_hits.append(principle_hit(memory, principles[hit.id], score=hit.score))
        else:
            # The id of a background is its aspect of life, e.g. "work".
            aspect = cast("Aspect", hit.id)
            whole_hits.append(background_hit(memory, aspect, score=hit.score))
    return whole_hits


# What the user's edits leave.


def with_edits(memory: HeterogeneousMemory, edits: EntryEdits) -> HeterogeneousMemory:
    """Return the memory as its user sees it: without deleted entries, and with changed texts.

    The user's new text replaces the whole content of a topic or principle. It becomes the need of
    the topic, which then has no solutions and no preference, or the type of need of the principle,
    which then has no preference.
    """
    # `entry` makes the entry in which the user saw a part. `with_text` returns the part with the
    # new text; it is called only if the user changed the text.
    situations = edits.amended_parts(
        memory.situations, entry=_situation_entry, with_text=_with_text
    )
    background = _edited_background(memory, edits)
    topics = edits.amended_parts(memory.topics, entry=_topic_entry, with_text=_with_need)
    principles = edits.amended_parts(
        memory.principles, entry=partial(_principle_entry, memory), with_text=_with_need_type
    )
    return memory.replace(
        situations=situations, background=background, topics=topics, principles=principles
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
    """Return a topic with the text that its user wrote as its need, and nothing else."""
    # The text that users see, and may change, begins with this label.
    need = text.removeprefix("Need: ")
    return topic.replace(need=need, solutions=(), preference="")


def _with_need_type(principle: Principle, text: str) -> Principle:
    """Return a principle with the text that its user wrote as its type of need, nothing else."""
    # The text that users see, and may change, begins with this label.
    need_type = text.removeprefix("Type of need: ")
    return principle.replace(need_type=need_type, preference="")
