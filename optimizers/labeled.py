"""The optimizer `labeled`: training questions with their gold answers as demos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

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
    changes_texts: ClassVar[bool] = False
    cost_description: ClassVar[str] = (
        "no calls with turn-rag and other methods that neither write nor recall with a model; "
        "with the others, the calls that write and recall"
    )

    max_labeled_demos: int = 8

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        """Return how many calls are paid at least and at most.

        Nothing is answered. Questions are recalled, one after the other, until there are enough
        demos.
        """
        # It is never 0: a job has at least one training question.
        questions = len(job.train)
        fewest_recalls = min(self.max_labeled_demos, questions)
        most_recalls = min(TRIES_PER_DEMO * self.max_labeled_demos, questions)

        # Only the memories of recalled questions are written. Writing those of all training
        # questions counts as 1, so writing some of them counts as a fraction.
        fewest_writings = fewest_recalls / questions
        return CallBounds(
            recalls=Range(fewest_recalls, most_recalls),
            memory_writings=Range(fewest_writings, 1),
        )

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program with up to `max_labeled_demos` demos that fit into one prompt."""
        from .demos import DemoBuilder

        builder = DemoBuilder(job, self)
        # A question whose evidence is not recalled makes no demo. So more questions may be tried
        # than demos are wanted.
        max_tries = TRIES_PER_DEMO * self.max_labeled_demos
        demos = builder.build_demos(self.max_labeled_demos, max_tries)
        demos_per_prompt = builder.count_fitting(demos, self.max_labeled_demos)
        give_demos(job.student, demos[:demos_per_prompt])
        return job.student


def give_demos(student: MemoryProgram, demos: Sequence[dspy.Example]) -> list[dspy.Predict]:
    """Give demos to the predictors of a program.

    A predictor gets all demos if at least one was made for it. It shows only its own ones in its
    prompts.

    Returns:
        The predictors that got the demos.
    """
    from ..programs.predictor import is_for

    receivers: list[dspy.Predict] = []
    for _, predictor in student.named_predictors():
        path = getattr(predictor, "path", "")
        if any(is_for(demo, path) for demo in demos):
            predictor.demos = list(demos)
            receivers.append(predictor)
    return receivers
