"""A user's own `module:Class`, in a process of its own under the interpreter that scores it.

Settings: `target`, what is made; `path`, where modules are found; `records`, the module of the records, whose sessions
it is given as in any other process. What it asks through DSPy goes to the model that it is given.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any


class System:
    """Whatever has `add`, and `search` or `ask`."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        sys.path[:0] = settings["path"]
        self.runner = asyncio.Runner()
        self.session = importlib.import_module(settings["records"]).Session
        module, _, name = settings["target"].partition(":")
        make = getattr(importlib.import_module(module), name)
        if "dspy" in sys.modules:
            dspy = sys.modules["dspy"]
            model = dspy.LM(f"openai/{settings['lm']}", api_base=settings["url"], api_key=settings["key"], cache=False)
            self.settings = dspy.context(lm=model)
            self.settings.__enter__()  # for as long as the process lives
        self.system = make(Path(folder)) if settings["folder"] else make()

    def add(self, session: dict[str, Any]) -> None:
        self.said(self.system.add(self.session.model_validate(session)))

    def search(self, query: str, k: int) -> list[Any]:
        found = self.said(self.system.search(query, k))
        return [plain(entry) for entry in (found["results"] if isinstance(found, dict) else found)]

    def ask(self, question: str) -> list[Any]:
        found = self.said(self.system.ask(question))
        answer, recalled = found if isinstance(found, tuple) else (found, None)
        return [answer, None if recalled is None else [plain(entry) for entry in recalled]]

    def snapshot(self, folder: str) -> None:
        self.said(self.system.snapshot(Path(folder)))

    def restore(self, folder: str) -> None:
        self.said(self.system.restore(Path(folder)))

    def close(self) -> None:
        if hasattr(self.system, "close"):
            self.said(self.system.close())

    def __len__(self) -> int:
        return len(self.system)

    def said(self, value: Any) -> Any:
        """A value, or what a coroutine comes to."""
        return self.runner.run(awaited(value)) if inspect.isawaitable(value) else value


def plain(entry: Any) -> Any:
    """An entry as JSON can hold it: a text, or an object of its fields."""
    if isinstance(entry, str | dict):
        return entry
    names = ("text", "memory", "content", "page_content", "id", "sources", "ids", "score")
    return {name: getattr(entry, name) for name in names if hasattr(entry, name)}


async def awaited(value: Any) -> Any:
    """What is awaited."""
    return await value
