"""Memory-R2: facts extracted from a session, and a memory manager that edits a list of them.

    session ── 4 parts ──> extract ──> facts ── relate ──> manage ──> operations ── apply ──> memory
    question ── top 30 memories per speaker ──> read ──> answer

Equations to functions (the paper itself was not available; `docs/coverage.md` names the source of each):
    fact extraction     `writer.FactWriter.prepare`: all parts of all sessions at once, since it needs no memory
    memory evolution    `writer.FactWriter.write`: per part `relate`, one manager call, `memory.FactMemory.apply`
    reading             `reader.FactReader.recall`, `reader.MemoryReader`

Critical path: 1 extraction + one manager call per part of the whole history (the memory must be up to date before the
next part) + 1 answer.

Deviations: where no memory reaches `min_score`, the five newest are read; `hybrid` (off) ranks by BM25 and cosine
together; for the rest see `docs/coverage.md`. The learned part (LoGo-GRPO) trains these same prompts'
model elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import dspy

from ...memory.index import Embedder
from ...memory.indexes import Indexes
from ..method import Method
from .reader import FactReader, MemoryReader
from .writer import FactWriter


class MemoryR2(Method):
    """Writes facts by learned operations, reads the nearest ones per speaker.

    Args:
        embedder: Vectors for relating facts to memories and questions to memories.
        related: Nearest memories shown for a new fact.
        related_total: Most memories shown to the manager at once.
        min_score: Lowest cosine that counts as related, for writing and reading.
        read_top: Memories per speaker that the reader sees (the released code uses 50 for 16 sessions and more).
        hybrid: Whether reading ranks memories by BM25 and cosine together, instead of by cosine.
        parts: How many parts a session is cut into.
        chunk_turns: Turns of a part instead, however many parts that makes.
        earlier: Whether a part is shown with the parts of its session before it.
        same_speaker: Whether the memories related to a fact are of its speaker alone.
        single_agent: Whether one prompt edits the memory from the turns, without facts in between (an ablation).
        abstain: Whether the reader is told what to answer where the memories say nothing; for benchmarks that ask such
            questions.
    """

    tasks: ClassVar[Mapping[str, type[dspy.Module]]] = {"question-answering": MemoryReader}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "memory-env": {"chunk_turns": 1, "related": 2, "earlier": False, "same_speaker": False}
    }
    """Prompts short enough for a model of half a million weights."""

    def __init__(
        self,
        embedder: Embedder,
        related: int = 5,
        related_total: int = 25,
        min_score: float = 0.1,
        read_top: int = 30,
        hybrid: bool = False,
        parts: int = 4,
        chunk_turns: int | None = None,
        earlier: bool = True,
        same_speaker: bool = True,
        single_agent: bool = False,
        abstain: bool = False,
    ) -> None:
        indexes = Indexes(embedder)
        cut = (parts, chunk_turns, earlier, same_speaker, single_agent)
        writer = FactWriter(embedder, related, related_total, min_score, indexes, *cut)
        read = Indexes(embedder, hybrid=True) if hybrid else indexes
        super().__init__(writer, FactReader(min_score, read_top, read, hybrid), embedder)
        self.abstain = abstain

    def answering(self, task: str) -> dspy.Module:
        return MemoryReader(self.abstain)
