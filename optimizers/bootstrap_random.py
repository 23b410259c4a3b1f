"""The optimizer `bootstrap-random`: the best of several bootstrapped sets of demos."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UserError
from .bootstrapping import (
    BootstrapSettings,
    bounds_of_recalls,
    bounds_of_tries,
    prepare_bootstrapping,
)
from .call_bounds import CallBounds, Range
from .extra_settings import ExtraSettings
from .job import MAX_ERRORS
from .optimizer import Optimizer

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from .job import OptimizerJob


def _constructor() -> type:
    import dspy

    return dspy.BootstrapRS


def _compile_method() -> Callable[..., Any]:
    import dspy

    return dspy.BootstrapRS.compile


_CONSTRUCTOR_SETTINGS = ExtraSettings(_constructor, ("max_rounds", "stop_at_score"))
_COMPILE_SETTINGS = ExtraSettings(_compile_method, ("labeled_sample",))


@dataclass(frozen=True, kw_only=True)
class BootstrapRandom(BootstrapSettings, Optimizer):
    """Bootstrap several sets of demos, and keep the best."""

    name: ClassVar[str] = "bootstrap-random"
    changes_in_program: ClassVar[str] = (
        "demos: several bootstrapped sets are made, and the one with the best score on the valset "
        "is kept"
    )
    changes_texts: ClassVar[bool] = False
    cost_description: ClassVar[str] = (
        "9 valsets, and 4 or more training questions for each of 7 sets"
    )
    needs_valset: ClassVar[bool] = True
    extra_settings: ClassVar = (_CONSTRUCTOR_SETTINGS, _COMPILE_SETTINGS)
    smallest_values: ClassVar = {"max_tries": 1}

    num_candidate_programs: int = 6
    """Sets that are bootstrapped from shuffled questions."""

    def check_requirements(self, job: OptimizerJob) -> None:
        require_bootstrapped_demos(self)

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        """Return how many calls are paid at least and at most.

        DSPy bootstraps several sets of demos. Then it scores the program with each set on the
        valset, and keeps the best. A prompt that is sent again is answered from the cache.
        """
        # One set is bootstrapped from the questions in order, the others from shuffled questions.
        bootstrapped_sets = 1 + self.num_candidate_programs
        # Two more programs are scored: one without demos, and one with labelled demos alone.
        scored_programs = bootstrapped_sets + 2

        tries_per_set = bounds_of_tries(job, self, self.extra.get("max_rounds", 1))
        valset = len(job.val)
        # At least: all sets turn out equal. The first one is tried and scored. For the others the
        # same prompts are sent again, and cost nothing.
        fewest_answers = tries_per_set.low + valset
        # At most: no prompt is ever sent twice.
        most_answers = bootstrapped_sets * tries_per_set.high + scored_programs * valset

        # Bootstrapped demos may change how a program writes, so each set needs memories of its own.
        # The two other programs write alike, since labelled demos are for the answering predictor
        # only. So these two share their memories.
        most_writings = bootstrapped_sets + 1
        return CallBounds(
            answers=Range(fewest_answers, most_answers),
            recalls=bounds_of_recalls(job, self),
            memory_writings=Range(1, most_writings),
        )

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program with the set of demos that scores best on the valset."""
        import dspy

        # The set with the best mean score wins, so DSPy needs scores, not "passed" or "failed".
        inputs = prepare_bootstrapping(job, self, job.metric_views.score)
        teleprompter = dspy.BootstrapRS(
            metric=inputs.metric,
            # The calls behind an answer become demos if the score of the answer reaches this.
            metric_threshold=job.metric_views.threshold,
            num_threads=job.threads,
            max_errors=MAX_ERRORS,
            max_bootstrapped_demos=self.max_bootstrapped_demos,
            max_labeled_demos=inputs.demos_per_prompt,
            num_candidate_programs=self.num_candidate_programs,
            **_CONSTRUCTOR_SETTINGS.select(self.extra),
        )
        return teleprompter.compile(
            job.student,
            trainset=inputs.trainset,
            valset=list(job.val),
            **_COMPILE_SETTINGS.select(self.extra),
        )


def require_bootstrapped_demos(settings: BootstrapSettings) -> None:
    """Raise a UserError if no demos are to be bootstrapped."""
    # DSPy draws how many bootstrapped demos a set has: from 1 to `max_bootstrapped_demos`.
    if settings.max_bootstrapped_demos == 0:
        raise UserError(
            "max_bootstrapped_demos = 0: each set of demos has 1 or more; "
            "for none choose --optimizer labeled"
        )
