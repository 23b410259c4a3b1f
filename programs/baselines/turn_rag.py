"""Baselines without a model: nothing, the newest turns, or the turns that bear on the query.

    no-memory      the task answers from the question alone: the floor of every table
    truncation     the end of the conversation, for any question: what a chat does that only keeps its last tokens. Any
                   memory that costs more must find older evidence
    full-context   as much of the conversation as fits: the upper bound for short histories, and what no memory method
                   should lose to
    turn-rag       every turn is kept, the nearest are recalled

Turn RAG searches by BM25 over stop-worded, stemmed turns with the speaker's name in front; turns of a session lend
their neighbours shares of their scores (`memory.words`). An embedding model adds its cosine (`memory.index`), or takes
the place of BM25 (`hybrid=False`, as the baselines of papers search); the offline embedder, which compares spelling,
does neither. `python perf/retrieval.py` measures each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...memory.index import Embedder
from ...memory.memory import Memory
from ...memory.turns import TurnMemory
from ...records import Context, Hit, Item, Query, estimate_tokens
from ..method import ANY_COSINE, EntryReader, Method, Reader, Writer, of_meaning


class TurnWriter(Writer):
    """Keeps every turn."""

    Memory = TurnMemory

    def write(self, memory: TurnMemory, item: Item, prepared: Any = None) -> TurnMemory:
        return memory.with_session(item)


class TurnRAG(Method):
    """Recalls the `k` best-matching turns. Critical path: no LM call.

    Args:
        k: Turns recalled per query.
        hybrid: Whether an embedding model adds to BM25, or searches alone.
        embedder: Adds search by meaning.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"palbench": {"k": 3, "hybrid": False}}
    """Mem-PAL, appendix C: what its baselines recall, and how."""

    def __init__(self, k: int = 10, hybrid: bool = True, embedder: Embedder | None = None) -> None:
        near = of_meaning(embedder)
        super().__init__(TurnWriter(), EntryReader(k, ANY_COSINE, near, hybrid=hybrid), near)


class NewestReader(EntryReader):
    """Recalls the newest turns that fit, for any question.

    `search` finds single turns as turn RAG does, so that retrieval policies can stand on it.

    Args:
        max_tokens: Most tokens of context, as `records.estimate_tokens` counts them.
    """

    def __init__(self, max_tokens: int) -> None:
        super().__init__()
        self.max_tokens = max_tokens

    def recall(self, memory: TurnMemory, query: Query) -> Context:
        """The newest turns, of the memory and of what came after it, in time order.

        What the task shows by itself comes out of the budget first, and is not recalled.
        """
        kept: list[Hit] = []
        lines = {turn.id: turn.line(item.time) for item in query.shown for turn in item.turns}
        room = self.max_tokens - sum(estimate_tokens(line) + 1 for line in lines.values())
        for item in query.since:
            memory = memory.with_session(item)
        for hit in (entry.hit() for entry in reversed(memory.turns) if entry.id not in lines):
            room -= estimate_tokens(hit.line()) + 1
            if room < 0:
                break
            kept.append(hit)
        return Context(hits=tuple(reversed(kept)))


class FullContext(Method):
    """Recalls all turns, the newest ones if not all of them fit. Critical path: no LM call.

    Args:
        max_tokens: Most tokens of context.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "omnibehavior": {"max_tokens": 32_000},
        "movielens": {"max_tokens": 32_000},
    }
    """PraMem, section 4.1: the long context is 32K tokens."""

    def __init__(self, max_tokens: int = 100_000) -> None:
        super().__init__(TurnWriter(), NewestReader(max_tokens))


class Truncation(Method):
    """Recalls the newest turns that fit a small budget, in time order. Critical path: no LM call.

    Args:
        max_tokens: Most tokens of context, as `records.estimate_tokens` counts them.
    """

    def __init__(self, max_tokens: int = 8_000) -> None:
        super().__init__(TurnWriter(), NewestReader(max_tokens))


class Nothing(Memory):
    """An empty memory."""


class NothingWriter(Writer):
    """Keeps nothing."""

    Memory = Nothing

    def write(self, memory: Nothing, item: Item, prepared: Any = None) -> Nothing:
        return memory


class NothingReader(Reader):
    """Finds nothing."""

    def search(
        self, memory: Nothing, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return [[] for _ in queries]

    def recall(self, memory: Nothing, query: Query) -> Context:
        return Context()


class NoMemory(Method):
    """Keeps and recalls nothing. Critical path: no LM call."""

    def __init__(self) -> None:
        super().__init__(NothingWriter(), NothingReader())
