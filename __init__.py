"""Mempiler: long-term memory methods for LLM agents as DSPy programs.

Names are imported on first use, so that `import mempiler` is fast and does not import DSPy.

Example:
    >>> import dspy, mempiler
    >>> from mempiler.engines.models import language_model
    >>> said = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
    >>> history = mempiler.History.from_messages(said, id="ada")
    >>> with dspy.context(lm=language_model("offline")):
    ...     mempiler.build("turn-rag")(history=history, question="Where did Ada move?").answer
    'I moved to Lisbon.'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import (
        ConflictError,
        DataError,
        EndpointError,
        InternalError,
        MempilerError,
        MissingDependencyError,
        ProgramError,
        ServiceError,
        StoreError,
        UnknownNameError,
        UserError,
    )
    from .memory.index import Entry
    from .memory.memory import Memory
    from .memory.store import Store
    from .programs.catalog import build
    from .programs.method import EntryReader, Lost, Method, Policy, Reader, Writer
    from .programs.predictor import predictor
    from .programs.program import MemoryProgram
    from .records import Action, Behavior, Context, History, Hit, Item, Logs, Profile, Query, Session, Turn
    from .runs.artifact import load, save
    from .runs.scoring import evaluate
    from .serving.client import AsyncClient, Client
    from .serving.prompt_text import memory_tool
    from .serving.user_memory import UserMemory

__version__ = "0.1.0"

_EXPORTS = {
    ".serving.client": ("AsyncClient", "Client"),
    ".errors": (
        "ConflictError",
        "DataError",
        "EndpointError",
        "InternalError",
        "MissingDependencyError",
        "ProgramError",
        "MempilerError",
        "ServiceError",
        "StoreError",
        "UnknownNameError",
        "UserError",
    ),
    ".memory.index": ("Entry",),
    ".memory.memory": ("Memory",),
    ".memory.store": ("Store",),
    ".programs.catalog": ("build",),
    ".programs.method": ("EntryReader", "Lost", "Method", "Policy", "Reader", "Writer"),
    ".programs.predictor": ("predictor",),
    ".programs.program": ("MemoryProgram",),
    ".records": (
        "Action",
        "Behavior",
        "Context",
        "History",
        "Hit",
        "Item",
        "Logs",
        "Profile",
        "Query",
        "Session",
        "Turn",
    ),
    ".runs.artifact": ("load", "save"),
    ".runs.scoring": ("evaluate",),
    ".serving.prompt_text": ("memory_tool",),
    ".serving.user_memory": ("UserMemory",),
}
_HOMES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "Action",
    "AsyncClient",
    "Behavior",
    "Client",
    "ConflictError",
    "Context",
    "DataError",
    "EndpointError",
    "Entry",
    "EntryReader",
    "History",
    "Hit",
    "InternalError",
    "Item",
    "Logs",
    "Lost",
    "Memory",
    "MemoryProgram",
    "MempilerError",
    "Method",
    "MissingDependencyError",
    "Policy",
    "Profile",
    "ProgramError",
    "Query",
    "Reader",
    "ServiceError",
    "Session",
    "Store",
    "StoreError",
    "Turn",
    "UnknownNameError",
    "UserError",
    "UserMemory",
    "Writer",
    "__version__",
    "build",
    "evaluate",
    "load",
    "memory_tool",
    "predictor",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
