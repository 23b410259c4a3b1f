"""Mem0's open-source memory: its own extraction prompt, its embedded Qdrant, its scoring."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"
os.environ["MEM0_DIR"] = os.environ["HOME"]

from mem0 import Memory

USER = "user"

TEXTS = {"custom_instructions": ""}
"""The field of mem0's configuration; mem0 adds it to its own extraction prompt."""

PARAMETERS = inspect.signature(Memory.search).parameters

NUMBERS = {"threshold": {"default": PARAMETERS["threshold"].default, "low": 0.0, "high": 0.9}}
"""The argument of `search`: memories with a lower score are left out."""

EXPORT = """
from mem0 import Memory

memory = Memory.from_config(
    {
        # Beside your own "llm", "embedder" and "vector_store":
        "custom_instructions": $custom_instructions,
    }
)
# Pass it with every search, beside your own arguments:
#     memory.search(..., threshold=threshold)
threshold = $threshold
"""


class System:
    """One user; every session is one `add`."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        endpoint = {"openai_base_url": settings["url"], "api_key": settings["key"]}
        store = {
            "collection_name": "memories",
            "path": str(Path(folder) / "qdrant"),
            "embedding_model_dims": settings["dimension"],
            "on_disk": True,
        }
        self.threshold = settings["numbers"]["threshold"]
        self.memory = Memory.from_config(
            {
                "llm": {
                    "provider": "openai",
                    "config": {**endpoint, "model": settings["lm"]},
                },
                "embedder": {
                    "provider": "openai",
                    "config": {**endpoint, "model": settings["embedder"]},
                },
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(Path(folder) / "history.db"),
                "custom_instructions": settings["texts"]["custom_instructions"] or None,
            }
        )
        # The models of the run have time limits and retries of their own.
        for client in (self.memory.llm.client, self.memory.embedding_model.client):
            client.timeout = None
            client.max_retries = 0

    def add(self, session: dict[str, Any]) -> None:
        """Add all turns at once.

        Extracted facts do not say from which turn they are, so they stand for the whole session.
        """
        messages = [{"role": "user", "content": turn["line"]} for turn in session["turns"]]
        metadata = {
            "time": session["time"],
            "turns": [turn["id"] for turn in session["turns"]],
        }
        self.memory.add(messages, user_id=USER, metadata=metadata)

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Return the `k` best memories of the user that reach the threshold."""
        result = self.memory.search(
            query, top_k=k, filters={"user_id": USER}, threshold=self.threshold
        )
        entries: list[dict[str, Any]] = []
        for hit in result["results"]:
            metadata = hit["metadata"]
            text = f"({metadata['time']}) {hit['memory']}"
            entries.append({"text": text, "ids": metadata["turns"]})
        return entries
