"""The optimizer `knn`: for each new question the nearest training questions as demos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .call_bounds import CallBounds, Range
from .demo_limits import DemoLimits
from .labeled import give_demos
from .optimizer import Optimizer

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from .job import OptimizerJob


@dataclass(frozen=True, kw_only=True)
class Knn(DemoLimits, Optimizer):
    """Show the training questions that are nearest to each new question."""

    name: ClassVar[str] = "knn"
    changes_in_program: ClassVar[str] = (
        "demos: the k training questions nearest to each new one, chosen at every call"
    )
    changes_texts: ClassVar[bool] = False
    cost_description: ClassVar[str] = "the calls that recall, for every training question"
    smallest_values: ClassVar = {"k": 1}

    k: int = 8
    """Demos of one prompt."""

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        questions = len(job.train)
        return CallBounds(recalls=Range(questions, questions), memory_writings=Range(1, 1))

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program with a demo of every training question.

        A prompt shows only the demos whose questions are nearest to the new question.
        """
        from .demos import DemoBuilder

        builder = DemoBuilder(job, self)
        demos = builder.build_demos(len(job.train))
        demos_per_prompt = builder.count_fitting(demos, self.k)
        # We do not use DSPy's KNNFewShot: it replaces the method `forward` of the program, and such
        # a program cannot be saved. Our predictors choose the nearest demos themselves. `nearest`
        # tells them how many a prompt shows.
        for predictor in give_demos(job.student, demos):
            predictor.nearest = demos_per_prompt  # pyright: ignore[reportAttributeAccessIssue]
        return job.student
