"""What a question is answered from: what the method recalls, and raw turns that its memory does not hold yet.

    memory ── recall ──> hits ─┐
    waiting items ── raw ──────┴── none at all ──> the newest raw turns, and what `Reader.otherwise` gives

A memory that finds nothing is asked for the little it has: who tells it one thing and asks about it in other words gets
an answer. What was shown for want of a hit has a score of 0, and is counted as `fallback`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..memory.amending import Amend
from ..records import Context, Hit, Query
from .method import FEW, Method
from .waiting import RAW_TURNS, Waiting, with_raw


class Recalled(NamedTuple):
    """What was recalled for a query."""

    query: Query
    """The query, whose task also shows the raw turns."""
    context: Context
    """What the memory gave."""
    raw: tuple[Hit, ...]
    """Turns that are not in the memory."""

    def whole(self) -> Context:
        """Everything, raw turns last."""
        return self.context.model_copy(update={"hits": (*self.context.hits, *self.raw)}) if self.raw else self.context


def recalled(method: Method, memory: Any, query: Query, waiting: Waiting | None = None) -> Recalled:
    """Recalls what bears on a query.

    Args:
        method: Whose memory it is.
        memory: A settled memory.
        query: What is asked.
        waiting: Items that are not in the memory yet.
    """
    items = with_unwritten(memory, waiting)
    raw = tuple(method.raw.search(items, [query.probe], RAW_TURNS)[0]) if items.items else ()
    asked = with_raw(query, items, raw)
    context = method.reader.recall(memory, asked)
    if context.hits or raw:
        return Recalled(asked, context, raw)
    raw = items.newest(FEW)
    asked = with_raw(query, items, raw)
    others = [hit for hit in method.reader.otherwise(memory, asked) if hit.id not in asked.shown_ids]
    hits = tuple(others[: FEW - len(raw)])
    if hits or raw:
        counts = {**context.counts, "fallback": len(hits) + len(raw)}
        context = context.model_copy(update={"hits": hits, "counts": counts})
    return Recalled(asked, context, raw)


def leaving(method: Method, memory: Any, amend: Amend) -> Any:
    """A settled memory with what is left of its entries, and of what could not be taken into it.

    Args:
        method: Whose memory it is.
        memory: The memory.
        amend: Says of an entry, and of a turn, what is left of it.
    """
    left = method.reader.amended(memory, amend)
    items = amend.items(each.item for each in memory.unwritten)
    pairs = zip(memory.unwritten, items, strict=True)
    unwritten = tuple(each.model_copy(update={"item": item}) for each, item in pairs if item.turns)
    return left.model_copy(update={"unwritten": unwritten}) if memory.unwritten else left


def with_unwritten(memory: Any, waiting: Waiting | None) -> Waiting:
    """What waits, and before it what could not be taken into the memory."""
    if not memory.unwritten:
        return waiting or Waiting()
    items = (*(each.item for each in memory.unwritten), *(waiting.items if waiting else ()))
    return Waiting(items, waiting.line if waiting else memory.line)
