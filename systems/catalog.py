"""The systems that are shipped, and those that were tried and cannot be.

    `system:mem0`  ──> factory("mem0")(folder, embedder=...) ──> a `System`: add, search, snapshot, close, kill

Example:
    >>> from mempiler.systems.catalog import SYSTEMS
    >>> SYSTEMS["mem0"].licence
    'Apache-2.0'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engines.embedders import embedder as offline_embedder
from ..errors import UnknownNameError
from .environment import Environment
from .process import KeepingSystem, Program, System

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Shipped:
    """A system that can be run."""

    name: str
    what: str
    packages: tuple[str, ...]
    """Those that are asked for; `pins` has all that come with them."""
    licence: str
    writes_with_lm: bool
    """Whether it asks a language model when it is given a session."""
    heavy: bool = False
    """Whether its environment is too large for every run of the tests."""
    keeps: bool = True
    """Whether its folder holds all that it knows when it is closed, so that it can be copied and opened again."""

    @property
    def file(self) -> Path:
        """What runs inside its environment."""
        return FOLDER / "inside" / f"{self.name.replace('-', '_')}.py"

    @property
    def pins(self) -> Path:
        """All packages of its environment, with their versions."""
        return FOLDER / "pins" / f"{self.name}.txt"

    @property
    def environment(self) -> Environment:
        """Where it is installed."""
        return Environment(self.name, self.pins)


@dataclass(frozen=True)
class Impossible:
    """A system that was tried and is not shipped."""

    name: str
    package: str
    failed: str
    """What failed."""


SYSTEMS = {
    found.name: found
    for found in (
        Shipped(
            "langchain",
            "LangChain's in-memory vector store over turns",
            ("langchain-core", "langchain-openai"),
            "MIT",
            writes_with_lm=False,
        ),
        Shipped(
            "llamaindex",
            "LlamaIndex's vector index over pieces of sessions",
            ("llama-index-core", "llama-index-embeddings-openai-like"),
            "MIT",
            writes_with_lm=False,
        ),
        Shipped("mem0", "Mem0, open source: extracted facts in Qdrant", ("mem0ai",), "Apache-2.0", writes_with_lm=True),
    )
}
"""What is shipped, by name."""

IMPOSSIBLE: tuple[Impossible, ...] = ()
"""What was tried here and is not shipped, with what failed."""


def names() -> Sequence[str]:
    """The names of all systems that are shipped."""
    return list(SYSTEMS)


def shipped(name: str) -> Shipped:
    """The system of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in SYSTEMS:
        raise UnknownNameError("system", name, SYSTEMS)
    return SYSTEMS[name]


def factory(name: str, **settings: Any) -> Callable[..., System]:
    """Makes a system's memories, one per history.

    Args:
        name: Of the system.
        **settings: Settings of its own; the first lines of its file in `inside` tell them.

    Returns:
        `make(folder, embedder=None)`: a running system, which stores below the folder. Without an embedder it is given
        the offline one.

    Raises:
        UnknownNameError: There is no such system.
        UserError: It is not installed; the message has the command that installs it.
    """
    found = shipped(name)
    python = found.environment.python()
    kind = KeepingSystem if found.keeps else System

    def make(folder: Path, embedder: Any = None) -> System:
        return kind(Program(name, python, found.file, settings), folder, embedder or offline_embedder())

    return make
