"""What a name or an object stands for that is no method of ours, and the program that it becomes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import dspy
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import ProgramError, UserError, misfit
from ...memory.index import Embedder
from ..method import Method
from ..names import imported
from ..program import MemoryProgram
from ..remember import MemoryCache
from ..tasks.task import task as task_class
from .endpoint import Endpoint
from .program import External, given
from .stores import Stores, parameters

WEB = ("http://", "https://")
UNKNOWN = "has neither add and search nor the parameters (history, question)"


class Settings(BaseModel):
    """What can be set of whatever answers."""

    model_config = ConfigDict(extra="forbid", strict=True)

    timeout: float = Field(600.0, gt=0, lt=1e9)
    """Seconds that one call may take."""


class SearchSettings(Settings):
    """What can be set of a store that is searched."""

    k: int = Field(10, gt=0, lt=10**9)
    """Entries recalled."""


class EndpointSettings(Settings):
    """What can be set of an endpoint; `model` has to be (`--model`)."""

    model: str = Field(min_length=1)
    """Which of its models answers."""


def thing_of(name: str) -> Any | None:
    """What a name stands for that is no method of ours; None for a method.

    Raises:
        UserError: It cannot be imported.
        ProgramError: It is nothing that can be scored.
    """
    if name.startswith(WEB):
        return Endpoint
    if ":" not in name or "+" in name:
        return None
    found = imported(name)
    if inspect.isclass(found) and issubclass(found, Method):
        return None
    if kind_of(found) is None:
        raise ProgramError(f"method {name!r} is not a subclass of mempiler.Method, and {UNKNOWN}")
    return found


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
        config: Its settings, by name.

    Raises:
        UserError: It cannot be scored, or has no such setting.
    """
    kind = kind_of(thing)
    if kind is None:
        raise UserError(f"{name}: {UNKNOWN}")
    at_endpoint: bool = thing is Endpoint
    form = EndpointSettings if at_endpoint else SearchSettings if kind == "search" else Settings
    try:
        settings = form.model_validate(dict(config or {})).model_dump()
    except ValidationError as error:
        raise UserError(f"{name}: {misfit(error)}; its settings are {', '.join(form.model_fields)}") from None
    if kind == "answer":
        made = thing() if isinstance(thing, type) else thing
        # Other answers of a file are another program.
        method = External(name, {**settings, **getattr(made, "version", {})}, thing=made)
    else:
        make = partial(Endpoint, name, **settings) if at_endpoint else _making(thing, name, embedder)
        method = External(name, settings, Stores(make, name, folder, settings["timeout"]))
    asked = task_class(task)
    if kind != "search":
        asked = type(asked.__name__, (asked,), {"prompt": None, "forward": given, "__module__": asked.__module__})
    return MemoryProgram(method, asked(), cache, adapter, name)


def _making(thing: Any, name: str, embedder: Embedder | None) -> Callable[..., Any]:
    """What makes the system of one history; it may ask for its folder by that name."""
    if isinstance(thing, type) or "folder" in parameters(thing):
        return partial(thing, **({"embedder": embedder} if "embedder" in parameters(thing) else {}))
    try:
        copy.deepcopy(thing)
    except Exception as error:
        raise UserError(f"{name}: cannot be copied, one for every history; give its class ({error})") from error
    return lambda: copy.deepcopy(thing)
