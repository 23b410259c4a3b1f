"""A memory as a retriever of LangChain: `MemoryRetriever(memory=memory, k=4)`."""

from __future__ import annotations

from typing import Any

from ...optional_import import require_package
from ..prompt_text import search_hits

with require_package("langchain-core", "langchain"):
    from langchain_core.documents import Document  # pyright: ignore[reportMissingImports]
    from langchain_core.retrievers import BaseRetriever  # pyright: ignore[reportMissingImports]


class MemoryRetriever(BaseRetriever):
    """Finds entries of one user's memory, best first, and turns that are not in it yet behind them.

    Args:
        memory: Whose it is.
        k: Most entries of the memory, and most waiting turns.
    """

    memory: Any
    k: int = 5

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
        return [_document(entry) for entry in search_hits(self.memory, query, self.k)]


def _document(entry: Any) -> Any:
    about = {"score": entry.score, "kind": entry.kind, "time": entry.time.isoformat() if entry.time else None}
    return Document(page_content=entry.text, id=entry.id, metadata={**about, "sources": list(entry.sources)})
