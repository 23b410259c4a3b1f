"""MemOS: its general textual memory, extracted by the language model, in an embedded Qdrant.

Its tree memory needs a server of Neo4j, which does not come with the package.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["MEMOS_BASE_PATH"] = os.environ["HOME"]

from memos.configs.memory import MemoryConfigFactory
from memos.memories.factory import MemoryFactory


class System:
    """One extraction per session."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        lm = {
            "model_name_or_path": settings["lm"],
            "temperature": 0.0,
            "max_tokens": 4096,
            "api_key": settings["key"],
            "api_base": settings["url"],
        }
        embedder = {
            "model_name_or_path": settings["embedder"],
            "provider": "openai",
            "api_key": settings["key"],
            "base_url": settings["url"],
            # Counting tokens would fetch the table of a tokenizer.
            "max_tokens": None,
        }
        vectors = {
            "collection_name": "memories",
            "vector_dimension": settings["dimension"],
            "distance_metric": "cosine",
            "path": str(Path(folder) / "qdrant"),
        }
        config = {
            "extractor_llm": {"backend": "openai", "config": lm},
            "embedder": {"backend": "universal_api", "config": embedder},
            "vector_db": {"backend": "qdrant", "config": vectors},
        }
        self.memory = MemoryFactory.from_config(MemoryConfigFactory(backend="general_text", config=config))

    def add(self, session: dict[str, Any]) -> None:
        """What is extracted from a session is taken to rest on all its turns."""
        said = [turn["line"] for turn in session["turns"]]
        found = self.memory.extract([{"role": "user", "content": "\n".join(said)}])
        for item in found:
            item.metadata.sources = [{"type": "chat", "message_id": turn["id"]} for turn in session["turns"]]
            item.metadata.updated_at = session["time"] or None
        if found:
            self.memory.add(found)

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """The most similar memories."""
        return [
            {"text": f"({item.metadata.updated_at}) {item.memory}", "ids": _turns(item.metadata.sources)}
            for item in self.memory.search(query, top_k=k)
        ]


def _turns(sources: Any) -> list[str]:
    read = [each if isinstance(each, dict) else each.model_dump() for each in sources or []]
    return [each["message_id"] for each in read]
