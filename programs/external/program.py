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
from .numbers import declared_numbers, with_numbers
from .signatures import check_store
from .target import CANNOT_BE_SCORED, parameters, target_kind
from .texts import declared_texts


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
    """Return a program that asks a memory system or an agent of the user's.

    Args:
        target: A store, a function, a module, or a class of stores or modules; see `target.py`.
        name: What tables and errors call the target; the URL of an endpoint.
        task: The name of the task.
        embedder: The embedder for stores whose constructor takes one.
        cache: Memories to share with other programs.
        adapter: The name of the adapter that is used where `dspy.settings` has none.
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
    elif target is Endpoint:
        method = _endpoint_method(name, target_config, folder)
    else:
        method = _store_method(target, name, target_config, embedder, folder)

    task_class = task_named(task)
    if kind != "search":
        # The target answers by itself, so the task must not ask a model too.
        task_class = _task_without_prompt(task_class, name, task_settings)
    configured_task = task_class().configure(task_settings)
    return MemoryProgram(method, configured_task, cache, adapter, name)


def _answering_method(target: Any, name: str, config: Mapping[str, Any]) -> External:
    """Return a method that passes questions to the user's function or module, which answers them.

    Args:
        target: A function, a module, or a class of modules.
        name: What tables and errors call the target.
        config: Settings of the target.
    """
    if isinstance(target, type):
        return _method_for_module_class(target, name, config)

    # The settings, and the version of the target, are saved with the program and its results.
    settings = AnsweringSettings.from_values(name, config)
    saved_values = settings.model_dump()

    # A target may name its version, so that results of different versions are told apart. It is a
    # mapping: for answers that are read from a file it holds the hash of the file.
    version = getattr(target, "version", None)
    if isinstance(version, Mapping):
        saved_values.update(version)

    # Unlike `AnsweringSettings`, `ExternalSettings` may hold values of any name.
    saved_settings = ExternalSettings(**saved_values)
    system = SystemSettings(name=name, settings=saved_settings)

    if isinstance(target, dspy.Module):
        # Compiling changes the predictors of a module. The user's object is to stay as it is.
        return External(system, answerer=target.deepcopy())
    return External(system, answerer=SharedFunction(target))


def _method_for_module_class(
    module_class: type[dspy.Module], name: str, config: Mapping[str, Any]
) -> External:
    """Make a module of the user's class, and return a method that answers questions by it.

    Args:
        module_class: The class of the module.
        name: What tables and errors call it.
        config: Values by name: arguments of the constructor, and settings that every system has,
            such as `timeout`.
    """
    # A pydantic class to check `config` by. It has one field for each setting that every system
    # has, and one for each argument of the constructor that `config` may hold.
    settings_class = with_constructor_arguments(AnsweringSettings, module_class)
    settings = settings_class.from_values(name, config)

    # What is in `config` and no common setting is an argument. Arguments that are not in `config`
    # are not passed: the constructor has its own defaults for them.
    common_names = set(AnsweringSettings.model_fields)
    argument_names = config.keys() - common_names
    arguments = settings.model_dump(include=argument_names)
    module = module_class(**arguments)

    # Saved with the program and its results: the common settings, and the arguments passed above.
    saved_values = settings.model_dump(include=common_names | argument_names)
    system = SystemSettings(name=name, settings=ExternalSettings(**saved_values))
    return External(system, answerer=module)


def _store_method(
    target: Any,
    name: str,
    config: Mapping[str, Any],
    embedder: Embedder | None,
    folder: Path | None,
) -> External:
    """Return a method that keeps every history in a store of the user's.

    Args:
        target: A store to copy, or a class or function that makes stores.
        name: What tables and errors call the target.
        config: Settings of the target.
        embedder: The embedder for stores whose constructor takes one.
        folder: Where stores keep their files; a temporary folder if None.

    Raises:
        UserError: A store cannot be copied, made or called; or a setting does not fit.
    """
    check_store(target, name)
    settings_class = SearchingSettings if target_kind(target) == "search" else AnsweringSettings
    numbers = declared_numbers(target, name)
    settings = with_numbers(settings_class, numbers, name).from_values(name, config)
    make_system = _system_maker(target, name, embedder)
    system = SystemSettings(
        name=name,
        settings=settings,
        default_texts=declared_texts(target, name),
        number_names=tuple(numbers),
        export_template=str(getattr(target, "EXPORT", "")),
    )
    return External(system, Stores(make_system, name, folder, settings.timeout))


def _endpoint_method(url: str, config: Mapping[str, Any], folder: Path | None) -> External:
    """Return a method that sends every history to a chat endpoint, and asks the endpoint questions.

    Args:
        url: The URL of the endpoint.
        config: Settings of the endpoint.
        folder: Where stores make a folder for every history; a temporary one if None. An endpoint
            keeps no files, so these folders stay empty.
    """
    settings = EndpointSettings.from_values(url, config)
    # For the method, an endpoint is a store like others: a new `Endpoint` is made per history.
    make_system = partial(Endpoint, url, model=settings.model, timeout=settings.timeout)
    system = SystemSettings(name=url, settings=settings)
    return External(system, Stores(make_system, url, folder, settings.timeout))


def _system_maker(target: Any, name: str, embedder: Embedder | None) -> Callable[..., Any]:
    """Return a function that makes a new store, which is called once for every history.

    Args:
        target: A class of stores, a function `make(folder)`, or a store, which is copied.
        name: What errors call the target.
        embedder: The embedder for a class or function that takes one.

    Raises:
        UserError: A store cannot be copied.
    """
    makes_stores = isinstance(target, type) or "folder" in parameters(target)
    if makes_stores:
        if "embedder" in parameters(target):
            return partial(target, embedder=embedder)
        return target

    try:
        # Try it now, so that the user sees the error before the first history is written.
        copy.deepcopy(target)
    except Exception as error:
        raise UserError(
            f"{name}: cannot be copied, one for every history; give its class ({error})"
        ) from error
    return partial(copy.deepcopy, target)


def _task_without_prompt(task_class: type[Task], name: str, settings: TaskSettings) -> type[Task]:
    """Return a class of a task that asks no model, but returns the answer of the system.

    The method of the system passes its answer to the task in a field of the query.

    Args:
        task_class: The task with a prompt; which fields an example must have stays the same.
        name: What errors call the system.
        settings: The settings of the task.

    Raises:
        UserError: A setting changes the prompt, which is not used.
    """
    if settings.reasoning:
        raise UserError(f"{name} answers by itself: task.reasoning does not reach it")

    class AnsweredTask(task_class):
        prompt = None

        def forward(self, context: Context, query: Query) -> dspy.Prediction:
            return dspy.Prediction(**query.extra[ANSWER_KEY])

    return AnsweredTask
