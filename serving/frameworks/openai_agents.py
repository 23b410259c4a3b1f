"""A memory in the OpenAI Agents SDK.

A `MempilerSession` remembers what is said, and `recall_filter` shows the model what is remembered.

Example:
    session = MempilerSession(memory, SQLiteSession("tuesday", "chats.sqlite"))
    config = RunConfig(call_model_input_filter=recall_filter(memory))
    await Runner.run(agent, "Where do I live?", session=session, run_config=config)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...optional_import import require_package
from ..prompt_text import Memory, hits_with_fallback, lines, prepend_text

with require_package("openai-agents", "openai-agents"):
    from agents import Session  # pyright: ignore[reportMissingImports]
    from agents.run import CallModelData, ModelInputData  # pyright: ignore[reportMissingImports]


class MempilerSession:
    """A session of the SDK; what is said in it is remembered beyond it.

    Args:
        memory: The memory of the user.
        inside: A session of the SDK that keeps the items of the chat.
    """

    def __init__(self, memory: Memory, inside: Session) -> None:
        self.session_id = inside.session_id
        self.session_settings = inside.session_settings
        self._memory = memory
        self._inside = inside
        self._unanswered: list[dict[str, str]] = []

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items of this chat, or the newest `limit` of them."""
        return await self._inside.get_items(limit)

    async def add_items(self, items: list[Any]) -> None:
        """Keep items. Once the agent has answered, remember what was said."""
        await self._inside.add_items(items)

        is_answered = False
        for item in items:
            text = _text(item)
            if text:
                self._unanswered.append({"role": item["role"], "content": text})
                is_answered = is_answered or item["role"] == "assistant"

        if is_answered:
            exchange = self._unanswered
            self._unanswered = []
            await asyncio.to_thread(self._memory.add, exchange)

    async def pop_item(self) -> Any:
        """Remove the newest item from the chat; what is remembered stays."""
        return await self._inside.pop_item()

    async def clear_session(self) -> None:
        """Remove the items of the chat; what is remembered stays."""
        self._unanswered = []
        await self._inside.clear_session()


def recall_filter(
    memory: Memory, k: int = 5
) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """Return the `call_model_input_filter` of a run, which changes what the model is sent.

    It puts what is remembered into the user's last message. Only the model sees this: the sessions
    of the SDK keep the message as the user wrote it.

    Args:
        memory: The memory of the user.
        k: The most entries of the memory that are put there. As many turns that are not in the
            memory yet may come in addition.
    """

    async def with_recalled_entries(data: CallModelData[Any]) -> ModelInputData:
        """Return the input of a model call, with what the memory holds about its last question."""
        items = list(data.model_data.input)
        position = _last_user_item(items)
        if position is not None:
            item = items[position]
            hits = await asyncio.to_thread(hits_with_fallback, memory, _text(item), k)
            if hits:
                # "input_text" is the SDK's type of a part of content that holds text.
                content = prepend_text(lines(hits), item["content"], kind="input_text")
                items[position] = {**item, "content": content}
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    return with_recalled_entries


def _last_user_item(items: Sequence[Any]) -> int | None:
    """Return the position of the last item in which the user says something; None without one."""
    for position in reversed(range(len(items))):
        item = items[position]
        if item.get("role") == "user" and _text(item):
            return position
    return None


def _text(item: Any) -> str:
    """Return what the user or the agent says in an item; "" for tools and everything else."""
    if item.get("role") not in ("user", "assistant"):
        return ""

    content = item.get("content")
    if isinstance(content, str):
        return content.strip()
    texts = [part["text"] for part in content or [] if part.get("text")]
    return "\n".join(texts).strip()
