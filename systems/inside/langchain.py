"""LangChain's in-memory vector store over turns: its plain RAG, which asks no language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import OpenAIEmbeddings


class System:
    """One document per turn; a search is a similarity search."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        embeddings = OpenAIEmbeddings(
            model=settings["embedder"],
            base_url=settings["url"],
            api_key=settings["key"],
            # Otherwise it cuts texts into OpenAI's tokens, whose table it would fetch.
            check_embedding_ctx_length=False,
        )
        self.path = Path(folder) / "vectors.json"
        known = self.path.exists()
        self.store = InMemoryVectorStore.load(str(self.path), embeddings) if known else InMemoryVectorStore(embeddings)

    def add(self, session: dict[str, Any]) -> None:
        """Stores every turn with its date."""
        documents = [
            Document(id=turn["id"], page_content=f"({turn['time']}) {turn['speaker']}: {turn['text']}")
            for turn in session["turns"]
        ]
        if documents:
            self.store.add_documents(documents)

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """The most similar turns."""
        hits = self.store.similarity_search(query, k=k)
        return [{"text": hit.page_content, "ids": [hit.id]} for hit in hits]

    def __len__(self) -> int:
        return len(self.store.store)

    def close(self) -> None:
        """Writes the vectors."""
        self.store.dump(str(self.path))
