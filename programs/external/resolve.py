"""What a name or an object stands for that is no method of ours, and the program that it becomes.

module:thing     a callable or a module that answers, or a class, a factory or an object with `add` and `search`
http://...       a chat endpoint
answers.jsonl    recorded answers
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import dspy

from ...errors import ProgramError, UserError
from ...memory.index import Embedder
from ..method import Method
from ..names import imported
from ..program import MemoryProgram
from ..remember import MemoryCache
from ..tasks.task import task as task_class
from .answers import Answers
from .endpoint import Endpoint
from .program import AnsweringProgram, External, parameters, silent
from .stores import Stores

ANSWERS = ".jsonl"
WEB = ("http://", "https://")
TIMEOUT = 600.0
"""Seconds that one call may take, unless it is said."""
UNKNOWN = "has neither add and search nor the parameters (history, question)"


def thing_of(name: str) -> Any | None:
    """What a name stands for that is no method of ours; None for a method.

    Raises:
        UserError: It cannot be imported or read.
        ProgramError: It is nothing that can be scored.
    """
    if name.startswith(WEB):
        return Endpoint
    if name.endswith(ANSWERS):
        return Answers(name)
    if ":" not in name or "+" in name:
        return None
    found = imported(name)
    if inspect.isclass(found) and issubclass(found, Method):
        return None
    if kind_of(found) is None:
        raise ProgramError(f"method {name!r} is not a subclass of mempiler.Method, and {UNKNOWN}")
    return found


def name_of(thing: Any) -> str:
    """What tables call a thing: `module:name`."""
    kind = thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing)
    return f"{kind.__module__}:{kind.__qualname__}"


def kind_of(thing: Any) -> Literal["search", "ask", "answer"] | None:
    """How something is asked; None for what cannot be scored.

    "search" and "ask" are stores, or classes and factories of such, which are given sessions; a factory of stores that
    answer by themselves says so by an attribute `asks`. "answer" takes a history and a question.
    """
    makes = not isinstance(thing, type) and "folder" in parameters(thing)
    if makes or (hasattr(thing, "add") and (hasattr(thing, "search") or hasattr(thing, "ask"))):
        return "search" if getattr(thing, "asks", False) is not True and (makes or hasattr(thing, "search")) else "ask"
    if isinstance(thing, type):
        return "answer" if issubclass(thing, dspy.Module) else None
    given = [each for each in parameters(thing).values() if each.kind in (0, 1)]
    return "answer" if isinstance(thing, dspy.Module) or len(given) > 1 else None


def takes_embedder(thing: Any) -> bool:
    """Whether a store asks for the run's embedder."""
    return kind_of(thing) in ("search", "ask") and "embedder" in parameters(thing)


def program_of(
    thing: Any,
    name: str,
    task: str,
    embedder: Embedder | None = None,
    cache: MemoryCache | None = None,
    adapter: str = "chat",
    folder: Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> MemoryProgram:
    """The program of a thing.

    Args:
        thing: What `thing_of` gives, or any such object.
        name: What tables call it.
        task: What the questions are.
        embedder: Given to systems that ask for one.
        cache: Memories to share with other programs.
        adapter: Name of the adapter it runs under.
        folder: Where the stores of a system are; a temporary folder if None.
        config: `timeout` (seconds of one call), `k` (entries recalled); of an endpoint `model`.

    Raises:
        UserError: It has no such setting.
    """
    kind = kind_of(thing)
    if kind is None:
        raise UserError(f"{name}: {UNKNOWN}")
    settings = _settings(thing, name, config or {})
    if kind == "answer":
        method = External(name, settings, thing=thing() if isinstance(thing, type) else thing)
    else:
        stores = Stores(_making(thing, name, embedder, settings), name, folder, settings["timeout"])
        method = External(name, settings, stores)
    if kind == "search":
        return MemoryProgram(method, task_class(task)(), cache, adapter, name)
    return AnsweringProgram(method, silent(task_class(task)), cache, adapter, name)


def _making(thing: Any, name: str, embedder: Embedder | None, settings: Mapping[str, Any]) -> Callable[[Path], Any]:
    """What makes the system of one history in a folder."""
    if thing is Endpoint:
        if not settings["model"]:
            raise UserError(f"{name}: which of its models is to answer? name it with --model")
        return lambda folder: Endpoint(name, settings["model"], settings["timeout"])
    takes = parameters(thing)
    named = {"embedder": embedder} if "embedder" in takes else {}
    if "folder" in takes:
        return lambda folder: thing(folder=folder, **named)
    if isinstance(thing, type):
        return lambda folder: thing(**named)
    try:
        copy.deepcopy(thing)
    except Exception as error:
        raise UserError(f"{name}: cannot be copied, one for every history; give its class ({error})") from error
    return lambda folder: copy.deepcopy(thing)


def _settings(thing: Any, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What was set, and the defaults; refuses what a thing does not have, and what is no amount."""
    known: dict[str, Any] = {} if isinstance(thing, Answers) else {"timeout": TIMEOUT}
    known |= {"model": ""} if thing is Endpoint else {"k": 10} if kind_of(thing) == "search" else {}
    for key, value in config.items():
        if key not in known:
            raise UserError(f"{name}: has no setting {key!r}; it has: {', '.join(known) or 'none'}")
        kinds = int if key == "k" else int | float
        if key != "model" and (not isinstance(value, kinds) or isinstance(value, bool) or not 0 < value < 1e9):
            raise UserError(f"{name}: {key} = {value!r} is no number above 0")
    # Other answers are another program.
    return {**known, **config, **({"sha256": thing.sha256} if isinstance(thing, Answers) else {})}
