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
    from .errors import ConflictError as ConflictError
    from .errors import DataError as DataError
    from .errors import EndpointError as EndpointError
    from .errors import MempilerError as MempilerError
    from .errors import MissingDependencyError as MissingDependencyError
    from .errors import ProgramError as ProgramError
    from .errors import ServiceError as ServiceError
    from .errors import StoreError as StoreError
    from .errors import UnknownNameError as UnknownNameError
    from .errors import UserError as UserError
    from .memory.index import Entry as Entry
    from .memory.memory import Memory as Memory
    from .memory.store import Store as Store
    from .programs.catalog import build as build
    from .programs.method import EntryReader as EntryReader
    from .programs.method import Lost as Lost
    from .programs.method import Method as Method
    from .programs.method import Policy as Policy
    from .programs.method import Reader as Reader
    from .programs.method import Writer as Writer
    from .programs.predictor import predictor as predictor
    from .programs.program import MemoryProgram as MemoryProgram
    from .records import Action as Action
    from .records import Behavior as Behavior
    from .records import Context as Context
    from .records import History as History
    from .records import Hit as Hit
    from .records import Item as Item
    from .records import Logs as Logs
    from .records import Profile as Profile
    from .records import Query as Query
    from .records import Session as Session
    from .records import Turn as Turn
    from .runs.artifact import load as load
    from .runs.artifact import save as save
    from .runs.experiment import evaluate as evaluate
    from .serving.client import AsyncClient as AsyncClient
    from .serving.client import Client as Client
    from .serving.prompt_text import memory_tool as memory_tool
    from .serving.user_memory import UserMemory as UserMemory

__version__ = "0.1.0"

_EXPORTS = {
    ".errors": (
        "ConflictError DataError EndpointError MempilerError MissingDependencyError ProgramError ServiceError "
        "StoreError UnknownNameError UserError"
    ),
    ".memory.index": "Entry",
    ".memory.memory": "Memory",
    ".memory.store": "Store",
    ".programs.catalog": "build",
    ".programs.method": "EntryReader Lost Method Policy Reader Writer",
    ".programs.predictor": "predictor",
    ".programs.program": "MemoryProgram",
    ".records": "Action Behavior Context History Hit Item Logs Profile Query Session Turn",
    ".runs.artifact": "load save",
    ".runs.experiment": "evaluate",
    ".serving.client": "AsyncClient Client",
    ".serving.prompt_text": "memory_tool",
    ".serving.user_memory": "UserMemory",
}
_HOMES = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
