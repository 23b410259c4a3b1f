"""The optimizer `copro`: instructions, improved for one predictor after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .call_bounds import CallBounds, Range
from .extra_settings import ExtraSettings
from .optimizer import Optimizer

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from .job import OptimizerJob


def _constructor() -> type:
    import dspy

    return dspy.COPRO


_CONSTRUCTOR_SETTINGS = ExtraSettings(_constructor, ("init_temperature",))


@dataclass(frozen=True, kw_only=True)
class Copro(Optimizer):
    """Improve instructions one predictor after another."""

    name: ClassVar[str] = "copro"
    changes_in_program: ClassVar[str] = (
        "instructions, and the label of the last output field, for one predictor after another"
    )
    cost_description: ClassVar[str] = (
        "for every predictor, in each of 2 rounds (depth) 4 passes (breadth) over the training "
        "questions, and more in later rounds if there are several predictors"
    )
    extra_settings: ClassVar = (_CONSTRUCTOR_SETTINGS,)
    smallest_values: ClassVar = {"breadth": 2}

    breadth: int = 4
    """Instructions that are proposed in each round."""
    depth: int = 2
    """Rounds."""

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        """Return how many calls are paid at least and at most.

        COPRO goes through `depth` rounds. In each of them, `breadth` instructions are proposed for
        each predictor, and the program is scored with each instruction on all training questions.
        """
        predictors = job.predictor_count
        # For each predictor, one request a round asks for `breadth` instructions.
        proposal_requests = self.depth * predictors
        proposed_instructions = self.breadth * proposal_requests

        if predictors == 1:
            scorings_per_predictor = self.breadth * self.depth
        else:
            # An instruction is scored again in every later round, because the other predictors have
            # changed by then. So round n scores `breadth` instructions n times, and the rounds are
            # 1, 2 and so on up to `depth`: their sum is counted here.
            rounds_to_score = sum(range(1, self.depth + 1))
            scorings_per_predictor = self.breadth * rounds_to_score
        scored_programs = predictors * scorings_per_predictor

        questions = len(job.train)
        # At least: all proposals are equal to the first instructions. Only the first program is
        # paid: for the others the same prompts are sent again, and are answered from the cache.
        fewest_answers = questions if self.depth else 0
        return CallBounds(
            answers=Range(fewest_answers, scored_programs * questions),
            memory_writings=Range(1, scored_programs),
            # At least: one call returns all `breadth` instructions. At most: each instruction takes
            # a call.
            proposals=Range(proposal_requests, proposed_instructions),
        )

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program whose instructions score best on the training questions."""
        import dspy

        teleprompter: Any = dspy.COPRO(
            metric=job.metric_views.score,
            prompt_model=job.prompt_lm,
            breadth=self.breadth,
            depth=self.depth,
            **_CONSTRUCTOR_SETTINGS.select(self.extra),
        )
        evaluation_settings = {
            "num_threads": job.threads,
            "display_progress": False,
            "display_table": 0,
        }
        return teleprompter.compile(
            job.student, trainset=list(job.train), eval_kwargs=evaluation_settings
        )
