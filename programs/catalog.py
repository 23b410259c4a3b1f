"""The methods by name, and how a program is put together from names.

Example:
    >>> program = build("turn-rag", k=20)
    >>> program = build("mypackage.methods:LastTurns")
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any

from ..errors import ProgramError, UnknownNameError, UserError
from ..memory.index import Embedder
from .method import Method
from .program import MemoryProgram
from .remember import MemoryCache
from .tasks import task as task_class


@dataclass(frozen=True)
class MethodEntry:
    """One line of `recollect list`."""

    path: str
    summary: str


METHODS = {
    "no-memory": MethodEntry(".baselines.no_memory:NoMemory", "answers from the question alone"),
    "full-context": MethodEntry(
        ".baselines.full_context:FullContext", "shows the conversation, newest turns first to fit"
    ),
    "turn-rag": MethodEntry(".baselines.turn_rag:TurnRAG", "keeps every turn, recalls the best-matching ones (BM25)"),
    "session-rag": MethodEntry(
        ".baselines.session_rag:SessionRAG", "keeps every turn, recalls the best-matching sessions as a whole (BM25)"
    ),
    "truncation": MethodEntry(".baselines.truncation:Truncation", "shows the newest turns that fit a small budget"),
    "recursive-summary": MethodEntry(
        ".baselines.recursive_summary:RecursiveSummary", "rewrites one summary after every session, recalls all of it"
    ),
    "memory-r2": MethodEntry(".memory_r2:MemoryR2", "extracts facts and edits a memory of them by operations"),
}


def build(
    method: str,
    task: str = "question-answering",
    embedder: Embedder | None = None,
    cache: MemoryCache | None = None,
    adapter: str = "chat",
    **config: Any,
) -> MemoryProgram:
    """Puts a program together.

    Args:
        method: A name of `METHODS`, or `module:Class` of one's own.
        task: A name of `tasks.TASKS`.
        embedder: Needed by methods that search by meaning.
        cache: Memories to share with other programs.
        adapter: Name of the adapter it runs under.
        **config: Constructor arguments of the method.

    Raises:
        UnknownNameError: No such method or task.
        UserError: The class cannot be imported, is no method, or does not take the arguments.
    """
    kind = method_class(method)
    task_kind = task_class(task)
    _check_config(method, kind, config)
    if _takes_embedder(kind):
        config["embedder"] = embedder
    try:
        made = kind(**config)
    except TypeError as error:
        raise UserError(f"method {method!r}: {error}") from error
    answering = kind.tasks.get(task, task_kind)
    return MemoryProgram(made, answering(), cache, adapter, method)  # pyright: ignore[reportArgumentType]


def method_class(name: str) -> type[Method]:
    """The class of a method name or of a `module:Class`."""
    if ":" in name:
        return _imported(name)
    if name not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    module, _, cls = METHODS[name].path.partition(":")
    return getattr(importlib.import_module(module, __package__), cls)


def needs_embedder(name: str) -> bool:
    """Whether a method searches by meaning."""
    return _takes_embedder(method_class(name))


def _check_config(method: str, kind: type[Method], config: dict[str, Any]) -> None:
    """Refuses settings that the method does not have, or of another kind than their defaults."""
    known = {
        name: parameter.default
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if name not in ("self", "embedder") and parameter.kind is not parameter.VAR_KEYWORD
    }
    for name, value in config.items():
        if name not in known:
            has = ", ".join(f"{key}={default}" for key, default in known.items()) or "none"
            raise UserError(f"method {method!r} has no setting {name!r}; it has: {has}")
        default = known[name]
        if isinstance(default, bool | int | float | str):
            fits = type(value) is type(default) or (type(default) is float and type(value) is int)
            if not fits:
                raise UserError(
                    f"method {method!r}: {name} = {value!r} is no {type(default).__name__} (default {default!r})"
                )


def _takes_embedder(kind: type[Method]) -> bool:
    return "embedder" in inspect.signature(kind.__init__).parameters


def _imported(path: str) -> type[Method]:
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"method {path!r}: cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ProgramError(f"method {path!r} is not a subclass of recollect.programs.method.Method")
    return found
