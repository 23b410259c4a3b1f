"""H2Memory's recall: what each of its four parts gives for a query (Mem-PAL, "Memory-based RAG").

A part that is switched off is not shown; the way through it to the part that hangs on it stays open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry, hit_as_entry
from ...memory.search.index_cache import IndexCache
from ...records import Context, Hit, estimate_tokens, in_blocks
from .memory import Aspect, Background, Content, HeterogeneousMemory, Principle, Situation, Topic
from .principles import H2WriterSettings

BLOCKS = {
    "situation": "Recent situations of the user",
    "background": "Background of the user",
    "topic": "Needs of earlier dialogues, each with its date",
    "principle": "Principles drawn from many dialogues",
}
"""The headings of the four parts: a need of before must not read like the one at hand."""


class RecallSettings(H2WriterSettings):
    """The same, and what can be set of recall alone."""

    use_topics: bool = Field(default=True, description="show topics (w/o M_T: they still lead to principles)")
    topics: int = Field(default=3, ge=0, description="topics recalled per query")


def recalled(
    memory: HeterogeneousMemory, indexes: IndexCache, query: str, settings: RecallSettings, content: Content | None
) -> Context:
    """The retrieved part m of a memory; `counts` has the size of each part, and the tokens of all.

    A `content` of "needs" shows of topics and principles the need alone; otherwise solutions and preferences too.
    """
    recent, known = {part.id: part for part in memory.recent}, {part.id: part for part in memory.topics}
    near = indexes.search(memory, [query], settings.situations, where=lambda entry: entry.id in recent)[0]
    told = indexes.search(memory, [query], settings.topics, where=lambda entry: entry.kind == "topic")[0]
    backgrounds = memory.behind(recent[hit.id] for hit in near) if settings.use_background else []
    principles = memory.above(known[hit.id] for hit in told) if settings.use_principles else []
    # A principle scores as the best of its topics that were found.
    best = {one.id: max(hit.score for hit in told if hit.id in one.members) for one in principles}
    shown: dict[str, list[Hit]] = {
        "situations": [hit_of(memory, recent[hit.id], None, hit.score) for hit in near if settings.use_situations],
        "backgrounds": [hit_of(memory, aspect) for aspect in backgrounds],
        "topics": [hit_of(memory, known[hit.id], content, hit.score) for hit in told if settings.use_topics],
        "principles": [hit_of(memory, one, content, best[one.id]) for one in principles],
    }
    context = Context(hits=in_blocks((hit for hits in shown.values() for hit in hits), BLOCKS))
    counts = {**{name: len(hits) for name, hits in shown.items()}, "tokens": estimate_tokens(context.text())}
    return context.model_copy(update={"counts": counts})


def searched(memory: HeterogeneousMemory, settings: RecallSettings) -> list[Any]:
    """What is searched: situations and topics as they came, and entries of what changes as a whole behind them.

    Situations and topics are always there, since a part that is not shown may still lead to another one.
    """
    found = _as_they_came(memory)
    if settings.use_background:
        found += [_entry(aspect, one.text, "background") for aspect, one in memory.background.items()]
    if settings.use_principles:
        found += [_entry(one.id, one.need_type, "principle") for one in memory.principles]
    return found


def entries_of(part: Any, settings: RecallSettings) -> tuple[Entry, ...]:
    """The entry of a part that is searched, with the text that is compared; of a topic the need."""
    if isinstance(part, Situation):
        return (_entry(part.id, part.text, "situation", settings.use_situations),)
    if isinstance(part, Topic):
        return (_entry(part.id, part.need, "topic", settings.use_topics),)
    return (part,)


def _as_they_came(memory: HeterogeneousMemory) -> list[Any]:
    """Every topic behind the situations of the logs that its dialogue followed: a new one stands behind all others."""
    last = {situation.batch: n for n, situation in enumerate(memory.situations, 1)}
    found, taken = list[Any](), 0
    for topic in memory.topics:
        until = max((last.get(batch, 0) for batch in topic.own), default=0)
        found += memory.situations[taken:until]
        found.append(topic)
        taken = max(taken, until)
    return [*found, *memory.situations[taken:]]


def whole(memory: HeterogeneousMemory, hits: Sequence[Hit]) -> list[Hit]:
    """Hits of a search with all that there is to them, as evidence and policies see them."""
    parts: dict[str, Any] = {one.id: one for one in (*memory.situations, *memory.topics, *memory.principles)}
    return [hit_of(memory, parts.get(hit.id, hit.id), None, hit.score) for hit in hits]


def with_edits(memory: HeterogeneousMemory, edits: EntryEdits) -> HeterogeneousMemory:
    """The memory with what is left of its four parts; of a topic or principle that was reworded, the need alone."""

    def whole_entry(part: Situation | Topic | Principle) -> Entry:
        return hit_as_entry(hit_of(memory, part))

    def topic(part: Topic, text: str) -> Topic:
        return part.replace(need=text.removeprefix("Need: "), solutions=(), preference="")

    def principle(part: Principle, text: str) -> Principle:
        return part.replace(need_type=text.removeprefix("Type of need: "), preference="")

    background: dict[Aspect, Background] = {}
    for aspect, one in memory.background.items():
        before = hit_as_entry(hit_of(memory, aspect))
        after = edits.visible_entry(before)
        if after is not None:
            text = one.text if after.text == before.text else after.text.removeprefix(f"{aspect}: ")
            background[aspect] = one.replace(text=text)
    return memory.replace(
        situations=edits.amended_parts(memory.situations, whole_entry, lambda part, text: part.replace(text=text)),
        topics=edits.amended_parts(memory.topics, whole_entry, topic),
        principles=edits.amended_parts(memory.principles, whole_entry, principle),
        background=background,
    )


def hit_of(
    memory: HeterogeneousMemory,
    part: Situation | Aspect | Topic | Principle,
    content: Content | None = None,
    score: float = 0.0,
) -> Hit:
    """A part of the memory; an aspect is its background, which rests on all situations that it was updated from."""
    if isinstance(part, Situation | Topic):
        kind, text = ("situation", part.text) if isinstance(part, Situation) else ("topic", part.text(content))
        return Hit(id=part.id, text=text, kind=kind, score=score, sources=part.sources, time=part.time)
    if isinstance(part, Principle):
        sources = memory.turns(part.members)
        return Hit(id=part.id, text=part.text(content), kind="principle", score=score, sources=sources)
    known = memory.background[part]
    sources = memory.turns(known.situations)
    return Hit(id=part, text=f"{part}: {known.text}", kind="background", score=score, sources=sources)


def _entry(id: str, text: str, kind: str, shown: bool = True) -> Entry:
    return Entry(id=id, text=text, kind=kind, tags={"shown": "yes" if shown else ""})
