"""The optimizer `bootstrap`: calls of the program behind good answers as demos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .bootstrapping import (
    BootstrapSettings,
    bounds_of_recalls,
    bounds_of_tries,
    prepare_bootstrapping,
)
from .call_bounds import CallBounds, Range
from .job import MAX_ERRORS
from .optimizer import Optimizer

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from .job import OptimizerJob


@dataclass(frozen=True, kw_only=True)
class Bootstrap(BootstrapSettings, Optimizer):
    """Show calls of the program's own that led to a good answer, and labelled demos."""

    name: ClassVar[str] = "bootstrap"
    changes_in_program: ClassVar[str] = (
        "demos: for every predictor, calls of the program itself that led to a good answer, and "
        "training questions with their gold answers"
    )
    changes_texts: ClassVar[bool] = False
    cost_description: ClassVar[str] = "4 to 30 training questions, each answered once"
    smallest_values: ClassVar = {"max_tries": 1}

    max_rounds: int = 1
    """How often a question is tried until its answer is good."""

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        """Return how many calls are paid at least and at most.

        To bootstrap demos, questions are answered. For labelled demos, questions are only recalled.
        """
        tries = bounds_of_tries(job, self, self.max_rounds)
        recalls = bounds_of_recalls(job, self)

        # A memory is written when a question about it is first answered or recalled. To write the
        # memories of all training questions counts as 1, so some of them count as a fraction.
        # At least: the same questions are answered and recalled.
        fewest_used_questions = max(tries.low, recalls.low)
        fewest_writings = min(1.0, fewest_used_questions / len(job.train))
        # At most: the model samples anew in each round, so each round writes all memories again.
        most_writings = max(1, self.max_rounds)
        return CallBounds(
            answers=tries,
            recalls=recalls,
            memory_writings=Range(fewest_writings, most_writings),
        )

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program with demos; add a note if no answer was good enough for one."""
        import dspy

        # A call becomes a demo if the answer passes: if its score reaches the threshold.
        inputs = prepare_bootstrapping(job, self, job.metric_views.passed)
        teleprompter = dspy.BootstrapFewShot(
            metric=inputs.metric,
            max_errors=MAX_ERRORS,
            max_bootstrapped_demos=self.max_bootstrapped_demos,
            max_labeled_demos=inputs.demos_per_prompt,
            max_rounds=self.max_rounds,
        )
        compiled = teleprompter.compile(job.student, trainset=inputs.trainset)

        # If a limit stopped the run, not all questions were tried, and the note would be wrong.
        if not _has_bootstrapped_demos(compiled) and not _was_stopped_by_limit(job):
            threshold = job.metric_views.threshold
            job.on_note(
                f"no bootstrapped demos: of {len(inputs.trainset)} training questions none scored "
                f"{threshold:g} or more"
            )
        return compiled


def _has_bootstrapped_demos(program: Any) -> bool:
    for predictor in program.predictors():
        # DSPy marks the demos that it bootstrapped as "augmented".
        if any(demo.get("augmented") for demo in predictor.demos):
            return True
    return False


def _was_stopped_by_limit(job: OptimizerJob) -> bool:
    guard = getattr(job.task_lm, "guard", None)
    return guard is not None and guard.limit_hit is not None
