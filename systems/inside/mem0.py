"""Mem0's open-source memory: its own extraction prompt, its embedded Qdrant, its scoring.

Settings: `infer` (True): facts are extracted by the language model; else every turn is stored as it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"
os.environ["MEM0_DIR"] = os.environ["HOME"]

from mem0 import Memory

USER = "user"


class System:
    """One user, whose every session is one `add`."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        self.infer = settings.get("infer", True)
        endpoint = {"openai_base_url": settings["url"], "api_key": settings["key"]}
        store = {
            "collection_name": "memories",
            "path": str(Path(folder) / "qdrant"),
            "embedding_model_dims": settings["dimension"],
            "on_disk": True,
        }
        self.memory = Memory.from_config(
            {
                "llm": {"provider": "openai", "config": {**endpoint, "model": settings["lm"]}},
                "embedder": {"provider": "openai", "config": {**endpoint, "model": settings["embedder"]}},
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(Path(folder) / "history.db"),
            }
        )

    def add(self, session: dict[str, Any]) -> None:
        """One `add` of all turns; extracted facts tell no turn, so they stand for the whole session."""
        said = [(turn, f"({turn['time']}) {turn['speaker']}: {turn['text']}") for turn in session["turns"]]
        if self.infer:
            messages = [{"role": "user", "content": text} for _, text in said]
            self._add(messages, session["time"], [turn["id"] for turn, _ in said])
            return
        for turn, text in said:
            self._add([{"role": "user", "content": text}], turn["time"], [turn["id"]])

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Its search with its defaults."""
        hits = self.memory.search(query, top_k=k, filters={"user_id": USER})["results"]
        return [
            {
                "text": hit["memory"] if not self.infer else f"({hit['metadata']['time']}) {hit['memory']}",
                "ids": hit["metadata"]["turns"],
            }
            for hit in hits
        ]

    def __len__(self) -> int:
        return len(self.memory.get_all(filters={"user_id": USER}, top_k=1_000_000)["results"])

    def close(self) -> None:
        """Lets go of the database, which one process at a time may open."""
        self.memory.vector_store.client.close()
        self.memory.close()

    def _add(self, messages: list[dict[str, str]], time: str, turns: list[str]) -> None:
        if messages:
            self.memory.add(messages, user_id=USER, infer=self.infer, metadata={"time": time, "turns": turns})
