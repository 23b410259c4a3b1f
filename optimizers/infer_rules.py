"""The optimizer `infer-rules`: rules for the instructions, induced from demos."""

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
from .extra_settings import ExtraSettings
from .job import MAX_ERRORS
from .optimizer import Optimizer

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from .job import OptimizerJob


def _bootstrap_constructor() -> type:
    import dspy

    return dspy.BootstrapFewShot


_BOOTSTRAP_SETTINGS = ExtraSettings(_bootstrap_constructor, ("max_rounds",))


@dataclass(frozen=True, kw_only=True)
class InferRules(BootstrapSettings, Optimizer):
    """Induce rules from demos and add them to the instructions."""

    name: ClassVar[str] = "infer-rules"
    changes_in_program: ClassVar[str] = (
        "instructions (rules that a model derives from demos) and demos"
    )
    cost_description: ClassVar[str] = (
        "5 valsets, one bootstrapped set, and for each of 4 candidates one proposal per predictor"
    )
    needs_valset: ClassVar[bool] = True
    extra_settings: ClassVar = (_BOOTSTRAP_SETTINGS,)
    smallest_values: ClassVar = {"max_tries": 1, "num_candidates": 1}

    num_candidates: int = 4
    """Programs with rules, of which the best is kept."""
    num_rules: int = 6
    """Rules of each predictor."""

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        """Return how many calls are paid at least and at most.

        DSPy bootstraps one set of demos. Then it makes `num_candidates` programs: it has rules
        proposed for each predictor, and scores the program on the valset. The start is not scored.
        """
        from .proposals import ATTEMPTS

        valset = len(job.val)
        tries = bounds_of_tries(job, self, self.extra.get("max_rounds", 1))
        # At least: no rules can be read, so all candidates are equal. Only the first one is paid:
        # for the others the same prompts are sent again, and are answered from the cache.
        fewest_answers = tries.low + valset
        most_answers = tries.high + self.num_candidates * valset

        # At least: one call for each candidate. DSPy samples the rules of each candidate anew, so
        # none of them gets the answer to an earlier request.
        fewest_proposals = self.num_candidates
        # At most: one request for each predictor, of which only the last attempt can be read.
        most_proposals = ATTEMPTS * self.num_candidates * job.predictor_count
        return CallBounds(
            answers=Range(fewest_answers, most_answers),
            recalls=bounds_of_recalls(job, self),
            # At most: once to bootstrap, and once for each candidate, which may write differently.
            memory_writings=Range(1, 1 + self.num_candidates),
            proposals=Range(fewest_proposals, most_proposals),
        )

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program whose rules score best on the valset."""
        from .tolerant_infer_rules import TolerantInferRules

        # The candidate with the best mean score wins, so DSPy needs scores, not "passed" or
        # "failed". The calls behind an answer become demos if its score reaches `metric_threshold`.
        inputs = prepare_bootstrapping(job, self, job.metric_views.score)
        teleprompter = TolerantInferRules(
            prompt_lm=job.prompt_lm,
            max_demo_tokens=self.max_demo_tokens,
            metric=inputs.metric,
            metric_threshold=job.metric_views.threshold,
            num_threads=job.threads,
            max_errors=MAX_ERRORS,
            num_candidates=self.num_candidates,
            num_rules=self.num_rules,
            max_bootstrapped_demos=self.max_bootstrapped_demos,
            max_labeled_demos=inputs.demos_per_prompt,
            **_BOOTSTRAP_SETTINGS.select(self.extra),
        )
        compiled: Any = teleprompter.compile(
            job.student, trainset=inputs.trainset, valset=list(job.val)
        )
        return compiled
