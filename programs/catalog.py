"""Methods by name, and programs that are built from names and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ProgramError, UnknownNameError, UserError
from ..memory.search.embedder import Embedder
from ..records.import_object import import_object, refuse_python_file
from ._embedders import embedder_by_name, offline_embedder
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
    embedder: Embedder | str | None = None,
    cache: MemoryCache | None = None,
    adapter: str = "chat",
    **config: Any,
) -> MemoryProgram:
    """Return a program that is built from the names of a method and a task.

    Args:
        method: A name such as "turn-rag", the `module:Class` of a method of your own, or one of
            these after a policy, as in "pgr+turn-rag". A memory system of your own is named by its
            `module:name` or by the URL of its endpoint (`external.target`).
        task: The name of a task, such as "question-answering".
        embedder: Makes vectors for methods that search by meaning, or its name, such as "minilm".
            If None, methods that need one get the offline embedder, which only compares spelling:
            pass an embedding model for real use. The embedder also decides the thresholds for
            cosines that `config` does not set.
        cache: Memories to share with other programs.
        adapter: Name of the adapter that the program uses.
        **config: Settings of the method. Settings of the method beneath a policy have the prefix
            `inner_`, and those of the task (`TaskSettings`) the prefix `task.`.

    Raises:
        UnknownNameError: There is no such method or task.
        UserError: The class cannot be imported, is no method, or has no such settings.
    """
    # Raises an error for an unknown task, before `load_target` imports a module of the user's.
    task_class(task)
    if isinstance(embedder, str):
        embedder = embedder_by_name(embedder)
    target = load_target(method)
    if target is not None:
        return build_external_program(target, method, task, embedder, cache, adapter, config=config)

    # A program that was saved by an earlier version may have old names of settings.
    config_with_new_names = _with_new_names(method, config)
    method_config, task_settings = split_config(config_with_new_names, task)
    built_method = _build_method(method, embedder, method_config)
    built_task = _make_task(built_method, task, task_settings)
    return MemoryProgram(built_method, built_task, cache, adapter, method)


def with_task(program: MemoryProgram, task: str, settings: TaskSettings) -> MemoryProgram:
    """Return a program with the same method and memories that answers another task.

    Args:
        program: The program; it stays as it is.
        task: The name of the other task.
        settings: The settings of the other task.

    Raises:
        UserError: The task of the program has prompts. They may have been compiled, and would be
            lost.
    """
    if task == program.task.name:
        return program
    if program.task.predictors():
        raise UserError(f"it is for {program.task.name}, not for {task}; compile one for that")

    # The setting `dates` says whether dates are written beside words such as "yesterday". Memories
    # were written with the program's own value, so it stays.
    task_settings = settings.model_copy(update={"dates": program.task.settings.dates})
    new_task = _make_task(program.method, task, task_settings)
    return MemoryProgram(program.method, new_task, program.cache, program.adapter, program.name)


def method_class(name: str) -> type[Method]:
    """Return the class of a method; for "pgr+turn-rag" it is the class of the policy "pgr".

    Args:
        name: A name such as "turn-rag", the `module:Class` of a method, or one of these after one
            or more policies, as in "pgr+turn-rag".

    Raises:
        UnknownNameError: There is no such method or policy.
        UserError: The class cannot be imported, or there are too many policies.
        ProgramError: The name stands for something that is no method.
    """
    # `_path_of_class` calls this function for the method beneath each policy. So a name of a
    # thousand policies would exceed the limit of Python's recursion.
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
    """Return whether `build` should get an embedder for a method: it requires or accepts one.

    A policy such as "pgr" searches with the embedder of the method beneath it. So for the name
    "pgr+turn-rag" the answer is that of "turn-rag".
    """
    # A user's own system is no method, and its parameters say whether it takes an embedder.
    target = load_target(name)
    if target is not None:
        return takes_embedder(target)

    # The class of a policy is loaded too, since this raises an error for an unknown policy.
    cls = method_class(name)
    _, plus, inner_name = name.partition("+")
    if plus:
        return needs_embedder(inner_name)
    return cls.embedder_use != "none"


def preset(name: str, benchmark: str) -> dict[str, Any]:
    """Return the settings that suit a method for a benchmark better than its defaults.

    Args:
        name: The name of the method. For a policy, the settings of the method beneath it are
            returned too, with the prefix `inner_`.
        benchmark: The name of the benchmark.
    """
    # A user's own system has no presets.
    if load_target(name) is not None:
        return {}

    cls = method_class(name)
    _, plus, inner_name = name.partition("+")
    settings = cls.preset(benchmark, inner_name)
    if not plus:
        return settings

    # The task belongs to the whole program, so settings of the task in the preset of the inner
    # method are left out. The name of the task is only needed to split them off: any would do.
    inner_settings, _ = split_config(preset(inner_name, benchmark), "question-answering")
    for setting, value in inner_settings.items():
        settings[f"{Policy.INNER_PREFIX}{setting}"] = value
    return settings


def _with_new_names(method: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by today's names; programs of earlier versions have saved old names."""
    return {RENAMED.get((method, name), name): value for name, value in config.items()}


