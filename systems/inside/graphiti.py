"""Graphiti, the library behind Zep: a temporal graph of facts, in an embedded Kuzu.

Its `search` (hybrid, ranks fused) is asked; its cross encoder, which would need log-probabilities, is not.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"

import kuzu
from graphiti_core import Graphiti
from graphiti_core.driver.driver import GraphProvider
from graphiti_core.driver.kuzu_driver import KuzuDriver
from graphiti_core.embedder.openai import OpenAIEmbedder, OpenAIEmbedderConfig
from graphiti_core.graph_queries import get_fulltext_indices
from graphiti_core.llm_client.config import LLMConfig
from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient
from graphiti_core.nodes import EpisodeType

DATABASE = kuzu.Database
SIZES = {"buffer_pool_size": 256 << 20, "max_db_size": 2 << 30}
"""Kuzu otherwise reserves eight terabytes of addresses, more than a worker may."""


class System:
    """One episode per session; a search finds facts."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        endpoint = {"base_url": settings["url"], "api_key": settings["key"]}
        config = LLMConfig(model=settings["lm"], small_model=settings["lm"], temperature=0.0, **endpoint)
        embedding = OpenAIEmbedderConfig(
            embedding_model=settings["embedder"], embedding_dim=settings["dimension"], **endpoint
        )
        self.loop = asyncio.new_event_loop()
        self.turns: dict[str, list[str]] = {}
        kuzu.Database = partial(DATABASE, **SIZES)
        self.driver = KuzuDriver(str(Path(folder) / "graph"))
        self.graph = Graphiti(
            graph_driver=self.driver, llm_client=OpenAIGenericClient(config), embedder=OpenAIEmbedder(embedding)
        )
        for query in get_fulltext_indices(GraphProvider.KUZU):
            self._wait(self.driver.execute_query(query))

    def add(self, session: dict[str, Any]) -> None:
        """One episode of messages."""
        time = datetime.fromisoformat(session["time"]) if session["time"] else datetime(1970, 1, 1)
        lines = [f"{turn['speaker']}: {turn['text']}" for turn in session["turns"]]
        added = self._wait(
            self.graph.add_episode(
                name=session["id"],
                episode_body="\n".join(lines),
                source=EpisodeType.message,
                source_description="conversation",
                reference_time=time.replace(tzinfo=UTC),
            )
        )
        self.turns[added.episode.uuid] = [turn["id"] for turn in session["turns"]]

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Facts with the dates between which they hold."""
        found = self._wait(self.graph.search(query, num_results=k))
        return [
            {
                "text": f"{edge.fact} ({_date(edge.valid_at)} to {_date(edge.invalid_at)})",
                "ids": [turn for episode in edge.episodes for turn in self.turns.get(episode, [])],
            }
            for edge in found
        ]

    def _wait(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)


def _date(time: datetime | None) -> str:
    return time.date().isoformat() if time else "unknown"
