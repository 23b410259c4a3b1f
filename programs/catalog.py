"""Methods by name, and programs that are built from names and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ProgramError, UnknownNameError, UserError
from ..memory.search.embedder import Embedder
from ..records.import_object import import_object, refuse_python_file
from ._embedders import offline_embedder
from ._thresholds import cosine_thresholds
from .cache import MemoryCache
from .external.program import build_external_program
from .external.target import load_target, takes_embedder
from .method import Method, Policy
from .names import METHODS, POLICIES, plugins
from .program import MemoryProgram
from .tasks.catalog import task_class
from .tasks.settings import TASK_PREFIX, TaskSettings, split_config
from .tasks.task import Task

MOST_POLICIES = 8
"""Most policies in one name of a method, as `logs+` and `pgr+` in `logs+pgr+turn-rag`."""

RENAMED: Mapping[tuple[str, str], str] = {("memory-r2", "abstain"): f"{TASK_PREFIX}abstain"}
"""New names of settings, by method and by the name that programs of earlier versions have saved."""


def build(
    method: str,
    task: str = "question-answering",
    embedder: Embedder | None = None,
    cache: MemoryCache | None = None,
    adapter: str = "chat",
    **config: Any,
) -> MemoryProgram:
    """Return a program that is put together from names.

    Args:
        method: A name of `METHODS`, the `module:Class` of a method, or one of these after `pgr+` or
            `logs+`. It may also be no method of ours: the `module:name` of something that answers
            or is searched, or the URL of an endpoint (`external.target`).
        task: A name of `tasks.catalog.TASKS`.
        embedder: Makes vectors for methods that search by meaning. If None, methods that need one
            get the offline embedder, which compares spelling: name an embedding model for real
            use. Thresholds of cosines that `config` does not name are those of the embedder
            (`_thresholds.py`), or else the method's defaults.
        cache: Memories to share with other programs.
        adapter: Name of the adapter it runs under.
        **config: Settings of the method; with the prefix `inner_` those of a policy's inner
            method, with the prefix `task.` those of the task (`TaskSettings`).

    Raises:
        UnknownNameError: There is no such method or task.
        UserError: The class cannot be imported, is no method, or has no such settings.
    """
    # An unknown task is reported before a module of the user's is imported.
    task_class(task)
    target = load_target(method)
    if target is not None:
        return build_external_program(target, method, task, embedder, cache, adapter, config=config)

    method_config, task_settings = split_config(_with_new_names(method, config), task)
    built_method = _build_method(method, embedder, method_config)
    built_task = _make_task(built_method, task, task_settings)
    return MemoryProgram(built_method, built_task, cache, adapter, method)


def with_task(program: MemoryProgram, task: str, settings: TaskSettings) -> MemoryProgram:
    """Return a program with the same method, prompts and model that answers another task.

    It answers by that task's own prompts. Its lines show resolved dates if those of the program
    did: its memories were written so.

    Raises:
        UserError: The task of the program has prompts. They may have been compiled, and would be
            lost.
    """
    if task == program.task.name:
        return program
    if program.task.predictors():
        raise UserError(f"it is for {program.task.name}, not for {task}; compile one for that")

    task_settings = settings.model_copy(update={"dates": program.task.settings.dates})
    new_task = _make_task(program.method, task, task_settings)
    return MemoryProgram(program.method, new_task, program.cache, program.adapter, program.name)


def method_class(name: str) -> type[Method]:
    """Return the class of a method's name or `module:Class`; for `pgr+METHOD`, the policy's class.

    Raises:
        UnknownNameError: There is no such method or policy.
        UserError: The class cannot be imported, or is no method.
    """
    policy_count = name.count("+")
    if policy_count > MOST_POLICIES:
        raise UserError(
            f"method {name[:40]!r}...: has {policy_count:,} policies before a method; "
            f"at most {MOST_POLICIES}"
        )

    loaded = import_object("method", name, _path_of_class(name))
    if not (isinstance(loaded, type) and issubclass(loaded, Method)):
        raise ProgramError(f"method {name!r} is not a subclass of mempiler.Method")
    return loaded


def needs_embedder(name: str) -> bool:
    """Return whether a method can search by meaning; some cannot do otherwise."""
    target = load_target(name)
    if target is not None:
        return takes_embedder(target)

    cls = method_class(name)
    _, plus, inner_name = name.partition("+")
    if plus:
        return needs_embedder(inner_name)
    return cls.embedder_use != "none"


def preset(name: str, benchmark: str) -> dict[str, Any]:
    """Return the settings that suit a method for a benchmark better than its defaults.

    For a policy, those of the inner method are among them, with the prefix `inner_`.

    Args:
        name: The method.
        benchmark: The benchmark's name.
    """
    if load_target(name) is not None:
        return {}

    cls = method_class(name)
    _, plus, inner_name = name.partition("+")
    settings = cls.preset(benchmark, inner_name)
    if not plus:
        return settings

    # The task is that of the whole program, so settings of the inner method alone are taken along.
    inner_settings, _ = split_config(preset(inner_name, benchmark), "question-answering")
    for setting, value in inner_settings.items():
        settings[f"{Policy.INNER_PREFIX}{setting}"] = value
    return settings


def _with_new_names(method: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by today's names; a program of an earlier version may have saved others."""
    return {RENAMED.get((method, name), name): value for name, value in config.items()}