def _path_of_class(name: str) -> str:
    """Return the `module:Class` that the name of a method stands for.

    Args:
        name: As for `method_class`.

    Raises:
        UnknownNameError: There is no such method or policy.
        UserError: The method beneath a policy cannot be imported, or is no method.
    """
    policy, plus, inner_name = name.partition("+")
    if plus:
        if policy not in POLICIES:
            raise UnknownNameError("retrieval policy", policy, POLICIES)
        # Raises an error if there is no such method; the class itself is not needed here.
        method_class(inner_name)
        return POLICIES[policy].path

    if ":" in name:
        return name
    if name in METHODS:
        return METHODS[name].path

    # A path such as "my_method.py" gets an error that says how to name the class in it.
    refuse_python_file("method", name)
    installed = plugins()
    if name not in installed:
        raise UnknownNameError("method", name, [*METHODS, *installed])
    return installed[name].value


def _make_task(method: Method, task: str, settings: TaskSettings) -> Task:
    """Return a task with its settings.

    A method may have its own version of the task, with the answer prompt of its paper. All other
    methods share one version.
    """
    if task in method.tasks:
        method_task: Any = method.make_task(task)
        return method_task.configure(settings)
    return task_class(task)().configure(settings)


def _build_method(name: str, embedder: Embedder | None, config: Mapping[str, Any]) -> Method:
    """Return the method of a name; for `pgr+turn-rag` the policy `pgr` over `turn-rag`.

    Args:
        name: As for `method_class`.
        embedder: The embedding model; a method that takes none is built without it. If it is None,
            a method that requires an embedder gets the offline one.
        config: The settings by name; defaults fill the gaps.
    """
    cls = method_class(name)
    cls.check_constructor()
    _, plus, inner_name = name.partition("+")
    if plus:
        return _build_policy(name, inner_name, embedder, config)

    if cls.embedder_use == "none":
        return _construct(name, cls, {}, embedder, config)

    if cls.embedder_use == "required" and embedder is None:
        embedder = offline_embedder()
    return _construct(name, cls, {"embedder": embedder}, embedder, config)


def _build_policy(
    name: str, inner_name: str, embedder: Embedder | None, config: Mapping[str, Any]
) -> Method:
    """Return a policy over another method: it reads the memories of that method in its own way.

    Args:
        name: The whole name, e.g. "pgr+turn-rag".
        inner_name: The part of the name after the first "+": the method beneath.
        embedder: The embedding model of the method beneath.
        config: Settings of the policy, and with the prefix `inner_` those of the method beneath.
    """
    policy_config: dict[str, Any] = {}
    inner_config: dict[str, Any] = {}
    for setting, value in config.items():
        if setting.startswith(Policy.INNER_PREFIX):
            inner_config[setting.removeprefix(Policy.INNER_PREFIX)] = value
        else:
            policy_config[setting] = value

    inner = _build_method(inner_name, embedder, inner_config)
    # A policy has no embedder of its own: it searches with the one of the method beneath.
    return _construct(name, method_class(name), {"inner": inner}, inner.embedder, policy_config)


def _construct(
    name: str,
    cls: type[Method],
    parts: Mapping[str, Any],
    embedder: Embedder | None,
    config: Mapping[str, Any],
) -> Method:
    """Return an object of a method's class, made with settings from names and values.

    Args:
        name: What the user calls the method, for errors.
        cls: The class.
        parts: Arguments of the constructor besides its settings: `embedder`; for a policy `inner`,
            the method beneath it; or none.
        embedder: The embedding model that the method searches with. It decides the thresholds for
            cosines; the constructor gets it only if it is in `parts`.
        config: The settings by name; thresholds and defaults fill the gaps.

    Raises:
        UserError: The class has no such settings, or its constructor does not take the arguments.
    """
    thresholds = cosine_thresholds(cls, embedder)
    settings = cls.Settings.from_values(name, {**thresholds, **config})

    arguments = dict(parts)
    # A method without settings may have a constructor without the parameter `settings`.
    if cls.Settings.model_fields:
        arguments["settings"] = settings

    try:
        return cls(**arguments)
    except TypeError as error:
        # The class may be the user's own, so the user can fix its constructor.
        raise UserError(f"method {name!r}: {error}") from error
