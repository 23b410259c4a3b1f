"""LangMem: memories that the model extracts and corrects by calls of tools, in LangGraph's store.

A model that calls no tools leaves the store empty.
"""

from __future__ import annotations

import inspect
from typing import Any

from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langgraph.store.memory import InMemoryStore
from langmem import create_memory_store_manager

NAMESPACE = ("memories",)
ALL = 1_000_000
"""A limit above the number of memories that there can be."""

PARAMETERS = inspect.signature(create_memory_store_manager).parameters

TEXTS = {"instructions": PARAMETERS["instructions"].default}
"""LangMem's own instructions, which another text replaces."""

NUMBERS = {"query_limit": {"default": PARAMETERS["query_limit"].default, "low": 1, "high": 30}}
"""How many memories the model is shown that may have to be corrected."""

EXPORT = """
from langmem import create_memory_store_manager

manager = create_memory_store_manager(
    model,  # your chat model
    store=store,  # your LangGraph store
    namespace=("memories",),
    instructions=$instructions,
    query_limit=$query_limit,
)
"""


class System:
    """One conversation per session is given to its store manager."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        endpoint = {
            "base_url": settings["url"],
            "api_key": settings["key"],
            # The models of the run have time limits and retries of their own.
            "timeout": None,
            "max_retries": 0,
        }
        embeddings = OpenAIEmbeddings(
            model=settings["embedder"],
            # Cutting texts into OpenAI's tokens would fetch their table.
            check_embedding_ctx_length=False,
            **endpoint,
        )
        self.store = InMemoryStore(
            index={"dims": settings["dimension"], "embed": embeddings, "fields": ["content"]}
        )
        self.manager = create_memory_store_manager(
            ChatOpenAI(model=settings["lm"], temperature=0, **endpoint),
            namespace=NAMESPACE,
            store=self.store,
            instructions=settings["texts"]["instructions"],
            query_limit=settings["numbers"]["query_limit"],
        )

    def add(self, session: dict[str, Any]) -> None:
        """Give a session to the manager, and note which turns each memory rests on.

        LangMem does not say where a memory comes from. So a memory that the manager has added or
        changed is taken to rest on all turns of this session, besides those it rested on before.
        """
        values_before = {item.key: item.value for item in self._items()}
        lines = [turn["line"] for turn in session["turns"]]
        self.manager.invoke({"messages": [{"role": "user", "content": "\n".join(lines)}]})

        session_turns = [turn["id"] for turn in session["turns"]]
        for item in self._items():
            value_before = values_before.get(item.key, {})
            is_unchanged = item.key in values_before and item.value == value_before
            if is_unchanged:
                continue
            # The manager may have replaced the whole value, so earlier turns come from the old one.
            turns = value_before.get("turns", []) + session_turns
            value = {**item.value, "turns": turns, "time": session["time"]}
            self.store.put(NAMESPACE, item.key, value)

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Return the most similar memories; equally similar ones in the order of their texts."""
        items = self.store.search(NAMESPACE, query=query, limit=ALL)
        # The keys of memories are drawn by chance, so they must not decide between equal scores.
        ranked = sorted(items, key=lambda item: (-(item.score or 0.0), _memory_text(item.value)))
        entries: list[dict[str, Any]] = []
        for item in ranked[:k]:
            text = f"({item.value['time']}) {_memory_text(item.value)}"
            entries.append({"text": text, "ids": item.value["turns"]})
        return entries

    def _items(self) -> list[Any]:
        """Return all memories."""
        return self.store.search(NAMESPACE, limit=ALL)


def _memory_text(value: dict[str, Any]) -> str:
    """Return the text of a memory, which may stand in an object."""
    content = value["content"]
    if isinstance(content, dict):
        return str(content.get("content", content))
    return str(content)
