"""What a run is started with: its configuration, and objects that a caller in Python made.

inputs = RunInputs(config)
inputs = RunInputs(config, user_models={"task": dspy.LM("openai/gpt-4.1-mini")})
run_evaluate("turn-rag", inputs)
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import dspy

from ..data.benchmark import Benchmark
from ..data.catalog import benchmark as load_benchmark
from ..data.dataset import Split
from ..data.support import SUPPORT, Support
from ..engines.model_names import GGUF, is_local
from ..engines.request_settings import request_settings
from ..engines.usage import Role
from ..errors import MissingDependencyError, UserError
from .config import RunConfig


@dataclass(frozen=True)
class RunInputs:
    """A configuration, with the objects that stand in the place of what it names.

    Raises:
        UserError: Settings do not go together, e.g. several workers and a model that each of them
            would load for itself.
    """

    config: RunConfig
    user_benchmark: Benchmark | None = field(default=None, repr=False, compare=False)
    """The caller's own questions; the configuration has their name."""
    user_models: Mapping[Role, dspy.BaseLM] = field(
        default_factory=dict[Role, dspy.BaseLM], repr=False, compare=False
    )
    """The caller's own models by role; the configuration has their names."""

    def __post_init__(self) -> None:
        request_settings(self.config.models.task.settings)
        _check_workers(self.config)

    @cached_property
    def benchmark(self) -> Benchmark:
        """The questions of the run, with the metric as it is set. They are read once."""
        data = self.config.data
        if self.user_benchmark is not None:
            benchmark = self.user_benchmark
        else:
            benchmark = load_benchmark(data.benchmark, data.file, **data.benchmark_settings)
        if data.support_tokens is None:
            return benchmark
        return benchmark.with_support_tokens(data.support_tokens)

    @property
    def support_tokens(self) -> int | None:
        """How many recalled tokens the metric `support` looks at; None for another metric."""
        data = self.config.data
        metric = data.benchmark_settings.get("metric")
        # `support` is nowhere the default. So the questions of a file need not be read to tell.
        if self.user_benchmark is None and metric != SUPPORT:
            return data.support_tokens
        scorer = self.benchmark.scorer
        return scorer.budget if isinstance(scorer, Support) else None

    def benchmark_for_compiling(self) -> Benchmark:
        """Return the benchmark, if programs can be compiled on it.

        Raises:
            UserError: It is a simulated conversation. Optimizers run a program on single examples.
        """
        benchmark = self.benchmark
        if benchmark.interaction is not None:
            raise UserError(
                f"{benchmark.name} is a simulated conversation:"
                " nothing compiles on it, evaluate on it"
            )
        return benchmark

    def refuse_as_reward(self) -> None:
        """Refuse a benchmark whose metric is no reward to train on.

        Raises:
            UserError: A judge scores, or the metric asks for no answer, as rewards do.
        """
        benchmark = self.benchmark
        if benchmark.scorer.required_judges:
            raise UserError(
                f"{benchmark.name} is scored by a judge, which is no reward to train on;"
                " choose a metric"
            )
        if not benchmark.scorer.needs_answer:
            raise UserError(
                f"{benchmark.scorer.title!r} asks for no answer, which rewards of a training do;"
                " choose another metric"
            )

    def split(self) -> Split:
        """Return the questions in the parts train, dev and test. They are divided once."""
        return self._split

    @cached_property
    def _split(self) -> Split:
        data = self.config.data
        min_dev = self.config.execution.min_n
        return self.benchmark.split(data.train, data.dev, data.test, data.seed, min_dev=min_dev)


def _check_workers(config: RunConfig) -> None:
    """Refuse workers that could not be started, or could not share what the run needs."""
    workers = config.execution.workers
    if workers == 1:
        return

    is_number = isinstance(workers, int) and workers > 1
    is_cluster = workers == "auto" or ":" in str(workers)
    if not is_number and not is_cluster:
        advice = "give a number of processes, or HOST:PORT (or auto) of a Ray cluster"
        raise UserError(f"workers = {workers!r}: {advice}")
    if importlib.util.find_spec("ray") is None:
        raise MissingDependencyError("ray", "ray")

    models = config.models
    for name in (models.task.name, models.prompt.name, models.judge.name, models.answer.name):
        if name and (is_local(name) or name.startswith(GGUF)):
            raise UserError(
                f"--workers: each would load {name} for itself; serve it, and name its --api-base"
            )
    if config.execution.replay:
        raise UserError("--workers does not go with --replay, which is one process's")
