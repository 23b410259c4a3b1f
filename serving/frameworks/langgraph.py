"""Memories in the nodes of a LangGraph graph, which recall and remember.

graph.add_node("recall", recall(memory_of))
graph.add_node("answer", lambda state: {"messages": [model.invoke(with_memory(state))]})
graph.add_node("remember", remember(memory_of))

`recall` sets `state["memory"]` to what bears on the user's last message. `remember` stores what was
said since, and stores it once, also if a graph is resumed from a checkpoint. `langgraph_store` has
the store of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...optional_import import require_package
from ..prompt_text import Memory, hits_with_fallback, lines, prepend_text

with require_package("langgraph", "langgraph"):
    from langchain_core.runnables import RunnableConfig  # pyright: ignore[reportMissingImports]
    from langgraph.graph import MessagesState  # pyright: ignore[reportMissingImports]

USER = "user_id"
"""The name of the user in a run's `configurable`."""

_ROLES = {"human": "user", "ai": "assistant"}
"""LangChain's types of the messages that are remembered, and their roles. Results of tools are not
remembered."""


class MemoryState(MessagesState):
    """Messages, and what was recalled for the last message of the user."""

    memory: str


def recall(memory_of: Callable[[str], Memory], k: int = 5) -> Callable[[Any, Any], dict[str, str]]:
    """Return a graph node that looks up what the memory holds about the user's last message.

    The node sets `memory` of the state, to "" if nothing is recalled. It changes no message.

    Args:
        memory_of: Returns the memory of a user. The node calls it with the `user_id` of the run's
            `configurable`.
        k: The most entries of the memory to recall. As many turns may be added that are not in the
            memory yet.
    """

    def recall_for_last_message(state: Any, config: RunnableConfig) -> dict[str, str]:
        messages = state["messages"]
        position = _position_of_last_user_message(messages)
        if position is None:
            return {"memory": ""}

        memory = memory_of(config["configurable"][USER])
        hits = hits_with_fallback(memory, messages[position].text, k)
        return {"memory": lines(hits) if hits else ""}

    return recall_for_last_message


def with_memory(state: Any) -> list[Any]:
    """Return the messages for the model, with the recalled text in the user's last one.

    The messages of the state, which a checkpoint keeps, do not change.
    """
    messages = list(state["messages"])
    position = _position_of_last_user_message(messages)
    if position is None or not state.get("memory"):
        return messages

    message = messages[position]
    content = prepend_text(state["memory"], message.content)
    messages[position] = message.model_copy(update={"content": content})
    return messages


def remember(memory_of: Callable[[str], Memory]) -> Callable[[Any, Any], dict[str, Any]]:
    """Return a node that stores the user's last message and the answers to it, as one session.

    The session has the id of the message. So a node that runs again, after a checkpoint, stores
    nothing twice.

    Args:
        memory_of: Returns the memory of a user, who is `user_id` in the run's `configurable`.
    """

    def remember_last_exchange(state: Any, config: RunnableConfig) -> dict[str, Any]:
        messages = state["messages"]
        position = _position_of_last_user_message(messages)
        if position is None:
            return {}

        exchange: list[dict[str, str]] = []
        for message in messages[position:]:
            role = _ROLES.get(message.type)
            if role and message.text.strip():
                exchange.append({"role": role, "content": message.text})
        memory_of(config["configurable"][USER]).add(exchange, id=messages[position].id)
        return {}

    return remember_last_exchange


def _position_of_last_user_message(messages: Sequence[Any]) -> int | None:
    """Return the position of the user's last message; None if there is none."""
    for position in reversed(range(len(messages))):
        if messages[position].type == "human":
            return position
    return None
