"""The methods by name, and how a program is put together from names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ..engines.embedders import embedder as offline_embedder
from ..errors import ProgramError, UnknownNameError, UserError
from ..memory.search.embedder import Embedder
from ..records.import_object import import_object, refuse_python_file
from .external.program import build_external_program, load_target, takes_embedder
from .method import Method, Policy
from .settings import Settings
from .names import METHODS, POLICIES, plugins
from .program import MemoryProgram
from .cache import MemoryCache
from .tasks.task import TASK, TaskSettings, split_config
from .tasks.task import task as task_class

RULES: Mapping[tuple[str, str], str] = {
    ("pgr", "min_score"): "near",
    ("pgr", "augment_score"): "close",
    ("pgr", "merge_score"): "same",
    ("memory_r2", "min_score"): "related",
    ("rgmem", "node_cosine"): "named",
    ("rgmem", "merge_cosine"): "same",
}
"""What each setting of a method's room asks for of cosines, whose numbers differ by embedder.

Chosen with `perf/embedders.py` of commit b9d2176 on facts and questions of LoCoMo's conv-26, checked on conv-30:
`related` is above half of the facts of another conversation, `near` above 19 of 20, `named` above 999 of 1,000; half
of the evidence is above `close`; one in 10,000 pairs of facts of one conversation is above `same`.
"""

MOST_POLICIES = 8
"""Most policies in one name of a method, as `logs+` and `pgr+` in `logs+pgr+turn-rag`."""

COSINES: Mapping[str, Mapping[str, float]] = {
    "offline": {"near": 0.13, "named": 0.27, "close": 0.44},
    "minilm": {"related": 0.16, "near": 0.31, "named": 0.44, "close": 0.75, "same": 0.92},
    "e5": {"related": 0.73, "near": 0.77, "named": 0.8, "close": 0.88, "same": 0.98},
}
"""By embedder. What is not here is the method's default: of the offline one, those that were chosen under it."""
RENAMED: Mapping[tuple[str, str], str] = {("memory-r2", "abstain"): f"{TASK}abstain"}
"""Settings, by method and name, that programs saved by earlier versions name otherwise."""


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
        method: A name of `METHODS`, `module:Class` of one's own, or `pgr+` or `logs+` and one of these. Or what is no
            method: `module:thing` that answers or is searched, the URL of an endpoint (`external.program`).
        task: A name of `tasks.TASKS`.
        embedder: Vectors for methods that search by meaning; the offline embedder for those that cannot do without, if
            None. It compares spelling: name an embedding model for real use. Thresholds for cosines that `config` does
            not name are those of the embedder (`RULES`), or the method's defaults.
        cache: Memories to share with other programs.
        adapter: Name of the adapter it runs under.
        **config: Constructor arguments of the method; of a policy's inner method with the prefix `inner_`; of the task
            (`TaskSettings`) with the prefix `task.`.

    Raises:
        UnknownNameError: No such method or task.
        UserError: The class cannot be imported, is no method, or does not take the arguments.
    """
    task_class(task)
    thing = load_target(method)
    if thing is not None:
        return build_external_program(thing, method, task, embedder, cache, adapter, config=config)
    config, asked = split_config({RENAMED.get((method, name), name): value for name, value in config.items()}, task)
    made = _make(method, embedder, config)
    return MemoryProgram(made, _task_of(made, task, asked), cache, adapter, method)


def with_task(program: MemoryProgram, task: str, settings: TaskSettings) -> MemoryProgram:
    """A program with the same method, prompts and model, that answers another task by that task's own prompts.

    Its lines show resolved dates if those of the program did: its memories were written so.

    Raises:
        UserError: The program's own task was tuned, so that leaving it out would leave out what was compiled.
    """
    if task == program.task.name:
        return program
    if program.task.predictors():
        raise UserError(f"it is for {program.task.name}, not for {task}; compile one for that")
    settings = settings.model_copy(update={"dates": program.task.settings.dates})
    made = _task_of(program.method, task, settings)
    return MemoryProgram(program.method, made, program.cache, program.adapter, program.name)


def method_class(name: str) -> type[Method]:
    """The class of a method name or of a `module:Class`; of `pgr+METHOD` that of the policy."""
    policies = name.count("+")
    if policies > MOST_POLICIES:
        raise UserError(f"method {name[:40]!r}...: has {policies:,} policies before a method; at most {MOST_POLICIES}")

    policy, plus, inner = name.partition("+")
    if plus:
        if policy not in POLICIES:
            raise UnknownNameError("retrieval policy", policy, POLICIES)
        method_class(inner)
        path = POLICIES[policy].path
    elif ":" in name:
        path = name
    elif name in METHODS:
        path = METHODS[name].path
    else:
        refuse_python_file("method", name)
        others = plugins()
        if name not in others:
            raise UnknownNameError("method", name, [*METHODS, *others])
        path = others[name].value
    found = import_object("method", name, path)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ProgramError(f"method {name!r} is not a subclass of mempiler.Method")
    return found


def needs_embedder(name: str) -> bool:
    """Whether a method searches by meaning, or can."""
    thing = load_target(name)
    if thing is not None:
        return takes_embedder(thing)
    kind, (_, plus, inner) = method_class(name), name.partition("+")
    return needs_embedder(inner) if plus else _embedder_of(kind) is not None


def preset(name: str, benchmark: str) -> dict[str, Any]:
    """The settings that suit a method for a benchmark better than its defaults; of a policy those of both parts.

    Args:
        name: The method.
        benchmark: Its name.
    """
    if load_target(name) is not None:
        return {}
    _, plus, inner = name.partition("+")
    kind = method_class(name)
    own = kind.preset(benchmark, inner)
    beneath = preset(inner, benchmark) if plus else {}
    of_method = split_config(beneath, "question-answering")[0]
    return {**own, **{f"{Policy.INNER_PREFIX}{setting}": value for setting, value in of_method.items()}}


def _task_of(method: Method, task: str, settings: TaskSettings) -> Any:
    made: Any = method.make_task(task) if task in method.tasks else task_class(task)()
    return made.configured(settings)


def _make(name: str, embedder: Embedder | None, config: dict[str, Any]) -> Method:
    kind: Any = method_class(name)
    _, plus, inner = name.partition("+")
    given: dict[str, Any] = {}
    if plus:
        beneath = {key: value for key, value in config.items() if key.startswith(Policy.INNER_PREFIX)}
        config = {key: value for key, value in config.items() if key not in beneath}
        searched = _make(inner, embedder, {key.removeprefix(Policy.INNER_PREFIX): beneath[key] for key in beneath})
        given, embedder = {"inner": searched}, searched.embedder
    elif (asked := _embedder_of(kind)) is not None:
        if embedder is None and asked.default is asked.empty:
            embedder = offline_embedder()
        given = {"embedder": embedder}
    form = settings_model(kind)
    config = {**_thresholds(kind, form, embedder), **config}
    settings = form.from_values(name, config)
    made = {"settings": settings} if kind.Settings else {each: getattr(settings, each) for each in config}
    try:
        return kind(**given, **made)
    except TypeError as error:
        raise UserError(f"method {name!r}: {error}") from error


def _thresholds(kind: type[Method], form: type[Settings], embedder: Embedder | None) -> dict[str, float]:
    package, _, room = kind.__module__.rpartition(".")[0].rpartition(".")
    cosines = COSINES.get(embedder.name, {}) if embedder is not None and package == __package__ else {}
    fitting = {name: cosines[rule] for (of, name), rule in RULES.items() if of == room and rule in cosines}
    return {name: value for name, value in fitting.items() if name in form.model_fields}


def settings_model(kind: type[Method]) -> type[Settings]:
    """The settings of a method: its own model, or one of its constructor's arguments and their defaults."""
    return kind.Settings or Settings.for_class(kind)


def _embedder_of(kind: type[Method]) -> inspect.Parameter | None:
    return inspect.signature(kind.__init__).parameters.get("embedder")
