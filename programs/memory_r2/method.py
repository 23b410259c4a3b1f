"""Memory-R2: facts extracted from a session, and a memory manager that edits a list of them.

    session ── 4 parts ──> extract ──> facts ── relate ──> manage ──> operations ── apply ──> memory
    question ── top 30 memories per speaker ──> read ──> answer

Critical path: 1 extraction + one manager call per part of the whole history (the memory must be up
to date before the next part) + 1 answer.

The learned part (`optimizers.logo_grpo`) trains the model of these same prompts.

`writer.py` extracts, relates and manages; `facts.py` applies operations to the facts that
`memory.py` holds; `reader.py` recalls and answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import dspy
from pydantic import Field

from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from .._embedders import offline_embedder
from ..method import Method
from ..settings import EntryCount, SearchSettings
from .reader import FactReader, SpeakerAnswering
from .writer import FactSettings, FactWriter


class MemoryR2Settings(SearchSettings, FactSettings):
    """What can be set of `MemoryR2`."""

    deprecated: ClassVar[Mapping[str, Any]] = {"abstain": False}

    read_top: EntryCount = Field(
        default=30,
        description="memories per speaker that are recalled; the released code recalls 50 once a "
        "history has 16 sessions",
    )


class MemoryR2(Method):
    """Write facts by learned operations, and read the nearest ones per speaker."""

    Settings = MemoryR2Settings
    embedder_use = "required"
    tasks: ClassVar[Mapping[str, type[dspy.Module]]] = {"question-answering": SpeakerAnswering}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Prompts short enough for a model of half a million weights.
        "memory-env": {
            "chunk_turns": 1,
            "related": 2,
            "earlier": False,
            "same_speaker": False,
        },
        # The paper's benchmarks are read by cosine alone.
        "locomo": {"hybrid": False},
        "longmemeval": {"hybrid": False},
        "membench": {"hybrid": False},
        "msc": {"hybrid": False},
    }

    def __init__(
        self, settings: MemoryR2Settings | None = None, embedder: Embedder | None = None
    ) -> None:
        settings = settings or MemoryR2Settings()
        embedder = embedder or offline_embedder()
        indexes = IndexCache(embedder)
        writer = FactWriter(settings.restrict_to(FactSettings), embedder, indexes)

        # Facts are related by cosine even if the reader adds BM25, which needs another index.
        hybrid = settings.uses_fusion(embedder)
        read_indexes = indexes
        if hybrid:
            read_indexes = IndexCache(embedder, hybrid=True, weights=settings.search)
        reader = FactReader(
            settings.read_top, settings.min_score, indexes=read_indexes, hybrid=hybrid
        )
        super().__init__(writer, reader, embedder, settings)
