"""The optimizer `mipro`: instructions and demos, searched together by DSPy's MIPROv2."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ..errors import MissingDependencyError
from .bootstrap_random import require_bootstrapped_demos
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

_CONSTRUCTOR_SETTINGS = ExtraSettings("dspy:MIPROv2", ("init_temperature",))
_COMPILE_SETTINGS = ExtraSettings(
    "dspy:MIPROv2.compile",
    (
        "minibatch_full_eval_steps",
        "program_aware_proposer",
        "data_aware_proposer",
        "view_data_batch_size",
        "tip_aware_proposer",
        "fewshot_aware_proposer",
    ),
)
_DEFAULT_FULL_EVAL_STEPS = 5
"""After so many minibatches DSPy scores the best candidate on the whole valset."""
_CALLS_PER_PROPOSAL = 3
"""DSPy has the program described, then the predictor, and then asks for an instruction."""
_DEFAULT_VIEW_SIZE = 10
"""Training questions that DSPy looks at in one call, to describe them all."""
_MOST_VIEWS = 10
"""Such calls at most; one more sums them up."""


@dataclass(frozen=True, kw_only=True)
class Mipro(BootstrapSettings, Optimizer):
    """Search instructions and demos together."""

    name: ClassVar[str] = "mipro"
    changes_in_program: ClassVar[str] = "instructions and demos, searched together"
    cost_description: ClassVar[str] = (
        "9 valsets (minibatches of 35 where they are larger), 3 bootstrapped sets, "
        "about 10 proposals a predictor"
    )
    needs_description: ClassVar[str] = "optuna"
    needs_valset: ClassVar[bool] = True
    extra_settings: ClassVar = (_CONSTRUCTOR_SETTINGS, _COMPILE_SETTINGS)
    smallest_values: ClassVar = {
        "max_tries": 1,
        "num_candidates": 1,
        "minibatch_size": 1,
        "minibatch_full_eval_steps": 1,
        "view_data_batch_size": 1,
    }

    auto: Literal["light", "medium", "heavy"] | None = None
    """Lets DSPy choose the numbers of candidates and trials."""
    num_candidates: int = 5
    """Instructions and sets of demos that are tried for each predictor."""
    num_trials: int = 8
    """Combinations of them that are scored."""
    minibatch_size: int = 35
    """Questions of one trial, where the valset is larger."""

    def check_requirements(self, job: OptimizerJob) -> None:
        # Without optuna, MIPROv2 would fail only after its paid proposals.
        if importlib.util.find_spec("optuna") is None:
            raise MissingDependencyError("optuna")
        if self.max_labeled_demos:
            require_bootstrapped_demos(self)

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        from dspy.teleprompt.mipro_optimizer_v2 import MIN_MINIBATCH_SIZE

        candidates, trials = self._candidates_and_trials(job)
        valset = len(job.val)
        tries = bounds_of_tries(job, self)

        smallest_minibatch = MIN_MINIBATCH_SIZE if self.auto else 0
        if valset > max(self.minibatch_size, smallest_minibatch):
            # The start is scored on the whole valset, then a candidate after every so many
            # minibatches and at the end.
            interval = self.extra.get("minibatch_full_eval_steps", _DEFAULT_FULL_EVAL_STEPS)
            full_scorings = trials // interval + 2
            most_scored = trials * self.minibatch_size + full_scorings * valset
        else:
            most_scored = (trials + 1) * valset

        # Of the sets of demos one is empty and one has labelled demos alone.
        bootstrapped_sets = max(1, candidates - 2)
        # At least: all candidates are equal to the start.
        answers = Range(valset + tries.low, most_scored + bootstrapped_sets * tries.high)
        view_size = self.extra.get("view_data_batch_size", _DEFAULT_VIEW_SIZE)
        views = min(_MOST_VIEWS, math.ceil(tries.high / view_size))
        most_proposals = _CALLS_PER_PROPOSAL * candidates * job.predictor_count
        return CallBounds(
            answers=answers,
            recalls=bounds_of_recalls(job, self),
            memory_writings=Range(1, trials + bootstrapped_sets + 2),
            proposals=Range(job.predictor_count, most_proposals + views + 1),
        )

    def _candidates_and_trials(self, job: OptimizerJob) -> tuple[int, int]:
        """Return the numbers of candidates and of trials, those of DSPy if `auto` is set."""
        from dspy.teleprompt.mipro_optimizer_v2 import AUTO_RUN_SETTINGS

        if self.auto is None:
            return self.num_candidates, self.num_trials
        candidates: int = AUTO_RUN_SETTINGS[self.auto]["n"]
        # Instructions and demos of each predictor are chosen.
        choices = 2 * job.predictor_count
        trials = max(2 * choices * math.log2(candidates), 1.5 * candidates)
        return candidates, int(trials)

    def run(self, job: OptimizerJob) -> MemoryProgram:
        from .tolerant_mipro import TolerantMIPROv2

        inputs = prepare_bootstrapping(job, self, job.metric_views.score)
        valset = list(job.val)
        # With `auto`, DSPy chooses both numbers, and refuses to be given any.
        chooses_numbers = self.auto is not None
        teleprompter = TolerantMIPROv2(
            metric=inputs.metric,
            metric_threshold=job.metric_views.threshold,
            num_threads=job.threads,
            max_errors=MAX_ERRORS,
            prompt_model=job.prompt_lm,
            task_model=job.task_lm,
            seed=job.seed,
            auto=self.auto,
            num_candidates=None if chooses_numbers else self.num_candidates,
            max_bootstrapped_demos=self.max_bootstrapped_demos,
            max_labeled_demos=inputs.max_labeled_demos,
            **_CONSTRUCTOR_SETTINGS.select(self.extra),
        )
        return teleprompter.compile(
            job.student,
            trainset=inputs.trainset,
            valset=valset,
            num_trials=None if chooses_numbers else self.num_trials,
            minibatch=len(valset) > self.minibatch_size,
            minibatch_size=min(self.minibatch_size, len(valset)),
            **_COMPILE_SETTINGS.select(self.extra),
        )