def _path_of_class(name: str) -> str:
    """Return the `module:Class` that a method's name stands for.

    Raises:
        UnknownNameError: There is no such method or policy.
        UserError: The method beneath a policy cannot be imported, or is no method.
    """
    policy, plus, inner_name = name.partition("+")
    if plus:
        if policy not in POLICIES:
            raise UnknownNameError("retrieval policy", policy, POLICIES)
        method_class(inner_name)
        return POLICIES[policy].path

    if ":" in name:
        return name
    if name in METHODS:
        return METHODS[name].path

    refuse_python_file("method", name)
    installed = plugins()
    if name not in installed:
        raise UnknownNameError("method", name, [*METHODS, *installed])
    return installed[name].value


def _make_task(method: Method, task: str, settings: TaskSettings) -> Task:
    """Return a task with its settings, by the prompt of the method's own paper if there is one."""
    if task not in method.tasks:
        return task_class(task)().configure(settings)
    method_task: Any = method.make_task(task)
    return method_task.configure(settings)


def _build_method(name: str, embedder: Embedder | None, config: Mapping[str, Any]) -> Method:
    cls = method_class(name)
    cls.check_constructor()
    _, plus, inner_name = name.partition("+")
    if plus:
        return _build_policy(name, inner_name, embedder, config)

    arguments: dict[str, Any] = {}
    if cls.embedder_use != "none":
        if cls.embedder_use == "required" and embedder is None:
            embedder = offline_embedder()
        arguments["embedder"] = embedder
    return _construct(name, cls, arguments, embedder, config)


def _build_policy(
    name: str, inner_name: str, embedder: Embedder | None, config: Mapping[str, Any]
) -> Method:
    policy_config: dict[str, Any] = {}
    inner_config: dict[str, Any] = {}
    for setting, value in config.items():
        if setting.startswith(Policy.INNER_PREFIX):
            inner_config[setting.removeprefix(Policy.INNER_PREFIX)] = value
        else:
            policy_config[setting] = value

    inner = _build_method(inner_name, embedder, inner_config)
    # A policy searches by what the inner method searches by.
    return _construct(name, method_class(name), {"inner": inner}, inner.embedder, policy_config)


def _construct(
    name: str,
    cls: type[Method],
    arguments: dict[str, Any],
    embedder: Embedder | None,
    config: Mapping[str, Any],
) -> Method:
    """Return an object of a method's class, made with its settings and further arguments.

    Args:
        name: What the method is called, for errors.
        cls: The class.
        arguments: Its `embedder` or `inner` method.
        embedder: What it searches by, which decides about thresholds.
        config: The settings by name; defaults fill the gaps.

    Raises:
        UserError: The class has no such settings, or its constructor fails.
    """
    settings = cls.Settings.from_values(name, {**cosine_thresholds(cls, embedder), **config})
    if cls.Settings.model_fields:
        arguments = {**arguments, "settings": settings}
    try:
        return cls(**arguments)
    except TypeError as error:
        raise UserError(f"method {name!r}: {error}") from error
