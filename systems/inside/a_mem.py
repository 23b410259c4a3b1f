"""A-Mem: a note per turn, with keywords, context and tags by the language model.

Notes are linked with one another, and evolve. They lie in an embedded Chroma, which embeds by
sentence-transformers; `sentence_transformers.py` puts the run's embedder in its place.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

# At the end: other files of the folder are called as packages are.
sys.path.append(str(Path(__file__).parent))

# A-Mem imports these names, but uses them with another retriever only.
transformers_stub: Any = types.ModuleType("transformers")
transformers_stub.AutoModel = None
transformers_stub.AutoTokenizer = None
sys.modules["transformers"] = transformers_stub

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
        # The models of the run have time limits and retries of their own.
        client = self.memory.llm_controller.llm.client
        client.timeout = None
        client.max_retries = 0

    def add(self, session: dict[str, Any]) -> None:
        """Add one note per turn, under the turn's id."""
        for turn in session["turns"]:
            content = f"Speaker {turn['speaker']} says: {turn['text']}"
            self.memory.add_note(content, time=_note_time(turn["time"]), id=turn["id"])

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Return the nearest notes, with all that they say."""
        if not self.memory.retriever.count():
            return []
        entries: list[dict[str, Any]] = []
        for hit in self.memory.search(query, k=k):
            note = self.memory.read(hit["id"])
            text = (
                f"talk start time: {note.timestamp} memory content: {note.content} "
                f"memory context: {note.context} memory keywords: {note.keywords} "
                f"memory tags: {note.tags}"
            )
            entries.append({"text": text, "ids": [hit["id"]]})
        return entries


def _note_time(time: str) -> str | None:
    """Return a time as notes have it, e.g. "202305081356"; None if it is empty."""
    digits = time.replace("-", "").replace(":", "").replace(" ", "")
    return digits[:12] or None
