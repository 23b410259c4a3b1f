"""The systems that are shipped, and those that were tried and cannot be.

    `system:mem0`  ──> factory("mem0")(folder, embedder=...) ──> a `KeptSystem`: add, search, snapshot, close, kill

Example:
    >>> from mempiler.systems.catalog import SYSTEMS
    >>> SYSTEMS["mem0"].licence
    'Apache-2.0'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    writes_with_lm: bool
    """Whether it asks a language model when it is given a session."""
    heavy: bool = False
    """Whether its environment is too large, or its tests too slow, for every run of the tests."""
    of: str = ""
    """The system that it is with other settings, whose environment it shares."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those settings; the first lines of the system's file tell them."""

    @property
    def file(self) -> Path:
        """What runs inside its environment."""
        return FOLDER / "inside" / f"{(self.of or self.name).replace('-', '_')}.py"

    @property
    def environment(self) -> Environment:
        """Where it is installed: all packages, with their versions, are pinned."""
        name = self.of or self.name
        return Environment(name, FOLDER / "pins" / f"{name}.txt")


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
        Shipped(
            "mem0-raw",
            "Mem0 with `infer=False`: every turn as it was said",
            ("mem0ai",),
            "Apache-2.0",
            writes_with_lm=False,
            of="mem0",
            settings={"infer": False},
        ),
        Shipped(
            "langmem",
            "LangMem: memories by calls of tools, in LangGraph's store",
            ("langmem", "langchain-openai"),
            "MIT",
            writes_with_lm=True,
        ),
        Shipped(
            "graphiti",
            "Graphiti, the library behind Zep: a temporal graph in Kuzu",
            ("graphiti-core[kuzu]", "httpx"),
            "Apache-2.0",
            writes_with_lm=True,
        ),
        Shipped(
            "a-mem",
            "A-Mem: linked notes that evolve, in Chroma",
            ("a-mem", "chromadb", "litellm", "nltk", "scikit-learn"),
            "MIT",
            writes_with_lm=True,
        ),
        Shipped(
            "memoryos",
            "MemoryOS: short, middle and long-term memory",
            ("memoryos-pro", "faiss-cpu"),
            "MIT",
            writes_with_lm=True,
        ),
        Shipped(
            "memos",
            "MemOS: its general textual memory in Qdrant",
            ("MemoryOS", "qdrant-client"),
            "Apache-2.0",
            writes_with_lm=True,
        ),
        Shipped(
            "cognee",
            "Cognee: a knowledge graph over sessions, in Ladybug and LanceDB",
            ("cognee",),
            "Apache-2.0",
            writes_with_lm=True,
            heavy=True,
        ),
        Shipped(
            "letta",
            "Letta, once MemGPT: an agent that writes its memory by tools, in SQLite",
            ("letta", "mcp", "sqlite-vec"),
            "Apache-2.0",
            writes_with_lm=True,
            heavy=True,
        ),
    )
}
"""What is shipped, by name."""

IMPOSSIBLE = (
    Impossible(
        "graphrag",
        "graphrag 3.3.0",
        "installs (1.3 GB), but cuts texts by a token table that it fetches from openaipublic.blob.core.windows.net; "
        "it indexes a whole corpus, and nothing here does that after each session",
    ),
    Impossible(
        "hipporag",
        "hipporag 2.0.0a4",
        "does not install: it requires openai==1.91.1, which is not on the index, torch==2.5.1 and vllm==0.6.6.post1",
    ),
)
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
    program = Program(name, found.environment.python(), found.file, found.settings)

    def make(folder: Path, embedder: Any = None) -> KeptSystem:
        return KeptSystem(program, folder, embedder or offline_embedder())

    return make
