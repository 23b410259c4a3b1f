"""An optimizer of the user's own: a function that makes a teleprompter for a metric.

Example:
    def my_optimizer(metric):
        return dspy.BootstrapFewShot(metric=metric, max_bootstrapped_demos=2)

    mempiler.compile(program, trainset=..., optimizer=my_optimizer)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.teleprompt import Teleprompter

from ..errors import UserError
from .job import OptimizerJob
from .metric_views import MetricViews

TeleprompterFactory = Callable[[Callable[..., Any]], Teleprompter]
"""Makes a teleprompter for a metric."""


@dataclass(frozen=True)
class CustomOptimizer:
    """Runs the teleprompter that a user's function makes."""

    name: str
    make_teleprompter: TeleprompterFactory
    settings: Mapping[str, Any]
    """None that this package knows of: they are in the user's function."""
    validates: bool = True
    """A third of the training questions is set aside, for a teleprompter that takes a `valset`."""

    def check(self, job: OptimizerJob) -> None:
        """Do nothing: what the teleprompter needs is not known here."""

    def run(self, job: OptimizerJob) -> Any:
        """Compile the job's program; return what the teleprompter returns.

        Raises:
            UserError: The function returned something that cannot compile.
        """
        teleprompter = self.make_teleprompter(teleprompter_metric(job.metric_views))
        compile_method = getattr(teleprompter, "compile", None)
        if not callable(compile_method):
            returned = type(teleprompter).__name__
            raise UserError(f"optimizer {self.name} returned {returned}, which has no compile(student, trainset=...)")

        if "valset" in inspect.signature(compile_method).parameters:
            return compile_method(job.student, trainset=list(job.train), valset=list(job.val))
        return compile_method(job.student, trainset=[*job.train, *job.val])


def teleprompter_metric(metric_views: MetricViews) -> Callable[..., Any]:
    """Return the benchmark's metric as one function that every teleprompter of DSPy can call.

    It returns a score with feedback where GEPA asks about one predictor, a yes or no where a trace is judged for
    bootstrapping, and a number everywhere else.
    """

    def metric(
        gold: dspy.Example,
        pred: dspy.Prediction,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> Any:
        if pred_name is not None:
            return metric_views.feedback(gold, pred, trace, pred_name, pred_trace)
        if trace is not None:
            return metric_views.passed(gold, pred, trace)
        return metric_views.score(gold, pred)

    return metric
