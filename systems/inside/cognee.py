"""Cognee: a knowledge graph over what was said, in embedded databases (SQLite, LanceDB, Ladybug).

Every session is added and cognified. What its hybrid search, its default, would show a model is the one entry found.
It counts tokens by the table of a tokenizer, which would be fetched: here three characters are one.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any


class Counter:
    """Counts tokens without a table."""

    model_input_limit = None

    def extract_tokens(self, text: str) -> list[str]:
        return text.split()

    def count_tokens(self, text: str) -> int:
        return len(text) // 3

    def decode_single_token(self, token: int) -> str:
        return str(token)


class System:
    """One dataset, to which every session is added."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        os.environ.update(_environment(Path(folder), settings))
        # Its settings are read once, when it is imported.
        import cognee
        from cognee.infrastructure.databases.graph import get_graph_engine
        from cognee.infrastructure.databases.vector.embeddings.OpenAICompatibleEmbeddingEngine import (
            OpenAICompatibleEmbeddingEngine,
        )

        OpenAICompatibleEmbeddingEngine.get_tokenizer = lambda self: Counter()
        self.cognee, self.engine = cognee, get_graph_engine
        self.loop = asyncio.new_event_loop()
        self.path = Path(folder) / "turns.json"
        self.turns: dict[str, str] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def add(self, session: dict[str, Any]) -> None:
        """One text of all turns."""
        if not session["turns"]:
            return
        said = {turn["id"]: f"({turn['time']}) {turn['speaker']}: {turn['text']}" for turn in session["turns"]}
        self._wait(self.cognee.add("\n".join(said.values()), dataset_name="main"))
        self._wait(self.cognee.cognify(datasets=["main"]))
        self.turns |= said
        self.path.write_text(json.dumps(self.turns))

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """The context that its answer would rest on; `k` of each kind that it has."""
        if not self.turns:
            return []
        kind = self.cognee.SearchType.HYBRID_COMPLETION
        found = self._wait(self.cognee.search(query, query_type=kind, only_context=True, top_k=k))
        text = "\n".join(str(each) for each in found).partition("Context:\n")[2].strip("`\n")
        return [{"text": text, "ids": [id for id, line in self.turns.items() if line in text]}] if text else []

    def __len__(self) -> int:
        """Nodes of the graph."""
        return len(self._wait(self._graph())) if self.turns else 0

    async def _graph(self) -> list[Any]:
        nodes, _ = await (await self.engine()).get_graph_data()
        return nodes

    def _wait(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)


def _environment(folder: Path, settings: dict[str, Any]) -> dict[str, str]:
    endpoint = {"ENDPOINT": settings["url"], "API_KEY": settings["key"]}
    return {
        **{f"LLM_{name}": value for name, value in endpoint.items()},
        **{f"EMBEDDING_{name}": value for name, value in endpoint.items()},
        "LLM_PROVIDER": "custom",
        "LLM_MODEL": f"openai/{settings['lm']}",
        "EMBEDDING_PROVIDER": "openai_compatible",
        "EMBEDDING_MODEL": settings["embedder"],
        "EMBEDDING_DIMENSIONS": str(settings["dimension"]),
        "SYSTEM_ROOT_DIRECTORY": str(folder / "system"),
        "DATA_ROOT_DIRECTORY": str(folder / "data"),
        "CACHE_ROOT_DIRECTORY": str(folder / "cache"),
        "COGNEE_LOGS_DIR": os.environ["HOME"],
        # It otherwise reserves 32 gigabytes of addresses, more than a worker may.
        "KUZU_BUFFER_POOL_SIZE": str(256 << 20),
        "KUZU_MAX_DB_SIZE": str(2 << 30),
        "TELEMETRY_DISABLED": "1",
        "ENABLE_BACKEND_ACCESS_CONTROL": "false",
        "COGNEE_SKIP_CONNECTION_TEST": "true",
        "CACHING": "false",
    }
