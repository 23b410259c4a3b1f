"""The optimizer `mipro`: instructions and demos, searched together by DSPy's MIPROv2."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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


def _constructor() -> type:
    import dspy

    return dspy.MIPROv2


def _compile_method() -> Callable[..., Any]:
    import dspy

    return dspy.MIPROv2.compile


_CONSTRUCTOR_SETTINGS = ExtraSettings(_constructor, ("init_temperature",))
_COMPILE_SETTINGS = ExtraSettings(
    _compile_method,
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
_DEFAULT_DESCRIBED_QUESTIONS = 10
"""Training questions that DSPy shows in one call, to have them described."""
_MOST_DESCRIPTIONS = 10
"""Such calls that DSPy makes at most."""


@dataclass(frozen=True)
class _SearchSize:
    """How much MIPROv2 tries."""

    candidates: int
    """Instructions, and sets of demos, for each predictor."""
    trials: int
    """Combinations of them that are scored."""


@dataclass(frozen=True, kw_only=True)
class Mipro(BootstrapSettings, Optimizer):
    """Search instructions and demos together."""

    name: ClassVar[str] = "mipro"
    changes_in_program: ClassVar[str] = "instructions and demos, searched together"
    cost_description: ClassVar[str] = (
        "9 valsets (of a larger valset, minibatches of 35), 3 bootstrapped sets, and about 10 "
        "proposals per predictor"
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
        """Return how many calls are paid at least and at most.

        MIPROv2 bootstraps sets of demos, has instructions proposed, and then scores trials: the
        program with a set of demos and an instruction for each predictor.
        """
        size = self._search_size(job)
        # Two more sets of demos are not bootstrapped: an empty one, and one of labelled demos.
        bootstrapped_sets = max(1, size.candidates - 2)
        demo_sets = bootstrapped_sets + 2
        tries_per_set = bounds_of_tries(job, self)

        valset = len(job.val)
        # At least: all trials are equal to the start. Only the start is paid: for the trials the
        # same prompts are sent again, and are answered from the cache.
        fewest_answers = tries_per_set.low + valset
        most_trial_answers = self._most_trial_answers(size.trials, valset)
        most_answers = bootstrapped_sets * tries_per_set.high + most_trial_answers
        return CallBounds(
            answers=Range(fewest_answers, most_answers),
            recalls=bounds_of_recalls(job, self),
            # At most: each trial and each set of demos makes a program that writes differently.
            memory_writings=Range(1, size.trials + demo_sets),
            proposals=Range(job.predictor_count, self._most_proposal_calls(job, size)),
        )

    def _most_proposal_calls(self, job: OptimizerJob, size: _SearchSize) -> int:
        """Return the most calls that it takes to propose instructions for all predictors.

        DSPy first asks the model to describe the training questions, in batches, and then to sum up
        the descriptions. With this summary it asks for the instructions.
        """
        # `max_tries` also limits how many training questions DSPy gets to see.
        questions = min(self.max_tries, len(job.train))
        batch_size = self.extra.get("view_data_batch_size", _DEFAULT_DESCRIBED_QUESTIONS)
        batches = math.ceil(questions / batch_size)
        description_calls = min(_MOST_DESCRIPTIONS, batches)
        summary_calls = 1

        proposals = size.candidates * job.predictor_count
        proposal_calls = _CALLS_PER_PROPOSAL * proposals
        return description_calls + summary_calls + proposal_calls

    def _most_trial_answers(self, trials: int, valset: int) -> int:
        """Return how many questions are asked at most to score the start and all trials."""
        from dspy.teleprompt.mipro_optimizer_v2 import MIN_MINIBATCH_SIZE

        # A small valset is not cut into minibatches. With `auto`, DSPy has a limit of its own.
        largest_uncut_valset = self.minibatch_size
        if self.auto is not None:
            largest_uncut_valset = max(largest_uncut_valset, MIN_MINIBATCH_SIZE)
        if valset <= largest_uncut_valset:
            start_and_trials = 1 + trials
            return start_and_trials * valset

        # Each trial is scored on a minibatch. The whole valset scores the start, the best candidate
        # after every `interval` trials, and the best one at the end.
        interval = self.extra.get("minibatch_full_eval_steps", _DEFAULT_FULL_EVAL_STEPS)
        full_scorings = 1 + trials // interval + 1
        return trials * self.minibatch_size + full_scorings * valset

    def _search_size(self, job: OptimizerJob) -> _SearchSize:
        """Return how much is tried: by the settings, or as DSPy computes it if `auto` is set."""
        from dspy.teleprompt.mipro_optimizer_v2 import AUTO_RUN_SETTINGS

        if self.auto is None:
            return _SearchSize(self.num_candidates, self.num_trials)
        candidates: int = AUTO_RUN_SETTINGS[self.auto]["n"]
        # Each predictor has two choices: its instructions and its demos.
        choices = 2 * job.predictor_count
        # DSPy's formula for the number of trials.
        trials = max(2 * choices * math.log2(candidates), 1.5 * candidates)
        return _SearchSize(candidates, int(trials))

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program of the best trial on the valset."""
        from .tolerant_mipro import TolerantMIPROv2

        inputs = prepare_bootstrapping(job, self, job.metric_views.score)
        valset = list(job.val)

        # With `auto`, DSPy computes both numbers itself, and raises an error if it gets one.
        num_candidates = None
        num_trials = None
        if self.auto is None:
            num_candidates = self.num_candidates
            num_trials = self.num_trials

        teleprompter = TolerantMIPROv2(
            metric=inputs.metric,
            metric_threshold=job.metric_views.threshold,
            num_threads=job.threads,
            max_errors=MAX_ERRORS,
            prompt_model=job.prompt_lm,
            task_model=job.task_lm,
            seed=job.seed,
            auto=self.auto,
            num_candidates=num_candidates,
            max_bootstrapped_demos=self.max_bootstrapped_demos,
            max_labeled_demos=inputs.demos_per_prompt,
            **_CONSTRUCTOR_SETTINGS.select(self.extra),
        )
        return teleprompter.compile(
            job.student,
            trainset=inputs.trainset,
            valset=valset,
            num_trials=num_trials,
            # DSPy refuses minibatches that are larger than the valset.
            minibatch=len(valset) > self.minibatch_size,
            minibatch_size=min(self.minibatch_size, len(valset)),
            **_COMPILE_SETTINGS.select(self.extra),
        )
