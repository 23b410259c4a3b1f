"""A memory in the OpenAI Agents SDK: a `Session` that remembers, and what is remembered in every call of the model.

Example:
    session = MempilerSession(memory, SQLiteSession("tuesday", "chats.sqlite"))
    config = RunConfig(call_model_input_filter=recall_filter(memory))
    await Runner.run(agent, "Where do I live?", session=session, run_config=config)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ...optional_import import require_package
from ..prompt_text import Memory, hits_with_fallback, lines, prepend_text

with require_package("openai-agents", "openai-agents"):
    from agents import Session  # pyright: ignore[reportMissingImports]
    from agents.run import CallModelData, ModelInputData  # pyright: ignore[reportMissingImports]


class MempilerSession:
    """A session of the SDK whose words are remembered beyond it.

    Args:
        memory: Of the user.
        inside: Keeps the items.
    """

    def __init__(self, memory: Memory, inside: Session) -> None:
        self._memory, self._inside = memory, inside
        self.session_id, self.session_settings = inside.session_id, inside.session_settings
        self._unanswered: list[dict[str, str]] = []

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items of this chat; the newest `limit` of them."""
        return await self._inside.get_items(limit)

    async def add_items(self, items: list[Any]) -> None:
        """Keeps items, and remembers what was said once it is answered."""
        await self._inside.add_items(items)
        said = [{"role": item["role"], "content": text} for item in items if (text := _text(item))]
        self._unanswered += said
        if any(message["role"] == "assistant" for message in said):
            turn, self._unanswered = self._unanswered, []
            await asyncio.to_thread(self._memory.add, turn)

    async def pop_item(self) -> Any:
        """Removes the newest item from the chat; what is remembered stays."""
        return await self._inside.pop_item()

    async def clear_session(self) -> None:
        """Removes the items of the chat; what is remembered stays."""
        self._unanswered = []
        await self._inside.clear_session()


def recall_filter(memory: Memory, k: int = 5) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """Makes the `call_model_input_filter` of a run: it puts what is remembered into the user's last message.

    Args:
        memory: Of the user.
        k: Most entries of the memory, and most waiting turns.
    """

    async def filtered(data: CallModelData[Any]) -> ModelInputData:
        items = list(data.model_data.input)
        last = max((n for n, item in enumerate(items) if item.get("role") == "user" and _text(item)), default=None)
        if last is not None:
            found = await asyncio.to_thread(hits_with_fallback, memory, _text(items[last]), k)
            if found:
                items[last] = {
                    **items[last],
                    "content": prepend_text(lines(found), items[last]["content"], "input_text"),
                }
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    return filtered


def _text(item: Any) -> str:
    """What the user or the agent says in an item; "" for calls of tools, their results and everything else."""
    if item.get("role") not in ("user", "assistant"):
        return ""
    content = item.get("content")
    parts = [{"text": content}] if isinstance(content, str) else content or []
    return "\n".join(part["text"] for part in parts if part.get("text")).strip()
