"""A user's own `module:Class`, in a process of its own under the interpreter that scores it.

Settings:

- `target`: the `module:Class` that is made.
- `path`: the folders in which modules are found.
- `records`: the module with `Session`, which the system gets as in any other process.
- `folder`: whether the class takes a folder to store in.
- `texts`: the texts by name that the class takes; empty if it takes none.
- `numbers`: the numbers by name that the class takes; empty if it takes none.

What the system asks through DSPy goes to the model of the run.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

LONGEST_WAIT = 7 * 24 * 3600
"""How many seconds to wait for an answer: a week, since DSPy has no value for "without limit"."""


class System:
    """Any object with `add`, and with `search` or `ask`."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        sys.path[:0] = settings["path"]
        self.session_class = importlib.import_module(settings["records"]).Session
        module_name, _, class_name = settings["target"].partition(":")
        target = getattr(importlib.import_module(module_name), class_name)
        # A system that has not imported DSPy does not ask through it.
        if "dspy" in sys.modules:
            self._configure_dspy(settings)
        arguments: dict[str, Any] = {}
        if settings["folder"]:
            arguments["folder"] = Path(folder)
        if settings["texts"]:
            arguments["texts"] = settings["texts"]
        if settings["numbers"]:
            arguments["numbers"] = settings["numbers"]
        self.system = target(**arguments)

    def _configure_dspy(self, settings: dict[str, Any]) -> None:
        """Make the model of the run DSPy's model, for as long as the process lives."""
        # The system has imported it. Other systems may run where DSPy is not installed.
        dspy = sys.modules["dspy"]
        model = dspy.LM(
            f"openai/{settings['lm']}",
            api_base=settings["url"],
            api_key=settings["key"],
            cache=False,
            # The model of the run has time limits and retries of its own.
            timeout=LONGEST_WAIT,
            num_retries=0,
        )
        # The context is never left, so that the model stays set in every later call.
        self.dspy_context = dspy.context(lm=model)
        self.dspy_context.__enter__()

    def add(self, session: dict[str, Any]) -> Any:
        """Add a session as the record that the system expects."""
        fields = {
            "id": session["id"],
            "time": session["time"] or None,
            "turns": [turn["record"] for turn in session["turns"]],
        }
        return self.system.add(self.session_class.model_validate(fields))

    def search(self, query: str, k: int) -> Any:
        """Return what the system finds."""
        return self.system.search(query, k)

    async def ask(self, question: str) -> dict[str, Any]:
        """Return the system's own answer, and what it recalled if it says so."""
        reply = self.system.ask(question)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, tuple):
            answer, recalled = reply
            return {"answer": answer, "recalled": recalled}
        return {"answer": reply, "recalled": None}

    def close(self) -> Any:
        """Close the system if it can be closed."""
        if hasattr(self.system, "close"):
            return self.system.close()
        return None
