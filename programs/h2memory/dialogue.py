"""From a dialogue to its topics, and from a topic's need to the need in full (Mem-PAL, steps 2-1 and 2-2).

dialogue ── outline ──> topics          spans repaired so that they tile the dialogue
need, its session's situations, their backgrounds ── refine ──> need
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import one_line
from ...memory.index import Embedder, Entry, Index
from ...records import Item
from ...signatures.h2memory import DraftOutline
from ..gather import gather
from .logs import Ask
from .memory import HeterogeneousMemory
from .outlines import Solution, Topic, span, tiled
from .situations import Situation


@dataclass(frozen=True)
class PreparedTopics:
    """What is extracted from one dialogue."""

    topics: tuple[Topic, ...] = ()
    repaired: int = 0
    """Spans that did not tile the dialogue."""
    empty: int = 0
    """Outlines without a need, which are left out."""
    levels: int = 0
    """LM calls that had to follow one another."""
    lost: bool = False
    """Whether the dialogue could not be outlined."""


def topics_of(item: Item, outline: Ask) -> PreparedTopics:
    """T of one dialogue."""
    turns = [turn for turn in item.turns if turn.content.strip()]
    if not turns:
        return PreparedTopics()
    said = outline(conversation="\n".join(turn.line(item.time) for turn in turns))
    if said is None:
        return PreparedTopics(levels=1, lost=True)
    drafts: Sequence[DraftOutline] = said.outlines or []
    kept = [draft for draft in drafts if draft.requirement.strip()]
    ids = [turn.id for turn in turns]
    spans, repaired = tiled([span(draft.turn_span, ids) for draft in kept], len(ids))
    topics = tuple(
        _topic(draft).model_copy(update={"sources": tuple(ids[first : last + 1]), "time": item.time})
        for draft, (first, last) in zip(kept, spans, strict=True)
    )
    return PreparedTopics(topics, repaired, len(drafts) - len(kept), 1)


def refined(
    memory: HeterogeneousMemory, topics: Sequence[Topic], refine: Ask, embedder: Embedder, k: int, situated: bool
) -> tuple[dict[str, str], bool]:
    """The needs of topics in full, all at once; a topic of an unknown session keeps its need.

    Args:
        memory: Has the situations of the topics' sessions, and the background of their time.
        topics: What to refine.
        refine: Calls the prompt.
        embedder: Vectors of needs and situations.
        k: Situations that a prompt is given.
        situated: Whether the prompt is shown situations, or only the backgrounds that they lead to.

    Returns:
        The new needs by topic id, and whether any call was made.
    """
    near = nearest(memory, topics, embedder, k)
    inputs = {
        topic.id: {
            "overall_background": "\n".join(f"{a}: {memory.background[a].text}" for a in memory.behind(near[topic.id])),
            "recent_situations": "\n".join(one_line(situation.text) for situation in near[topic.id])
            if situated
            else "",
            "stated_need": topic.need,
        }
        for topic in topics
    }
    asked = [id for id, given in inputs.items() if given["overall_background"] or given["recent_situations"]]
    said = gather([lambda id=id: refine(**inputs[id]) for id in asked])
    texts = {id: one_line(one.detailed_need) for id, one in zip(asked, said, strict=True) if one}
    return texts, bool(asked)


def nearest(
    memory: HeterogeneousMemory, topics: Sequence[Topic], embedder: Embedder, k: int
) -> dict[str, list[Situation]]:
    """R(s): the situations of a topic's own session that are nearest to its need, by topic id."""
    found: dict[str, list[Situation]] = {topic.id: [] for topic in topics}
    known = {situation.id: situation for situation in memory.situations}
    for own in dict.fromkeys(topic.own for topic in topics):
        index = Index(embedder)
        index.add(Entry(id=situation.id, text=situation.text) for situation in memory.of(own))
        mine = [topic for topic in topics if topic.own == own]
        for topic, hits in zip(mine, index.search([topic.need for topic in mine], k), strict=True):
            found[topic.id] = [known[hit.id] for hit in hits]
    return found


def _topic(draft: DraftOutline) -> Topic:
    solutions = [
        Solution(text=one_line(one.solution), feedback=one_line(one.user_feedback), kind=one.feedback_type)
        for one in draft.solution_list
        if one.solution.strip()
    ]
    return Topic(need=one_line(draft.requirement), solutions=tuple(solutions), preference=one_line(draft.preference))
