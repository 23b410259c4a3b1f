"""A-Mem: a note per turn, with keywords, context and tags by the language model, links between notes, and evolution.

Its notes lie in an embedded Chroma. It embeds by sentence-transformers, whose weights would be fetched; its retriever
is given the run's embedder instead, by the interface that Chroma has for it: neither torch nor weights are needed.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import openai
from chromadb import Documents, EmbeddingFunction, Embeddings
from chromadb.utils import embedding_functions

for name, imported in {
    "sentence_transformers": ["SentenceTransformer"],
    "transformers": ["AutoModel", "AutoTokenizer"],
}.items():
    # Imported by name, never used with this retriever.
    sys.modules[name] = types.ModuleType(name)
    for each in imported:
        setattr(sys.modules[name], each, None)


class Embedder(EmbeddingFunction[Documents]):
    """The run's embedder."""

    def __init__(self, model_name: str = "") -> None:
        self.client = openai.OpenAI()

    def __call__(self, input: Documents) -> Embeddings:
        """Vectors of texts."""
        found = self.client.embeddings.create(model="any", input=list(input)).data
        return [each.embedding for each in found]

    @staticmethod
    def name() -> str:
        """What Chroma calls it."""
        return "run"

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> Embedder:
        """As `get_config` told."""
        return Embedder()

    def get_config(self) -> dict[str, Any]:
        """Nothing to tell."""
        return {}


embedding_functions.SentenceTransformerEmbeddingFunction = Embedder

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
        if not len(self):
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

    def __len__(self) -> int:
        return int(self.memory.retriever.count())
