"""Letta, once MemGPT: an agent that reads a session and writes down of it what it chooses, by its own tools, in SQLite.

Its server runs in the worker, without HTTP. A search finds what the agent would have before it: first the blocks of its
core memory that it has written to, which it always sees, then what its archival memory finds.

It asks for calls of tools; a model that makes none fails the session.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from letta.agents.letta_agent import LettaAgent
from letta.constants import BASE_MEMORY_TOOLS, BASE_TOOLS, DEFAULT_CONTEXT_WINDOW
from letta.helpers import datetime_helpers
from letta.orm.archives_agents import ArchivesAgents
from letta.schemas.agent import AgentType, CreateAgent, UpdateAgent
from letta.schemas.block import CreateBlock
from letta.schemas.embedding_config import EmbeddingConfig
from letta.schemas.enums import MessageRole
from letta.schemas.llm_config import LLMConfig
from letta.schemas.message import MessageCreate
from letta.schemas.tool_rule import ContinueToolRule, TerminalToolRule
from letta.server.db import db_registry
from letta.server.server import SyncServer
from letta.services.tool_executor import core_tool_executor
from letta.utils import get_persona_text
from sqlalchemy import func

ASKED = "Here is a conversation that took place. Keep in your memory all that may be asked about later."
TOOLS = sorted({*BASE_TOOLS, *BASE_MEMORY_TOOLS} - {"send_message"})
"""Its memory's tools. Those of the archive are not among its defaults any more, and have to be named."""
EVERY = 1_000_000
"""More memories than there are."""


class Clock(datetime):
    """Tells the time of the session that is read, a microsecond later with every look.

    What the agent writes has the session's date so, and its prompts, which tell the second, are the same another time.
    """

    told = datetime(1970, 1, 1, tzinfo=UTC)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        """The time that was told last."""
        cls.told += timedelta(microseconds=1)
        return cls.told.astimezone(tz) if tz else cls.told.replace(tzinfo=None)


datetime_helpers.datetime = core_tool_executor.datetime = Clock
# Its default is the text "now()", which SQLite keeps as it is: no archive of an agent could be read again.
ArchivesAgents.__table__.c.created_at.server_default.arg = func.now()


class System:
    """One agent, to which every session is one message."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        self.path = Path(folder) / "turns.json"
        self.turns: dict[str, list[str]] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.models = _models(settings)
        self.loop = asyncio.new_event_loop()
        db_registry.config.recall_storage_path = folder
        # A new one is made when the first session is here, with which the ids that it draws are settled.
        if self.path.exists():
            self._start()
            self._wait(self.agents.update_agent_async(self.agent, UpdateAgent(**self.models), self.user))

    def add(self, session: dict[str, Any]) -> None:
        """What is new in a memory is taken to rest on the session's turns, also where the agent fails midway."""
        if not session["turns"]:
            return
        time = datetime.fromisoformat(session["time"]) if session["time"] else datetime(1970, 1, 1)
        Clock.told = time.replace(tzinfo=UTC)
        if not self.path.exists():
            self._start()
        before = self._memories()
        said = [f"({turn['time']}) {turn['speaker']}: {turn['text']}" for turn in session["turns"]]
        try:
            self._wait(self._read("\n".join([ASKED, "", *said])))
        finally:
            turns = [turn["id"] for turn in session["turns"]]
            new = [key for key, text in self._memories().items() if text != before.get(key)]
            self.turns |= {key: self.turns.get(key, []) + turns for key in new}
            self.path.write_text(json.dumps(self.turns))

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Blocks that were written to, then the most similar passages, with their dates."""
        if not self.path.exists():
            return []
        blocks = [block for block in self._blocks() if block.id in self.turns]
        passages = self._passages(
            query_text=query, limit=k, embed_query=True, embedding_config=self.models["embedding_config"]
        )
        found = [(block.id, f"{block.label}: {block.value}") for block in blocks]
        found += [(each.id, f"({each.created_at:%Y-%m-%d %H:%M}) {each.text}") for each in passages]
        return [{"text": text, "ids": self.turns[key]} for key, text in found[:k]]

    def __len__(self) -> int:
        return sum(key in self.turns for key in self._memories()) if self.path.exists() else 0

    def close(self) -> None:
        """Lets go of the database."""
        if self.path.exists():
            db_registry.get_engine().dispose()

    def _start(self) -> None:
        """Its server, and its one agent, which is made if there is none."""
        made = self.path.exists()
        self.server = SyncServer(init_with_default_org_and_user=not made)
        self.agents, self.user = self.server.agent_manager, self.server.user_manager.get_default_user()
        self.agent = self._wait(self.agents.list_agents_async(self.user))[0].id if made else self._wait(self._new()).id

    async def _new(self) -> Any:
        """An agent of Letta's first kind; its rules are the defaults, in an order that is always the same."""
        tools = self.server.tool_manager
        return await self.agents.create_agent_async(
            CreateAgent(
                name="memory",
                agent_type=AgentType.memgpt_agent,
                memory_blocks=[
                    CreateBlock(label="human", value=""),
                    CreateBlock(label="persona", value=get_persona_text("memgpt_starter")),
                ],
                tool_ids=[await tools.get_tool_id_by_name_async(name, self.user) for name in TOOLS],
                tool_rules=[
                    *(ContinueToolRule(tool_name=name) for name in TOOLS),
                    TerminalToolRule(tool_name="send_message"),
                ],
                include_base_tool_rules=False,
                timezone="UTC",
                **self.models,
            ),
            actor=self.user,
        )

    async def _read(self, text: str) -> None:
        server = self.server
        agent = LettaAgent(
            agent_id=self.agent,
            message_manager=server.message_manager,
            agent_manager=server.agent_manager,
            block_manager=server.block_manager,
            job_manager=server.job_manager,
            passage_manager=server.passage_manager,
            actor=self.user,
        )
        await agent.step([MessageCreate(role=MessageRole.user, content=text)])

    def _memories(self) -> dict[str, str]:
        """The texts of all blocks and passages."""
        return {
            **{block.id: block.value for block in self._blocks()},
            **{passage.id: passage.text for passage in self._passages(limit=EVERY)},
        }

    def _blocks(self) -> list[Any]:
        return self._wait(self.agents.get_agent_by_id_async(self.agent, self.user)).memory.blocks

    def _passages(self, **asked: Any) -> list[Any]:
        return self._wait(self.agents.query_agent_passages_async(self.user, self.agent, **asked))

    def _wait(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)


def _models(settings: dict[str, Any]) -> dict[str, Any]:
    """Where its models are; their key is that of the environment."""
    return {
        "llm_config": LLMConfig(
            model=settings["lm"],
            model_endpoint_type="openai",
            model_endpoint=settings["url"],
            context_window=DEFAULT_CONTEXT_WINDOW,
            temperature=0.0,
        ),
        "embedding_config": EmbeddingConfig(
            embedding_model=settings["embedder"],
            embedding_endpoint_type="openai",
            embedding_endpoint=settings["url"],
            embedding_dim=settings["dimension"],
        ),
    }
