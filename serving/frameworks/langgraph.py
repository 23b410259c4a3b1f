"""Memories in the nodes of a LangGraph graph, which recall and remember; `langgraph_store` has a store.

graph.add_node("recall", recall(memory_of))       # state["memory"]: what bears on the user's last message
graph.add_node("answer", lambda state: {"messages": [model.invoke(with_memory(state))]})
graph.add_node("remember", remember(memory_of))   # what was said since, once, also where a checkpoint is resumed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...optional_import import require_package
from ..prompt_text import Memory, hits_with_fallback, lines, prepend_text

with require_package("langgraph", "langgraph"):
    from langchain_core.runnables import RunnableConfig  # pyright: ignore[reportMissingImports]
    from langgraph.graph import MessagesState  # pyright: ignore[reportMissingImports]

USER = "user_id"
"""The name of the user in a run's `configurable`."""


class MemoryState(MessagesState):
    """Messages, and what was recalled for the last of the user's."""

    memory: str


def recall(memory_of: Callable[[str], Memory], k: int = 5) -> Callable[[Any, Any], dict[str, str]]:
    """Makes a node that recalls; only `memory` of the state changes, so messages stay as they were said.

    Args:
        memory_of: The memory of a user, who is `user_id` in the run's `configurable`.
        k: Most entries of the memory, and most waiting turns.
    """

    def node(state: Any, config: RunnableConfig) -> dict[str, str]:
        said = [message.text for message in state["messages"] if message.type == "human"]
        found = hits_with_fallback(memory_of(config["configurable"][USER]), said[-1], k) if said else []
        return {"memory": lines(found) if found else ""}

    return node


def with_memory(state: Any) -> list[Any]:
    """The messages for the model: what was recalled stands in the user's last one, and in no checkpoint of it."""
    messages = list(state["messages"])
    last = max((n for n, message in enumerate(messages) if message.type == "human"), default=None)
    if last is None or not state.get("memory"):
        return messages
    told = prepend_text(state["memory"], messages[last].content)
    messages[last] = messages[last].model_copy(update={"content": told})
    return messages


def remember(memory_of: Callable[[str], Memory]) -> Callable[[Any, Any], dict[str, Any]]:
    """Makes a node that remembers what was said since the user's last message, that one included.

    The session has the name of that message, so a node that is run again for a checkpoint stores nothing twice.
    """

    def node(state: Any, config: RunnableConfig) -> dict[str, Any]:
        messages = state["messages"]
        last = max((n for n, message in enumerate(messages) if message.type == "human"), default=None)
        if last is not None:
            roles = {"human": "user", "ai": "assistant"}  # results of tools are not remembered
            told = [(roles.get(message.type), message.text) for message in messages[last:]]
            turn = [{"role": role, "content": text} for role, text in told if role and text.strip()]
            memory_of(config["configurable"][USER]).add(turn, id=messages[last].id)
        return {}

    return node
