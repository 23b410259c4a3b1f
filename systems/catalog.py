"""The systems that are shipped.

    `system:mem0`  ──> factory("mem0")(folder, embedder=...) ──> a `System`: add, search, close, kill

Example:
    >>> from mempiler.systems.catalog import SYSTEMS
    >>> SYSTEMS["memos"].what
    'MemOS: its general textual memory in Qdrant'
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UnknownNameError
from .environment import Environment

if TYPE_CHECKING:
    from .process import System

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class ShippedSystem:
    """A system that can be run."""

    name: str
    what: str

    @property
    def file(self) -> Path:
        """What runs inside its environment."""
        return FOLDER / "inside" / f"{self.name.replace('-', '_')}.py"

    @property
    def environment(self) -> Environment:
        """Where it is installed: all packages, with their versions, are pinned."""
        return Environment(self.name, FOLDER / "pins" / f"{self.name}.txt")


_SHIPPED = (
    ShippedSystem("mem0", "Mem0, open source: extracted facts in Qdrant"),
    ShippedSystem("langmem", "LangMem: memories by calls of tools, in LangGraph's store"),
    ShippedSystem("graphiti", "Graphiti, the library behind Zep: a temporal graph in Kuzu"),
    ShippedSystem("a-mem", "A-Mem: linked notes that evolve, in Chroma"),
    ShippedSystem("memoryos", "MemoryOS: short, middle and long-term memory"),
    ShippedSystem("memos", "MemOS: its general textual memory in Qdrant"),
)
SYSTEMS = {found.name: found for found in _SHIPPED}
"""What is shipped, by name."""


def shipped(name: str) -> ShippedSystem:
    """The system of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in SYSTEMS:
        raise UnknownNameError("system", name, SYSTEMS)
    return SYSTEMS[name]


def factory(name: str) -> Callable[..., System]:
    """`make(folder, embedder=None)`: makes a running system of a name, which stores below the folder.

    Raises:
        UnknownNameError: There is no such system.
        UserError: It is not installed; the message has the command that installs it.
    """
    from .process import System  # listing names does not need it, nor what it imports

    found = shipped(name)
    return partial(System, name, found.environment.python(), found.file, {})


def isolated(target: str, folder: bool) -> Callable[..., System]:
    """Makes the memories of a user's own store, each in a process of its own, under this interpreter.

    What crashes there, hangs or fills the disk is the failure of one history.

    Args:
        target: `module:Class`, or a function that makes one.
        folder: Whether it is given its folder when it is made.
    """
    from ..records import Item
    from .process import System

    path = [str(Path(each).absolute()) for each in sys.path]
    settings = {"target": target, "folder": folder, "path": path, "records": Item.__module__}
    return partial(System, target, Path(sys.executable), FOLDER / "inside" / "user_system.py", settings)
