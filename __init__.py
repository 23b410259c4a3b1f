"""Mempiler: long-term memory methods for LLM agents as DSPy programs.

A name is imported when it is first used: `import mempiler` is fast and does not import DSPy. So
every public name stands in this file twice. Type checkers and editors read the imports, and Python
looks the name up in `_MODULES`. A test compares the two.

Example:
    >>> import dspy, mempiler
    >>> from mempiler.engines.lm import language_model
    >>> messages = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
    >>> history = mempiler.History.from_messages(messages, id="ada")
    >>> with dspy.context(lm=language_model("offline")):
    ...     mempiler.build("turn-rag")(history=history, question="Where did Ada move?").answer
    'I moved to Lisbon.'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import optimizers as optimizers
    from .data.benchmark import Benchmark as Benchmark
    from .engines.limits import Limits as Limits
    from .engines.lm import language_model as language_model
    from .errors import ConflictError as ConflictError
    from .errors import DataError as DataError
    from .errors import EndpointError as EndpointError
    from .errors import MempilerError as MempilerError
    from .errors import MissingDependencyError as MissingDependencyError
    from .errors import ProgramError as ProgramError
    from .errors import ServiceError as ServiceError
    from .errors import StoreError as StoreError
    from .errors import UnknownAnswerError as UnknownAnswerError
    from .errors import UnknownNameError as UnknownNameError
    from .errors import UserError as UserError
    from .memory.answers import new_answer_id as new_answer_id
    from .memory.entry import Entry as Entry
    from .memory.memory import Memory as Memory
    from .memory.search.embedder import Embedder as Embedder
    from .memory.store.store import Store as Store
    from .memory.tuning_range import TuningRange as TuningRange
    from .programs.catalog import build as build
    from .programs.method import Method as Method
    from .programs.method import Policy as Policy
    from .programs.predictor import predictor as predictor
    from .programs.program import MemoryProgram as MemoryProgram
    from .programs.reader import EntryReader as EntryReader
    from .programs.reader import Reader as Reader
    from .programs.settings import Settings as Settings
    from .programs.writer import ExtractionFailed as ExtractionFailed
    from .programs.writer import Update as Update
    from .programs.writer import Writer as Writer
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
    from .runs.api import aevaluate as aevaluate
    from .runs.api import benchmark as benchmark
    from .runs.api import check as check
    from .runs.api import choose as choose
    from .runs.api import compare as compare
    from .runs.api import compile as compile  # noqa: A004 (the public name)
    from .runs.api import evaluate as evaluate
    from .runs.api import improve as improve
    from .runs.api import plan as plan
    from .runs.api import plan_choice as plan_choice
    from .runs.api import plan_training as plan_training
    from .runs.api import train as train
    from .runs.artifact import load as load
    from .runs.artifact import save as save
    from .runs.check_result import Check as Check
    from .runs.choice import Choice as Choice
    from .runs.comparison import Comparison as Comparison
    from .runs.compile_result import CompileResult as CompileResult
    from .runs.feedback_questions import QuestionsExport as QuestionsExport
    from .runs.feedback_questions import export_questions as export_questions
    from .runs.improvement import Improvement as Improvement
    from .runs.results import Evaluation as Evaluation
    from .runs.synthesis import SynthesisResult as SynthesisResult
    from .runs.synthesis import synthesize_memoryquest as synthesize_memoryquest
    from .runs.synthesis import synthesize_palset as synthesize_palset
    from .runs.train import TrainResult as TrainResult
    from .serving.client.async_client import AsyncClient as AsyncClient
    from .serving.client.client import Client as Client
    from .serving.memories.user_memory import UserMemory as UserMemory
    from .serving.prompt_text import memory_tool as memory_tool

__version__ = "0.1.0"

_MODULES = {
    "Benchmark": ".data.benchmark",
    "Limits": ".engines.limits",
    "language_model": ".engines.lm",
    "ConflictError": ".errors",
    "DataError": ".errors",
    "EndpointError": ".errors",
    "MempilerError": ".errors",
    "MissingDependencyError": ".errors",
    "ProgramError": ".errors",
    "ServiceError": ".errors",
    "StoreError": ".errors",
    "UnknownAnswerError": ".errors",
    "UnknownNameError": ".errors",
    "UserError": ".errors",
    "new_answer_id": ".memory.answers",
    "Entry": ".memory.entry",
    "Memory": ".memory.memory",
    "Embedder": ".memory.search.embedder",
    "Store": ".memory.store.store",
    "TuningRange": ".memory.tuning_range",
    "build": ".programs.catalog",
    "EntryReader": ".programs.reader",
    "ExtractionFailed": ".programs.writer",
    "Method": ".programs.method",
    "Policy": ".programs.method",
    "Reader": ".programs.reader",
    "Settings": ".programs.settings",
    "Update": ".programs.writer",
    "Writer": ".programs.writer",
    "predictor": ".programs.predictor",
    "MemoryProgram": ".programs.program",
    "Action": ".records",
    "Behavior": ".records",
    "Context": ".records",
    "History": ".records",
    "Hit": ".records",
    "Item": ".records",
    "Logs": ".records",
    "Profile": ".records",
    "Query": ".records",
    "Session": ".records",
    "Turn": ".records",
    "aevaluate": ".runs.api",
    "benchmark": ".runs.api",
    "check": ".runs.api",
    "choose": ".runs.api",
    "compare": ".runs.api",
    "compile": ".runs.api",
    "evaluate": ".runs.api",
    "improve": ".runs.api",
    "plan": ".runs.api",
    "plan_choice": ".runs.api",
    "plan_training": ".runs.api",
    "train": ".runs.api",
    "load": ".runs.artifact",
    "save": ".runs.artifact",
    "Check": ".runs.check_result",
    "Choice": ".runs.choice",
    "Comparison": ".runs.comparison",
    "CompileResult": ".runs.compile_result",
    "Improvement": ".runs.improvement",
    "QuestionsExport": ".runs.feedback_questions",
    "export_questions": ".runs.feedback_questions",
    "Evaluation": ".runs.results",
    "SynthesisResult": ".runs.synthesis",
    "synthesize_memoryquest": ".runs.synthesis",
    "synthesize_palset": ".runs.synthesis",
    "TrainResult": ".runs.train",
    "AsyncClient": ".serving.client.async_client",
    "Client": ".serving.client.client",
    "memory_tool": ".serving.prompt_text",
    "UserMemory": ".serving.memories.user_memory",
}
"""The module that each public name is imported from."""

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "__version__",
    "optimizers",
    *_MODULES,
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used; Python calls this for a name it does not find."""
    if name == "optimizers":
        return importlib.import_module(".optimizers", __name__)

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name], __name__)
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
