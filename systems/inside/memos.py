"""MemOS: its general textual memory, extracted by the language model, in an embedded Qdrant.

Its tree memory needs a server of Neo4j, which does not come with the package.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["MEMOS_BASE_PATH"] = os.environ["HOME"]
# MemOS otherwise waits 5 seconds for the embedder, whatever its client says. It has no value for
# "without limit", so this is a week.
os.environ["MOS_EMBEDDER_TIMEOUT"] = str(7 * 24 * 3600)

from memos.configs.memory import MemoryConfigFactory
from memos.memories.factory import MemoryFactory


class System:
    """One extraction per session."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        language_model = {
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
            "extractor_llm": {"backend": "openai", "config": language_model},
            "embedder": {"backend": "universal_api", "config": embedder},
            "vector_db": {"backend": "qdrant", "config": vectors},
        }
        self.memory = MemoryFactory.from_config(
            MemoryConfigFactory(backend="general_text", config=config)
        )
        # The models of the run have time limits and retries of their own.
        for client in (self.memory.extractor_llm.client, self.memory.embedder.client):
            client.timeout = None
            client.max_retries = 0

    def add(self, session: dict[str, Any]) -> None:
        """Extract memories from a session; they are taken to rest on all its turns."""
        lines = [turn["line"] for turn in session["turns"]]
        memories = self.memory.extract([{"role": "user", "content": "\n".join(lines)}])
        for memory in memories:
            memory.metadata.sources = [
                {"type": "chat", "message_id": turn["id"]} for turn in session["turns"]
            ]
            memory.metadata.updated_at = session["time"] or None
        if memories:
            self.memory.add(memories)

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Return the most similar memories."""
        entries: list[dict[str, Any]] = []
        for memory in self.memory.search(query, top_k=k):
            text = f"({memory.metadata.updated_at}) {memory.memory}"
            entries.append({"text": text, "ids": _turn_ids(memory.metadata.sources)})
        return entries


def _turn_ids(sources: list[Any] | None) -> list[str]:
    """Return the ids of the turns that a memory rests on."""
    turn_ids: list[str] = []
    for source in sources or []:
        # A source is a dict, or a model of MemOS.
        fields = source if isinstance(source, dict) else source.model_dump()
        turn_ids.append(fields["message_id"])
    return turn_ids
