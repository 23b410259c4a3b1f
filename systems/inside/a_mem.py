"""A-Mem: a note per turn, with keywords, context and tags by the language model, links between notes, and evolution.

Its notes lie in an embedded Chroma, which embeds by sentence-transformers: the run's embedder stands in.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
# Imported by name, never used with this retriever.
unused: Any = types.ModuleType("transformers")
unused.AutoModel = unused.AutoTokenizer = None
sys.modules["transformers"] = unused

from agentic_memory.memory_system import AgenticMemorySystem  # noqa: E402


class System:
    """One note per turn."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        self.memory = AgenticMemorySystem(
            llm_backend="openai",
            llm_model=settings["lm"],
            api_key=settings["key"],
            storage_path=str(Path(folder) / "chroma"),
        )

    def add(self, session: dict[str, Any]) -> None:
        """One note per turn, which is known by the turn's id."""
        for turn in session["turns"]:
            time = turn["time"].replace("-", "").replace(":", "").replace(" ", "")[:12] or None
            self.memory.add_note(f"Speaker {turn['speaker']} says: {turn['text']}", time=time, id=turn["id"])

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """The nearest notes, and all that they say."""
        if not self.memory.retriever.count():
            return []
        found = [(hit["id"], self.memory.read(hit["id"])) for hit in self.memory.search(query, k=k)]
        return [
            {
                "text": f"talk start time: {note.timestamp} memory content: {note.content} "
                f"memory context: {note.context} memory keywords: {note.keywords} memory tags: {note.tags}",
                "ids": [name],
            }
            for name, note in found
        ]
