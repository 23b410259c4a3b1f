"""Turn RAG: keep every turn, and recall the turns that match a query best.

Turns are searched by BM25, over stemmed words without stop words, with the speaker's name in front.
A turn also gains from the scores of the turns beside it in its session, and if it is by the speaker
or of the month that the question asks for (`memory.search`). An embedding model adds its cosine,
or takes the place of BM25 (`hybrid=False`, as the baselines of papers search). The offline
embedder, which compares spelling, does neither.
"""

from __future__ import annotations

from pydantic import Field

from ...memory.memory import TurnMemory
from ...memory.search.embedder import Embedder
from ...records import Item
from .._embedders import semantic_embedder
from ..method import Method
from ..reader import ANY_COSINE, EntryReader
from ..settings import EntryCount, SearchWeights
from ..writer import Update, Writer

_PRESETS = {"palbench": {"k": 3, "hybrid": False}}
"""What the baselines of Mem-PAL recall, and how (appendix C)."""


class TurnWriter(Writer[TurnMemory, None]):
    """Keep every turn as it was said."""

    Memory = TurnMemory

    def update(self, memory: TurnMemory, item: Item, extraction: None = None) -> Update[TurnMemory]:
        return Update(memory.with_session(item))


class TurnRAGSettings(SearchWeights):
    """What can be set of `TurnRAG`."""

    k: EntryCount = Field(default=10, description="turns recalled per query")
    hybrid: bool = Field(
        default=True,
        description="with an embedding model: true adds its cosine to BM25, false searches by the "
        "cosine alone; without one: both search by BM25, and only with true the speaker and the "
        "month that a question names count",
    )


class TurnRAG(Method):
    """Recall the `k` best-matching turns. Critical path: no LM call."""

    Settings = TurnRAGSettings
    embedder_use = "optional"
    presets = _PRESETS

    def __init__(
        self, settings: TurnRAGSettings | None = None, embedder: Embedder | None = None
    ) -> None:
        settings = settings or TurnRAGSettings()
        embedder = semantic_embedder(embedder)
        reader: EntryReader[TurnMemory] = EntryReader(
            settings.k,
            min_score=ANY_COSINE,
            embedder=embedder,
            hybrid=settings.hybrid,
            weights=settings.search,
        )
        super().__init__(TurnWriter(), reader, embedder, settings)
