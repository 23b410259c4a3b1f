"""A user's own `module:Class`, in a process of its own under the interpreter that scores it.

Settings: `target`, what is made; `path`, where modules are found; `records`, the module of the records, whose sessions
it is given as in any other process. What it asks through DSPy goes to the model that it is given.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any


class System:
    """Whatever has `add`, and `search` or `ask`."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        sys.path[:0] = settings["path"]
        self.session = importlib.import_module(settings["records"]).Session
        module, _, name = settings["target"].partition(":")
        make = getattr(importlib.import_module(module), name)
        if "dspy" in sys.modules:
            dspy = sys.modules["dspy"]
            model = dspy.LM(f"openai/{settings['lm']}", api_base=settings["url"], api_key=settings["key"], cache=False)
            self.settings = dspy.context(lm=model)
            self.settings.__enter__()  # for as long as the process lives
        self.system = make(Path(folder)) if settings["folder"] else make()

    def add(self, session: dict[str, Any]) -> Any:
        turns = [turn["record"] for turn in session["turns"]]
        given = {"id": session["id"], "time": session["time"] or None, "turns": turns}
        return self.system.add(self.session.model_validate(given))

    def search(self, query: str, k: int) -> Any:
        return self.system.search(query, k)

    async def ask(self, question: str) -> dict[str, Any]:
        found = self.system.ask(question)
        found = await found if inspect.isawaitable(found) else found
        answer, recalled = found if isinstance(found, tuple) else (found, None)
        return {"answer": answer, "recalled": recalled}

    def close(self) -> Any:
        return self.system.close() if hasattr(self.system, "close") else None
