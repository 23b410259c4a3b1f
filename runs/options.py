"""The options that compiling, evaluating and training share, as arguments of Python functions.

    mempiler.evaluate("turn-rag", benchmark="locomo", data="locomo10.json", lm="offline", max_usd=2)
    mempiler evaluate turn-rag --benchmark locomo --data locomo10.json --lm offline --max-usd 2

`make_inputs` turns them into a `RunConfig`, beside which stand the objects among them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import dspy

from ..data.benchmark import Benchmark
from ..engines.limits import Limits
from ..engines.metered_lm import MeteredLM
from ..engines.usage import Role
from ..errors import UnknownNameError, UserError
from .config import RunConfig, Tracking, Workers
from .inputs import RunInputs
from .repeating import with_replayed_models


class RunOptions(TypedDict, total=False):
    """Options of `compile`, `evaluate`, `choose` and `train`.

    Those that are left out have the defaults of the command line.
    """

    benchmark: str | Benchmark
    """In the place of examples: a benchmark by its name, or one from `mempiler.benchmark`."""
    data: str | Path | None
    """The benchmark's file; the bundled sample if left out."""
    categories: str | int | Sequence[str | int] | None
    """Categories of the benchmark to keep, e.g. 2, [2, 4] or "2,4"."""
    support_tokens: int | None
    """Tokens of what is recalled that the metric "support" looks at; 300 if left out."""
    benchmark_set: Mapping[str, Any]
    """Further options of the benchmark, e.g. {"length": "128k"}."""

    lm: str | dspy.BaseLM | None
    """The model that answers: a name, or a `dspy.LM`.

    If left out it is the model of `dspy.configure`, or else "offline".
    """
    api_base: str | None
    """Address of an OpenAI-compatible server."""
    lm_set: Mapping[str, Any]
    """Settings of every request to `lm`, e.g. {"temperature": 0}."""
    prompt_lm: str | dspy.BaseLM | None
    """Writes proposals and reflections; `lm` if left out."""
    prompt_api_base: str | None
    judge_lm: str | dspy.BaseLM | None
    """Judges answers, for metrics that need a judge."""
    judge_api_base: str | None
    answer_lm: str | dspy.BaseLM | None
    """Answers from a memory that `lm` writes, in an evaluation or for the rewards of a training;
    `lm` if left out."""
    answer_api_base: str | None
    embedder: str
    """"offline", "minilm", "e5", or the name of an embedding model."""
    embedder_api_base: str | None
    reranker: str | None
    """"none", "tokens" or "fastembed:NAME"."""
    adapter: str | None
    """"auto", "chat", "json" or "compact"."""
    set: Mapping[str, Any]
    """Settings of the method, e.g. {"k": 20}."""

    train: int | None
    """Training questions; all if left out."""
    dev: int | None
    """Questions that decide whether a compiled program is better."""
    test: int | None
    """Questions that are scored before and after."""
    seed: int
    threads: int
    """Questions in flight."""
    workers: Workers
    """Processes that share the work, or the address of a Ray cluster."""
    min_n: int
    """Questions that a verdict needs."""
    margin: float | None
    """How much worse a compiled program may be if it is cheaper, in points of the score."""
    max_failure_rate: float
    """Share of failed questions above which a run is broken."""

    limits: Limits
    """All limits in one object, in the place of the next four."""
    max_usd: float | None
    max_calls: int | None
    max_tokens: int | None
    max_minutes: float | None
    timeout: float
    """Seconds without a byte after which a call has failed."""
    retries: int
    lm_deadline: float
    """Seconds for a call, its retries included."""

    resume: str | Path | None
    """A run to continue, by its name or folder; only what is missing is paid for."""
    replay: str | Path | None
    """A run whose answers are taken in the place of any call."""
    tracking: Tracking
    """Whether runs are recorded in MLflow ("mlflow"), or in their folders alone ("off").

    If left out it is what the variable `MEMPILER_TRACKING` says, or else "mlflow".
    """
    traces: int | None
    """Questions whose traces MLflow gets; None for all."""
    allow_code: bool
    """Whether a saved program may import its `module:Class` method."""
    progress: bool
    """Whether progress is shown on standard error; True if left out."""


TRACKING_VARIABLE = "MEMPILER_TRACKING"
"""The environment variable for the option `tracking`."""
_MAPPINGS = ("set", "lm_set", "benchmark_set")
"""Options that hold settings by name."""
_PATHS = ("data", "resume", "replay")
"""Options that may be a path."""
_LIMITS = ("max_usd", "max_calls", "max_tokens", "max_minutes")
_MODELS: Mapping[str, Role] = {
    "lm": "task",
    "prompt_lm": "prompt",
    "judge_lm": "judge",
    "answer_lm": "answer",
}
"""The role of each option that may hold a model."""


@dataclass(frozen=True)
class Questions:
    """The user's own questions and metric, as Python functions take them."""

    trainset: Sequence[dspy.Example] | None = None
    valset: Sequence[dspy.Example] | None = None
    testset: Sequence[dspy.Example] | None = None
    metric: Any = None
    """A function, or the name of a metric; for a benchmark too."""

    @property
    def has_examples(self) -> bool:
        """Whether there are examples."""
        return any(part is not None for part in (self.trainset, self.valset, self.testset))

    def benchmark(self, seed: int) -> Benchmark:
        """Make a benchmark of the examples."""
        return Benchmark.from_examples(
            self.trainset or (),
            self.metric,
            valset=self.valset,
            testset=self.testset,
            seed=seed,
        )


