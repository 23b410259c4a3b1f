"""Which of the foreign things something is, and the program that it becomes.

module:thing     a callable or a module that answers, or a class, a factory or an object with `add` and `search`
http://...       a chat endpoint
answers.jsonl    recorded answers
"""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dspy

from ...errors import ProgramError, UserError
from ...memory.index import Embedder
from ..method import Method
from ..program import MemoryProgram
from ..remember import MemoryCache
from ..tasks.task import task as task_class
from .endpoint import Chat
from .method import System
from .own import Asked, Own, OwnReader, Replayed, SpokenProgram, silent
from .recorded import Answers, RecordedReader
from .stores import Limits, Stores

ENDS = ".jsonl"
WEB = ("http://", "https://")


def thing_of(name: str) -> Any | None:
    """What a name stands for that is no method of ours; None for a method.

    Raises:
        UserError: It cannot be imported or read.
        ProgramError: It is nothing that can be scored.
    """
    if name.startswith(WEB):
        return Chat
    if name.endswith(ENDS):
        return Answers(name)
    if ":" not in name or "+" in name:
        return None
    found = imported(name)
    if inspect.isclass(found) and issubclass(found, Method):
        return None
    if not (is_searchable(found) or answers(found) or is_factory(found)):
        wanted = "and has neither add and search nor the parameters (history, question)"
        raise ProgramError(f"method {name!r} is not a subclass of mempiler.Method, {wanted}")
    return found


def imported(name: str, path: str = "") -> Any:
    """What `module:attribute` names.

    Args:
        name: What failures call it.
        path: Where it is; the name itself if empty.

    Raises:
        UserError: It cannot be imported.
    """
    module, _, attribute = (path or name).partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"method {name!r}: cannot be imported: {error}") from error


def name_of(thing: Any) -> str:
    """What tables call a thing: `module:name`."""
    kind = thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing)
    return f"{kind.__module__}:{kind.__qualname__}"


def takes_embedder(thing: Any) -> bool:
    """Whether a factory asks for the run's embedder."""
    return (is_searchable(thing) or is_factory(thing)) and "embedder" in _parameters(thing)


def is_searchable(thing: Any) -> bool:
    """Whether something, or what a class makes, is given sessions and then searched or asked."""
    return hasattr(thing, "add") and (hasattr(thing, "search") or hasattr(thing, "ask"))


def asks_itself(thing: Any) -> bool:
    """Whether a store answers by itself; a factory says so by an attribute `asks`."""
    return getattr(thing, "asks", False) is True or (hasattr(thing, "ask") and not hasattr(thing, "search"))


def answers(thing: Any) -> bool:
    """Whether something takes a history and a question."""
    if isinstance(thing, dspy.Module) or (isinstance(thing, type) and issubclass(thing, dspy.Module)):
        return True
    if isinstance(thing, type) or not callable(thing):
        return False
    names = [name for name, kind in _parameters(thing).items() if kind in (0, 1)]
    return len(names) >= 2 and names[0] != "folder"


def is_factory(thing: Any) -> bool:
    """Whether something makes the system of one history, given its folder."""
    return inspect.isroutine(thing) and next(iter(_parameters(thing)), "") == "folder"


def settings_of(thing: Any) -> dict[str, Any]:
    """The settings that a thing has, each with its default."""
    limits = {"timeout": Limits.timeout, "max_mb": Limits.max_mb}
    if isinstance(thing, Answers):
        return {}
    if thing is Chat:
        return {**limits, "model": ""}
    if not is_searchable(thing) and answers(thing):
        return {"timeout": Limits.timeout}
    return limits if asks_itself(thing) else {**limits, "k": 10}


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
        config: `timeout` (seconds of one call), `max_mb` (of one store), `k` (entries recalled); of an endpoint
            `model`.

    Raises:
        UserError: It has no such setting.
    """
    method, asks = _method(thing, name, embedder, folder, dict(config or {}))
    kind = task_class(task)
    if asks:
        return SpokenProgram(method, silent(kind), cache, adapter, name)
    return MemoryProgram(method, kind(), cache, adapter, name)


def _method(
    thing: Any, name: str, embedder: Embedder | None, folder: Path | None, config: dict[str, Any]
) -> tuple[Method, bool]:
    """The method of a thing, and whether it answers by itself."""
    if not _is_known(thing):
        raise UserError(f"{name}: is neither a callable (history, question) nor has it add and search")
    _check(name, config, settings_of(thing))
    if isinstance(thing, Answers):
        return Replayed(RecordedReader(), thing.sha256), True
    if thing is Chat:
        if not config.get("model"):
            raise UserError(f"{name}: which of its models is to answer? name it with --model")
        make: Any = Chat(name, str(config.pop("model")), config.get("timeout", Limits.timeout))
        return Asked(_stores(make, name, folder, config, None), **config), True
    if not is_searchable(thing) and answers(thing):
        module = thing() if isinstance(thing, type) else thing
        return Own(OwnReader(module, name, config.get("timeout", Limits.timeout)), **config), True
    asks = asks_itself(thing)
    stores = _stores(_making(thing, name), name, folder, config, embedder)
    return (Asked if asks else System)(stores, **config), asks


def _is_known(thing: Any) -> bool:
    return thing is Chat or isinstance(thing, Answers) or is_searchable(thing) or is_factory(thing) or answers(thing)


def _stores(make: Any, name: str, folder: Path | None, config: Mapping[str, Any], embedder: Any) -> Stores:
    limits = {key: value for key, value in config.items() if key in ("timeout", "max_mb")}
    return Stores(make, name, folder, Limits(**limits), embedder)


def _making(thing: Any, name: str) -> Callable[..., Any]:
    """What makes the system of one history."""
    if inspect.isroutine(thing):
        return thing
    if isinstance(thing, type):
        return thing if takes_folder(thing) else _without_folder(thing)
    try:
        copy.deepcopy(thing)
    except Exception as error:
        raise UserError(f"{name}: cannot be copied, one for every history; give its class ({error})") from error
    return _without_folder(lambda: copy.deepcopy(thing))


def _without_folder(make: Callable[[], Any]) -> Callable[[Path], Any]:
    return lambda folder: make()


def takes_folder(kind: Any) -> bool:
    """Whether a class, or a function, is given the folder of the store that it makes."""
    try:
        found = inspect.signature(kind).parameters
    except (TypeError, ValueError):
        return False
    first = next(iter(found.values()), None)
    return "folder" in found or (first is not None and first.default is first.empty and first.kind in (0, 1))


def _check(name: str, config: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuses settings that a thing does not have, or that are no amounts."""
    for key, value in config.items():
        if key not in known:
            raise UserError(f"{name}: has no setting {key!r}; it has: {', '.join(known) or 'none'}")
        amount = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9
        if isinstance(known[key], int | float) and not (amount and (key != "k" or isinstance(value, int))):
            raise UserError(f"{name}: {key} = {value!r} is no number above 0")


def _parameters(thing: Any) -> dict[str, Any]:
    try:
        found = inspect.signature(thing).parameters
    except (TypeError, ValueError):
        return {}
    return {name: int(parameter.kind) for name, parameter in found.items()}
