"""Graphiti, the library behind Zep: a temporal graph of facts, in an embedded Kuzu.

Its `search` is asked, which is hybrid and fuses ranks. Its cross encoder, which would need
log-probabilities, is not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"

import kuzu
from graphiti_core import Graphiti
from graphiti_core.driver.driver import GraphProvider
from graphiti_core.driver.kuzu_driver import KuzuDriver
from graphiti_core.embedder.openai import OpenAIEmbedder, OpenAIEmbedderConfig
from graphiti_core.graph_queries import get_fulltext_indices
from graphiti_core.llm_client.config import LLMConfig
from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient
from graphiti_core.nodes import EpisodeType, EpisodicNode
from graphiti_core.search.search_utils import RELEVANT_SCHEMA_LIMIT
from openai import AsyncOpenAI

Result = TypeVar("Result")

DATABASE = kuzu.Database
BUFFER_POOL_BYTES = 256 << 20
MAX_DATABASE_BYTES = 2 << 30
"""Kuzu otherwise reserves eight terabytes of addresses, more than a worker may."""
UNKNOWN_TIME = datetime(1970, 1, 1)

TEXTS = {"custom_extraction_instructions": ""}
"""The argument of `add_episode`; Graphiti adds it to its prompts for entities and edges."""

NUMBERS = {"earlier_sessions": {"default": RELEVANT_SCHEMA_LIMIT, "low": 0, "high": 10}}
"""How many of the latest sessions the model is shown when one is added."""

EXPORT = """
from graphiti_core import Graphiti

# Pass it with every episode, beside your own arguments:
#     await graphiti.add_episode(..., custom_extraction_instructions=custom_extraction_instructions)
custom_extraction_instructions = $custom_extraction_instructions


class LimitedGraphiti(Graphiti):
    # Make it instead of Graphiti, with your own arguments.
    async def retrieve_episodes(self, *arguments, **options):
        options["last_n"] = $earlier_sessions
        return await super().retrieve_episodes(*arguments, **options)
"""


class LimitedGraphiti(Graphiti):
    """Shows its model another number of earlier episodes than Graphiti does.

    With the argument `previous_episode_uuids` of `add_episode`, Kuzu has no fixed order of them.

    Args:
        earlier_episodes: The number of the latest episodes that are shown.
        **settings: The arguments of Graphiti.
    """

    def __init__(self, earlier_episodes: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.earlier_episodes = earlier_episodes

    async def retrieve_episodes(self, *arguments: Any, **options: Any) -> list[EpisodicNode]:
        """Return the latest episodes, from old to new; `add_episode` shows them to the model."""
        options["last_n"] = self.earlier_episodes
        return await super().retrieve_episodes(*arguments, **options)


class System:
    """One episode per session; a search finds facts."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        self.loop = asyncio.new_event_loop()
        self.texts = settings["texts"]
        self.turn_ids: dict[str, list[str]] = {}
        """The ids of the turns of each episode, by the episode's uuid."""

        kuzu.Database = partial(
            DATABASE, buffer_pool_size=BUFFER_POOL_BYTES, max_db_size=MAX_DATABASE_BYTES
        )
        self.driver = KuzuDriver(str(Path(folder) / "graph"))
        # The models of the run have time limits and retries of their own.
        client = AsyncOpenAI(
            base_url=settings["url"], api_key=settings["key"], timeout=None, max_retries=0
        )
        self.graph = LimitedGraphiti(
            settings["numbers"]["earlier_sessions"],
            graph_driver=self.driver,
            llm_client=_language_model(client, settings),
            embedder=_embedder(client, settings),
        )
        for query in get_fulltext_indices(GraphProvider.KUZU):
            self._run(self.driver.execute_query(query))

    def add(self, session: dict[str, Any]) -> None:
        """Add one episode of messages."""
        time = datetime.fromisoformat(session["time"]) if session["time"] else UNKNOWN_TIME
        lines = [f"{turn['speaker']}: {turn['text']}" for turn in session["turns"]]
        added = self._run(
            self.graph.add_episode(
                name=session["id"],
                episode_body="\n".join(lines),
                source=EpisodeType.message,
                source_description="conversation",
                reference_time=time.replace(tzinfo=UTC),
                custom_extraction_instructions=(
                    self.texts["custom_extraction_instructions"] or None
                ),
            )
        )
        self.turn_ids[added.episode.uuid] = [turn["id"] for turn in session["turns"]]

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Return facts with the dates between which they hold."""
        entries: list[dict[str, Any]] = []
        for edge in self._run(self.graph.search(query, num_results=k)):
            period = f"{_format_date(edge.valid_at)} to {_format_date(edge.invalid_at)}"
            turn_ids: list[str] = []
            for episode in edge.episodes:
                turn_ids.extend(self.turn_ids.get(episode, []))
            entries.append({"text": f"{edge.fact} ({period})", "ids": turn_ids})
        return entries

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(coroutine)


def _language_model(client: AsyncOpenAI, settings: dict[str, Any]) -> OpenAIGenericClient:
    """Return the run's language model, as Graphiti takes it."""
    config = LLMConfig(model=settings["lm"], small_model=settings["lm"], temperature=0.0)
    return OpenAIGenericClient(config, client=client)


def _embedder(client: AsyncOpenAI, settings: dict[str, Any]) -> OpenAIEmbedder:
    """Return the run's embedder, as Graphiti takes it."""
    config = OpenAIEmbedderConfig(
        embedding_model=settings["embedder"], embedding_dim=settings["dimension"]
    )
    return OpenAIEmbedder(config, client=client)


def _format_date(time: datetime | None) -> str:
    return time.date().isoformat() if time else "unknown"
