"""The memory systems that Mempiler can run.

    system:mem0 ──> factory("mem0")(folder, embedder=...) ──> a `System`: add, search, close, kill

Example:
    >>> from mempiler.systems.catalog import SYSTEMS
    >>> SYSTEMS["memos"].what
    'MemOS: its general textual memory in Qdrant'
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """What it is, in a few words for lists."""
    has_texts: bool = field(default=False, kw_only=True)
    """Whether its adapter declares texts that the package lets one set (`TEXTS`).

    It may declare numbers, too (`NUMBERS`).
    """

    @property
    def file(self) -> Path:
        """The file that runs inside the environment of the system."""
        return FOLDER / "inside" / f"{self.name.replace('-', '_')}.py"

    @property
    def environment(self) -> Environment:
        """The environment of the system; all its packages and their versions are pinned."""
        return Environment(self.name, FOLDER / "pins" / f"{self.name}.txt")


SYSTEMS = {
    "mem0": ShippedSystem("mem0", "Mem0, open source: extracted facts in Qdrant", has_texts=True),
    "langmem": ShippedSystem(
        "langmem",
        "LangMem: the model writes memories by calling tools; they are kept in LangGraph's store",
        has_texts=True,
    ),
    "graphiti": ShippedSystem(
        "graphiti", "Graphiti, the library behind Zep: a temporal graph in Kuzu", has_texts=True
    ),
    "a-mem": ShippedSystem("a-mem", "A-Mem: linked notes that evolve, in Chroma"),
    "memoryos": ShippedSystem("memoryos", "MemoryOS: short, middle and long-term memory"),
    "memos": ShippedSystem("memos", "MemOS: its general textual memory in Qdrant"),
}
"""The systems, by name."""


def shipped(name: str) -> ShippedSystem:
    """Return the system of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in SYSTEMS:
        raise UnknownNameError("system", name, SYSTEMS)
    return SYSTEMS[name]


def factory(name: str) -> Callable[..., System]:
    """Return a function that starts a system, called as `make(folder, embedder=None, texts=None)`.

    The arguments before `folder` are bound here, see `System`. If the package has texts or numbers
    that can be set, they are in the attributes `TEXTS` and `NUMBERS` of the function, and code that
    sets them in `EXPORT`. They are passed as `texts` and `numbers`.

    Raises:
        UnknownNameError: There is no such system.
        UserError: The system is not installed; the message has the command that installs it.
    """
    # Listing the names of systems needs neither these modules nor what they import.
    from .declaration import read_declaration
    from .process import System

    system = shipped(name)
    python = system.environment.python()
    settings: dict[str, object] = {}
    make_system: Any = partial(System, name, python, system.file, settings)
    if system.has_texts:
        declaration = read_declaration(name, python, system.file)
        make_system = partial(
            make_system, texts=declaration.texts, numbers=declaration.default_numbers()
        )
        make_system.TEXTS = declaration.texts
        make_system.NUMBERS = declaration.numbers
        make_system.EXPORT = declaration.export
    return make_system


def isolated(target: str, folder: bool) -> Callable[..., System]:
    """Return a function that starts a store of the user's own code in a separate process.

    If the store crashes, hangs or fills the disk, only one history fails. The process runs the same
    Python interpreter as this one. In it, `inside/user_system.py` imports the store and makes it.

    Args:
        target: The address of the store's class, or of a function that makes the store, as
            "module:name".
        folder: Whether the class or function is called with the folder of the store.
    """
    # Imported here because listing the names of systems should not load these modules.
    from ..records import Item
    from .process import System

    settings = {
        "target": target,
        "folder": folder,
        # The process is started with -I and would not search for modules where this one does.
        "path": [str(Path(entry).absolute()) for entry in sys.path],
        # The module of `Session` and its like, so that the store gets the classes that it would get
        # in this process.
        "records": Item.__module__,
    }
    worker_file = FOLDER / "inside" / "user_system.py"
    return partial(System, target, Path(sys.executable), worker_file, settings)
