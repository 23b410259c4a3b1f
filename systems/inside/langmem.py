"""LangMem: memories extracted and mended by the model's calls of tools (or not at all), in LangGraph's own store."""

from __future__ import annotations

from typing import Any

from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langgraph.store.memory import InMemoryStore
from langmem import create_memory_store_manager

SPACE = ("memories",)
EVERY = 1_000_000
"""More memories than there are."""


class System:
    """One conversation per session is given to its store manager."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        endpoint = {"base_url": settings["url"], "api_key": settings["key"]}
        # Cutting texts into OpenAI's tokens would fetch their table.
        embed = OpenAIEmbeddings(model=settings["embedder"], check_embedding_ctx_length=False, **endpoint)
        self.store = InMemoryStore(index={"dims": settings["dimension"], "embed": embed, "fields": ["content"]})
        self.manager = create_memory_store_manager(
            ChatOpenAI(model=settings["lm"], temperature=0, **endpoint), namespace=SPACE, store=self.store
        )

    def add(self, session: dict[str, Any]) -> None:
        """What is new in a memory is taken to rest on the session's turns."""
        said = [turn["line"] for turn in session["turns"]]
        before = {item.key: item.value for item in self._items()}
        self.manager.invoke({"messages": [{"role": "user", "content": "\n".join(said)}]})
        for item in self._items():
            if item.value != before.get(item.key):
                turns = before.get(item.key, {}).get("turns", []) + [turn["id"] for turn in session["turns"]]
                self.store.put(SPACE, item.key, {**item.value, "turns": turns, "time": session["time"]})

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """The most similar memories; of those that are alike, in the order of their texts: their keys are by chance."""
        alike = self.store.search(SPACE, query=query, limit=EVERY)
        found = sorted(alike, key=lambda item: (-(item.score or 0.0), _text(item.value)))[:k]
        return [{"text": f"({item.value['time']}) {_text(item.value)}", "ids": item.value["turns"]} for item in found]

    def _items(self) -> list[Any]:
        return self.store.search(SPACE, limit=EVERY)


def _text(value: dict[str, Any]) -> str:
    content = value["content"]
    return str(content.get("content", content)) if isinstance(content, dict) else str(content)
