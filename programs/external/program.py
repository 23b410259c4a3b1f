"""Build programs around memory systems and agents.

They are asked the same questions as our methods, with the same reader and the same scorers.

    class Notes:
        def __init__(self): self.lines = []
        def add(self, session): self.lines += session.lines()
        def search(self, query, k): return self.lines[-k:]

    program = build_external_program(Notes, "notes", "question-answering")
    program(history=history, question="Where does Ada live?").answer

`target.py` says what can be scored, docs/own_systems.md how a user does it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from ...errors import UserError
from ...memory.search.embedder import Embedder
from ...records import Context, Query
from ..cache import MemoryCache
from ..program import MemoryProgram
from ..tasks.catalog import task_class as task_named
from ..tasks.settings import TaskSettings, split_config
from ..tasks.task import Task
from ._endpoint import Endpoint
from ._method import ANSWER_KEY, External, SharedFunction, SystemSettings
from ._settings import (
    AnsweringSettings,
    EndpointSettings,
    ExternalSettings,
    SearchingSettings,
    with_constructor_arguments,
)
from ._stores import Stores
from .target import CANNOT_BE_SCORED, parameters, target_kind


def build_external_program(
    target: Any,
    name: str,
    task: str,
    embedder: Embedder | None = None,
    cache: MemoryCache | None = None,
    adapter: str = "chat",
    folder: Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> MemoryProgram:
    """Return a program that asks a target.

    Args:
        target: A store, function or module, or a class of such; see `target.py`.
        name: What tables and errors call it; the URL of an endpoint.
        task: The name of the task.
        embedder: For stores that ask for one.
        cache: Memories to share.
        adapter: Name of the adapter that is used where `dspy.settings` has none.
        folder: Where stores keep their files; a temporary folder if None.
        config: Settings of the target, and of the task with the prefix "task.".

    Raises:
        UserError: The target cannot be scored, or has no such setting.
    """
    kind = target_kind(target)
    if kind is None:
        raise UserError(f"{name}: {CANNOT_BE_SCORED}")

    target_config, task_settings = split_config(config or {}, task)
    if kind == "answer":
        method = _answering_method(target, name, target_config)
    else:
        method = _store_method(target, name, target_config, embedder, folder)

    task_class = task_named(task)
    if kind != "search":
        task_class = _task_without_prompt(task_class, name, task_settings)
    return MemoryProgram(method, task_class().configure(task_settings), cache, adapter, name)


def _answering_method(target: Any, name: str, config: Mapping[str, Any]) -> External:
    """Return the method of a function, of a module, or of a class of modules."""
    if isinstance(target, type):
        return _module_class_method(target, name, config)

    settings = AnsweringSettings.from_values(name, config)
    values = settings.model_dump()
    version = getattr(target, "version", None)
    if isinstance(version, Mapping):
        # That of a file of recorded answers: with other answers it is another program.
        values.update(version)
    system = SystemSettings(name=name, settings=ExternalSettings(**values))
    if isinstance(target, dspy.Module):
        # A program changes its predictors; the user's own object stays as it is.
        return External(system, answerer=target.deepcopy())
    return External(system, answerer=SharedFunction(target))


def _module_class_method(
    module_class: type[dspy.Module], name: str, config: Mapping[str, Any]
) -> External:
    """Return the method of a class of modules; arguments of its constructor are its settings."""
    settings_class = with_constructor_arguments(AnsweringSettings, module_class)
    settings = settings_class.from_values(name, config)
    our_names = set(AnsweringSettings.model_fields)

    # Only what was set: the class itself knows its defaults.
    arguments = settings.model_dump(include=config.keys() - our_names)
    module = module_class(**arguments)
    saved = settings.model_dump(include=our_names | config.keys())
    system = SystemSettings(name=name, settings=ExternalSettings(**saved))
    return External(system, answerer=module)


def _store_method(
    target: Any,
    name: str,
    config: Mapping[str, Any],
    embedder: Embedder | None,
    folder: Path | None,
) -> External:
    """Return the method of an endpoint, a store, or a class or function that makes stores."""
    settings: AnsweringSettings
    if target is Endpoint:
        endpoint_settings = EndpointSettings.from_values(name, config)
        settings = endpoint_settings
        make_system = partial(
            Endpoint, name, model=endpoint_settings.model, timeout=endpoint_settings.timeout
        )
    else:
        settings_class = SearchingSettings if target_kind(target) == "search" else AnsweringSettings
        settings = settings_class.from_values(name, config)
        make_system = _system_maker(target, name, embedder)

    stores = Stores(make_system, name, folder, settings.timeout)
    system = SystemSettings(name=name, settings=ExternalSettings(**settings.model_dump()))
    return External(system, stores)


def _system_maker(target: Any, name: str, embedder: Embedder | None) -> Callable[..., Any]:
    """Return a function that makes the system of one history."""
    if isinstance(target, type) or "folder" in parameters(target):
        if "embedder" in parameters(target):
            return partial(target, embedder=embedder)
        return target

    try:
        copy.deepcopy(target)
    except Exception as error:
        raise UserError(
            f"{name}: cannot be copied, one for every history; give its class ({error})"
        ) from error
    return partial(copy.deepcopy, target)


def _task_without_prompt(task_class: type[Task], name: str, settings: TaskSettings) -> type[Task]:
    """Return a task that asks no model, but returns what the system has answered by itself.

    Raises:
        UserError: A setting concerns the prompt.
    """
    if settings.reasoning:
        raise UserError(f"{name} answers by itself: task.reasoning does not reach it")

    class AnsweredTask(task_class):
        prompt = None

        def forward(self, context: Context, query: Query) -> dspy.Prediction:
            return dspy.Prediction(**query.extra[ANSWER_KEY])

    return AnsweredTask
