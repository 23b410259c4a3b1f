"""An optimizer of the user's own: a function that returns a teleprompter for a metric.

"Teleprompter" is DSPy's word for an optimizer.

Example:
    def my_optimizer(metric):
        return dspy.BootstrapFewShot(metric=metric, max_bootstrapped_demos=2)

    mempiler.compile(program, trainset=..., optimizer=my_optimizer)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import dspy
from dspy.teleprompt import Teleprompter

from ..errors import UserError
from .job import OptimizerJob
from .metric_views import MetricViews
from .optimizer import Optimizer

TeleprompterFactory = Callable[[Callable[..., Any]], Teleprompter]
"""Returns a teleprompter for a metric."""


@dataclass(frozen=True, kw_only=True)
class CustomOptimizer(Optimizer):
    """Runs the teleprompter that a user's function returns."""

    name: ClassVar[str] = "custom"
    changes_in_program: ClassVar[str] = "what the user's teleprompter changes"
    cost_description: ClassVar[str] = "not known"
    # For a teleprompter that takes a `valset`; others learn from all questions.
    needs_valset: ClassVar[bool] = True

    make_teleprompter: TeleprompterFactory
    function_name: str
    """The name of the user's function, for messages."""

    def run(self, job: OptimizerJob) -> Any:
        """Compile the job's program; return what the teleprompter returns.

        Raises:
            UserError: The function returned something that cannot compile.
        """
        teleprompter = self.make_teleprompter(teleprompter_metric(job.metric_views))
        compile_method = getattr(teleprompter, "compile", None)
        if not callable(compile_method):
            type_name = type(teleprompter).__name__
            raise UserError(
                f"optimizer {self.function_name} returned {type_name}, "
                "which has no compile(student, trainset=...)"
            )

        if "valset" in inspect.signature(compile_method).parameters:
            return compile_method(job.student, trainset=list(job.train), valset=list(job.val))
        # The teleprompter does not choose candidates by a valset, so the questions that were set
        # aside for one are free to learn from.
        return compile_method(job.student, trainset=[*job.train, *job.val])


def teleprompter_metric(metric_views: MetricViews) -> Callable[..., Any]:
    """Return the benchmark's metric as one function that every teleprompter of DSPy can call.

    Teleprompters need different kinds of result, and pass different arguments. So the arguments
    decide what is returned: a score with feedback for GEPA, which names a predictor; a yes or no
    for bootstrapping, which passes a trace; and a number for everyone else.
    """

    def metric(
        gold: dspy.Example,
        pred: dspy.Prediction,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> Any:
        """Score an answer in the form that the caller needs; the arguments show who calls."""
        if pred_name is not None:
            return metric_views.feedback(gold, pred, trace, pred_name, pred_trace)
        if trace is not None:
            return metric_views.passed(gold, pred, trace)
        return metric_views.score(gold, pred)

    return metric
