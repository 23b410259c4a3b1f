"""The methods by name, and how a program is put together from names.

Example:
    >>> program = build("turn-rag", k=20)
    >>> program = build("mypackage.methods:LastTurns")
    >>> program = build("pgr+turn-rag", iterations=2, inner_k=20)
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
from .tasks.task import task as task_class


@dataclass(frozen=True)
class MethodEntry:
    """One line of `mempiler list`."""

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
    "condition-mem": MethodEntry(
        ".baselines.condition_mem:ConditionMem",
        "keeps what each dialogue teaches with its condition, recalls the nearest",
    ),
    "memory-bank": MethodEntry(
        ".baselines.memory_bank:MemoryBank", "turns and digests that fade unless recalled, and a portrait of the user"
    ),
    "memory-r2": MethodEntry(".memory_r2.method:MemoryR2", "extracts facts and edits a memory of them by operations"),
    "pgr": MethodEntry(
        ".pgr.method:PGR",
        "imagines next steps and searches dated facts with them; pgr+METHOD: any other memory",
    ),
    "pramem": MethodEntry(
        ".pramem.method:PraMem",
        "practises on a user's own behaviour records, keeps the experience that rounds agree on",
    ),
    "fact-store": MethodEntry(".pgr.method:FactStore", "the dated facts of pgr, recalled with the question alone"),
    "rgmem": MethodEntry(
        ".rgmem.method:RGMem", "a graph of concepts and events with summaries that change when enough evidence is there"
    ),
    "h2memory": MethodEntry(
        ".h2memory.method:H2Memory",
        "situations and a background from device logs, needs with what was liked from dialogues, principles over both",
    ),
}
POLICIES = {"pgr": ".pgr.method:PGROver"}
"""Retrieval policies that stand before another method's name: `pgr+turn-rag`."""
INNER = "inner_"
"""What the names of settings of the method beneath a policy begin with."""


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
        method: A name of `METHODS`, `module:Class` of one's own, or `pgr+` and one of these.
        task: A name of `tasks.TASKS`.
        embedder: Needed by methods that search by meaning.
        cache: Memories to share with other programs.
        adapter: Name of the adapter it runs under.
        **config: Constructor arguments of the method; of the one beneath a policy with `inner_` before them.

    Raises:
        UnknownNameError: No such method or task.
        UserError: The class cannot be imported, is no method, or does not take the arguments.
    """
    kind = method_class(method)
    task_kind = task_class(task)
    made = _make(method, embedder, config)
    answering = made.answering(task) if task in kind.tasks else task_kind()
    return MemoryProgram(made, answering, cache, adapter, method)  # pyright: ignore[reportArgumentType]


def answering(program: MemoryProgram, task: str) -> MemoryProgram:
    """A program with the same method, prompts and model, that answers another task by that task's own prompts.

    Raises:
        UserError: The program's own task was tuned, so that leaving it out would leave out what was compiled.
    """
    if task == program.task.name:
        return program
    if program.task.predictors():
        raise UserError(f"it is for {program.task.name}, not for {task}; compile one for that")
    kind: Any = type(program.method).tasks.get(task, task_class(task))
    return MemoryProgram(program.method, kind(), program.cache, program.adapter, program.name)


def method_class(name: str) -> type[Method]:
    """The class of a method name or of a `module:Class`; of `pgr+METHOD` that of the policy."""
    policy, plus, inner = name.partition("+")
    if plus:
        if policy not in POLICIES:
            raise UnknownNameError("retrieval policy", policy, POLICIES)
        if "+" in inner or inner in POLICIES:
            raise UserError(f"method {name!r}: a policy stands on a method, not on another policy")
        method_class(inner)
        return _named(POLICIES[policy])
    if ":" in name:
        return _imported(name)
    if name not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    return _named(METHODS[name].path)


def is_method(name: str) -> bool:
    """Whether `build` would look for a method under this name, rather than for a file or a run."""
    return name in METHODS or ":" in name or name.partition("+")[0] in POLICIES


def needs_embedder(name: str) -> bool:
    """Whether a method searches by meaning."""
    kind, (_, plus, inner) = method_class(name), name.partition("+")
    return needs_embedder(inner) if plus else _takes_embedder(kind)


def _make(name: str, embedder: Embedder | None, config: dict[str, Any]) -> Method:
    kind, (_, plus, inner) = method_class(name), name.partition("+")
    if plus:
        return _make_policy(name, kind, inner, embedder, config)
    _check_config(name, kind, config)
    given = {"embedder": embedder} if _takes_embedder(kind) else {}
    try:
        return kind(**given, **config)
    except TypeError as error:
        raise UserError(f"method {name!r}: {error}") from error


def _make_policy(name: str, kind: type, inner: str, embedder: Embedder | None, config: dict[str, Any]) -> Method:
    from .pgr.prospection import Prospection

    beneath = {key.removeprefix(INNER): value for key, value in config.items() if key.startswith(INNER)}
    own = {key: value for key, value in config.items() if not key.startswith(INNER)}
    _check_config(name, Prospection, own)
    return kind(_make(inner, embedder, beneath), Prospection(**own))


def _check_config(method: str, kind: type, config: dict[str, Any]) -> None:
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


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module, __package__), name)


def _takes_embedder(kind: type[Method]) -> bool:
    return "embedder" in inspect.signature(kind.__init__).parameters


def _imported(path: str) -> type[Method]:
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"method {path!r}: cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ProgramError(f"method {path!r} is not a subclass of mempiler.programs.method.Method")
    return found
