"""A memory as a retriever of LangChain: `MemoryRetriever(memory=memory, k=4)`."""

from __future__ import annotations

from typing import Any

from ...optional_import import require_package
from ..prompt_text import Hit, search_hits

with require_package("langchain-core", "langchain"):
    from langchain_core.documents import Document  # pyright: ignore[reportMissingImports]
    from langchain_core.retrievers import BaseRetriever  # pyright: ignore[reportMissingImports]


class MemoryRetriever(BaseRetriever):
    """Finds entries of one user's memory, best first, then turns that are not in it yet.

    Args:
        memory: The memory of the user.
        k: The most entries of the memory, and the most such turns.
    """

    # Pydantic could not validate the protocol `prompt_text.Memory`.
    memory: Any
    k: int = 5

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        hits = search_hits(self.memory, query, self.k)
        return [_document(hit) for hit in hits]


def _document(hit: Hit) -> Document:
    metadata = {
        "score": hit.score,
        "kind": hit.kind,
        "time": hit.time.isoformat() if hit.time else None,
        "sources": list(hit.sources),
    }
    return Document(page_content=hit.text, id=hit.id, metadata=metadata)