def make_inputs(
    options: Mapping[str, Any],
    questions: Questions | None = None,
    arguments: Collection[str] = (),
) -> RunInputs:
    """Return what a run is started with.

    Args:
        options: Those of `RunOptions`.
        questions: The user's own, which then stand in the place of a benchmark.
        arguments: What the called function takes beside these options. The message about an unknown
            option may suggest one of them.

    Raises:
        UserError: An option is unknown or does not fit, or there are neither questions nor a
            benchmark, or both.
    """
    _refuse_unknown(options, arguments)
    questions = questions or Questions()
    values = {name: value for name, value in options.items() if name != "progress"}
    # Like `MEMPILER_HOME`, the variable is about where records go. So it holds in Python, too.
    if TRACKING_VARIABLE in os.environ:
        values.setdefault("tracking", os.environ[TRACKING_VARIABLE])

    limits = _take_limits(values)
    names, user_models = _take_models(values)
    benchmark, user_benchmark = _take_benchmark(values, questions)
    if questions.metric is not None and user_benchmark is None:
        if not isinstance(questions.metric, str):
            raise UserError(
                "metric: a function scores examples of your own;"
                " of a benchmark, name one of its metrics"
            )
        values["metric"] = questions.metric
    values["categories"] = _category_option(values.get("categories"))
    for name in _PATHS:
        if isinstance(values.get(name), Path):
            values[name] = str(values[name])
    for name in _MAPPINGS:
        settings = values.get(name)
        if settings is None or isinstance(settings, Mapping):
            values[name] = dict(settings or {})

    config = RunConfig.from_options(benchmark=benchmark, **limits.as_dict(), **names, **values)
    inputs = RunInputs(config, user_benchmark, user_models)
    return with_replayed_models(inputs, lambda name: _is_set(options.get(name)))


def _is_set(value: Any) -> bool:
    """Return whether an option was set: None and empty settings are as good as left out."""
    if isinstance(value, Mapping):
        return bool(value)
    return value is not None


def _category_option(categories: str | int | Iterable[str | int] | None) -> str | None:
    """Return categories as the option `--categories` takes them, e.g. "2,4".

    The result is None if there are none: then questions of all categories are asked.

    Raises:
        UserError: They are neither one category nor several.
    """
    if categories is None or isinstance(categories, str):
        return categories or None
    if isinstance(categories, int):
        return str(categories)
    if not isinstance(categories, Iterable):
        raise UserError(f"categories = {categories!r:.100}: give one, or a list such as [2, 4]")
    return ",".join(str(category) for category in categories) or None


def _refuse_unknown(options: Mapping[str, Any], arguments: Collection[str]) -> None:
    """Refuse options that no function has."""
    for name in options:
        if name not in RunOptions.__annotations__:
            raise UnknownNameError("option", name, [*RunOptions.__annotations__, *arguments])


def _take_limits(values: dict[str, Any]) -> Limits:
    """Take the limits out of the values: one object, or single ones, but not both."""
    single_limits = {name: values.pop(name, None) for name in _LIMITS}
    limits = values.pop("limits", None)
    if limits is None:
        return Limits(**single_limits)
    if not isinstance(limits, Limits):
        raise UserError(f"limits = {limits!r:.100}: give mempiler.Limits(...)")
    for name, value in single_limits.items():
        if value is not None:
            raise UserError(
                f"{name} = {value}: give it in limits=Limits({name}=...), or leave limits out"
            )
    return limits


def _take_models(
    values: dict[str, Any],
) -> tuple[dict[str, str | None], dict[Role, dspy.BaseLM]]:
    """Take the models out of the values.

    Returns:
        The names of the models by option, and by role the objects among them.
    """
    names: dict[str, str | None] = {}
    models: dict[Role, dspy.BaseLM] = {}
    for option, role in _MODELS.items():
        model = values.pop(option, None)
        if option == "lm" and model is None:
            model = dspy.settings.lm or "offline"
        check_model_option(option, model)
        if isinstance(model, dspy.BaseLM):
            models[role] = model
            names[option] = model.model
        else:
            names[option] = model
    return names, models


def check_model_option(option: str, model: object) -> None:
    """Refuse the value of an option that is no language model, nor the name of one, nor None.

    Raises:
        UserError: It is something else, or a model that has limits of its own.
    """
    if isinstance(model, dspy.BaseLM):
        _refuse_own_limits(option, model)
    elif model is not None and not isinstance(model, str):
        raise UserError(
            f"{option}: expected the name of a model or a dspy.LM, got {type(model).__name__}"
        )


def _refuse_own_limits(option: str, model: dspy.BaseLM) -> None:
    """Refuse a metered model that has limits of its own.

    A run asks a copy of the model, which keeps to the limits of the run. So the limits of the model
    would be ignored without a word.

    Raises:
        UserError: The model has limits.
    """
    if isinstance(model, MeteredLM) and model.guard.has_limits:
        raise UserError(
            f"{option}: the model has limits of its own, which a run does not keep to;"
            " give limits= to the run instead"
        )


def _take_benchmark(values: dict[str, Any], questions: Questions) -> tuple[str, Benchmark | None]:
    """Take the benchmark out of the values.

    Returns:
        Its name, and the benchmark itself where it is an object or made of examples.
    """
    benchmark = values.pop("benchmark", None)
    if benchmark is not None and questions.has_examples:
        raise UserError("give either examples (trainset, valset, testset) or a benchmark, not both")
    if isinstance(benchmark, Benchmark):
        return benchmark.name, benchmark
    if benchmark is not None:
        return str(benchmark), None
    if not questions.has_examples:
        raise UserError(
            "nothing to ask: give examples (trainset=[dspy.Example(...)]) or benchmark='locomo'"
        )
    user_benchmark = questions.benchmark(values.get("seed", 0))
    return user_benchmark.name, user_benchmark
