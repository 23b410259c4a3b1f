"""The optimizer `labeled`: training questions with their gold answers as demos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .call_bounds import CallBounds, Range
from .demo_limits import DemoLimits
from .optimizer import Optimizer

if TYPE_CHECKING:
    import dspy

    from ..programs.program import MemoryProgram
    from .job import OptimizerJob

TRIES_PER_DEMO = 4
"""Training questions that are tried at most for each demo."""


@dataclass(frozen=True, kw_only=True)
class Labeled(DemoLimits, Optimizer):
    """Show training questions with what is recalled for them and their gold answers."""

    name: ClassVar[str] = "labeled"
    changes_in_program: ClassVar[str] = (
        "demos: training questions with what is recalled for them and their gold answers"
    )
    cost_description: ClassVar[str] = (
        "what recalling takes; no calls where neither writing nor recalling asks a model"
    )

    max_labeled_demos: int = 8

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        questions = len(job.train)
        fewest = min(self.max_labeled_demos, questions)
        most = min(TRIES_PER_DEMO * self.max_labeled_demos, questions)
        # One memory writing writes the memories of all training questions. Only those of recalled
        # questions are written, so it can be less than one.
        fewest_writings = fewest / questions
        return CallBounds(
            recalls=Range(fewest, most),
            memory_writings=Range(fewest_writings, 1),
        )

    def run(self, job: OptimizerJob) -> MemoryProgram:
        from .demos import DemoBuilder

        builder = DemoBuilder(job, self)
        max_tries = TRIES_PER_DEMO * self.max_labeled_demos
        demos = builder.build_demos(self.max_labeled_demos, max_tries)
        fitting = builder.count_fitting(demos, self.max_labeled_demos)
        give_demos(job.student, demos[:fitting])
        return job.student


def give_demos(student: MemoryProgram, demos: Sequence[dspy.Example]) -> list[Any]:
    """Give the demos to the predictors that they were made for, and return these predictors."""
    from ..programs.predictor import is_for

    receivers: list[Any] = []
    for _, predictor in student.named_predictors():
        path = getattr(predictor, "path", "")
        if any(is_for(demo, path) for demo in demos):
            receivers.append(predictor)
    for predictor in receivers:
        predictor.demos = list(demos)
    return receivers
