"""The systems that are shipped.

    `system:mem0`  ──> factory("mem0")(folder, embedder=...) ──> a `KeptSystem`: add, search, snapshot, close, kill

Example:
    >>> from mempiler.systems.catalog import SYSTEMS
    >>> SYSTEMS["mem0"].licence
    'Apache-2.0'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engines.embedders import embedder as offline_embedder
from ..errors import UnknownNameError
from .environment import Environment
from .process import KeptSystem, Program

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Shipped:
    """A system that can be run."""

    name: str
    what: str
    packages: tuple[str, ...]
    """Those that are asked for; `pins` has all that come with them."""
    licence: str
    writes_with_lm: bool = True
    """Whether it asks a language model when it is given a session."""

    @property
    def file(self) -> Path:
        """What runs inside its environment."""
        return FOLDER / "inside" / f"{self.name.replace('-', '_')}.py"

    @property
    def environment(self) -> Environment:
        """Where it is installed: all packages, with their versions, are pinned."""
        return Environment(self.name, FOLDER / "pins" / f"{self.name}.txt")


SYSTEMS = {
    found.name: found
    for found in (
        Shipped("mem0", "Mem0, open source: extracted facts in Qdrant", ("mem0ai",), "Apache-2.0"),
        Shipped(
            "langmem",
            "LangMem: memories by calls of tools, in LangGraph's store",
            ("langmem", "langchain-openai"),
            "MIT",
        ),
        Shipped(
            "graphiti",
            "Graphiti, the library behind Zep: a temporal graph in Kuzu",
            ("graphiti-core[kuzu]", "httpx"),
            "Apache-2.0",
        ),
        Shipped(
            "a-mem",
            "A-Mem: linked notes that evolve, in Chroma",
            ("a-mem", "chromadb", "litellm", "nltk", "scikit-learn"),
            "MIT",
        ),
        Shipped(
            "memoryos",
            "MemoryOS: short, middle and long-term memory",
            ("memoryos-pro", "faiss-cpu"),
            "MIT",
        ),
        Shipped(
            "memos",
            "MemOS: its general textual memory in Qdrant",
            ("MemoryOS", "qdrant-client"),
            "Apache-2.0",
        ),
    )
}
"""What is shipped, by name."""


def shipped(name: str) -> Shipped:
    """The system of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in SYSTEMS:
        raise UnknownNameError("system", name, SYSTEMS)
    return SYSTEMS[name]


def factory(name: str) -> Callable[..., KeptSystem]:
    """Makes a system's memories, one per history.

    Args:
        name: Of the system.

    Returns:
        `make(folder, embedder=None)`: a running system, which stores below the folder. Without an embedder it is given
        the offline one.

    Raises:
        UnknownNameError: There is no such system.
        UserError: It is not installed; the message has the command that installs it.
    """
    found = shipped(name)
    program = Program(name, found.environment.python(), found.file)

    def make(folder: Path, embedder: Any = None) -> KeptSystem:
        return KeptSystem(program, folder, embedder or offline_embedder())

    return make
