"""A user's own store in a process of its own: what crashes, hangs or fills the disk is the failure of one history.

    module:Class ── alone(...) ──> make(folder, embedder) ──> `System` over `inside/own.py`

It runs under the interpreter of this process, with its modules; its models are ours, by DSPy or by OPENAI_BASE_URL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..engines.embedders import embedder as offline_embedder
from ..records import Item
from .process import Program, System

FILE = Path(__file__).parent / "inside" / "own.py"


class OwnSystem(System):
    """A store of the user's, which knows things that are not in its folder."""

    keeps = False
    """Whether it can keep itself; no copy of its folder would do."""

    def add(self, session: Item) -> None:
        turns = [turn.model_dump(mode="json") for turn in session.turns]
        time = session.time.isoformat() if session.time else None
        self._ask("add", session={"id": session.id, "time": time, "turns": turns})

    def search(self, query: str, k: int) -> Sequence[Any]:
        return self._ask("search", query=query, k=k)


class AskedSystem(OwnSystem):
    """One that answers by itself."""

    def ask(self, question: str) -> tuple[Any, Any]:
        """Its answer, and what it recalled for it, if it says so."""
        answer, recalled = self._ask("ask", question=question)
        return answer, recalled


class KeptSystem(OwnSystem):
    """One that can keep itself in a folder."""

    keeps = True

    def snapshot(self, folder: Path) -> None:
        """Has it keep itself."""
        self._ask("snapshot", folder=str(folder.absolute()))

    def restore(self, folder: Path) -> None:
        """Has it take up what it kept."""
        self._ask("restore", folder=str(folder.absolute()))


class KeptAskedSystem(KeptSystem, AskedSystem):
    """One that answers by itself and can keep itself in a folder."""


def alone(target: str, folder: bool, asks: bool, keeps: bool) -> Callable[..., System]:
    """Makes the memories of a user's own store, each in a process of its own.

    Args:
        target: `module:Class`, or a function that makes one.
        folder: Whether it is given its folder when it is made.
        asks: Whether it answers by itself.
        keeps: Whether it has `snapshot` and `restore`.
    """
    kind = (KeptAskedSystem if asks else KeptSystem) if keeps else AskedSystem if asks else OwnSystem
    path = [str(Path(each).absolute()) for each in sys.path]
    settings = {"target": target, "folder": folder, "path": path, "records": Item.__module__}

    def make(folder: Path, embedder: Any = None) -> System:
        return kind(Program(target, Path(sys.executable), FILE, settings), folder, embedder or offline_embedder())

    return make
