"""The optimizer `gepa`: instructions, improved by reflection on what went wrong.

The gepa package has strategies and stopping rules that are Python objects. They go into `extra`:

    from gepa.utils.stop_condition import NoImprovementStopper

    Gepa(extra={"stop_callbacks": [NoImprovementStopper(5)]})
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ..errors import UserError
from .call_bounds import CallBounds, Range
from .extra_settings import ExtraSettings
from .frontier import SCORE, FrontierRecorder, FrontierType
from .optimizer import Optimizer, few_proposals_line

if TYPE_CHECKING:
    import dspy

    from ..programs.program import MemoryProgram
    from .job import OptimizerJob


def _constructor() -> Callable[..., Any]:
    import dspy

    return dspy.GEPA


def _optimize_function() -> Callable[..., Any]:
    from gepa.api import optimize

    return optimize


_CONSTRUCTOR_SETTINGS = ExtraSettings(
    _constructor,
    (
        "auto",
        "max_full_evals",
        "reflection_minibatch_size",
        "candidate_selection_strategy",
        "skip_perfect_score",
        "add_format_failure_as_feedback",
        "component_selector",
        "use_merge",
        "max_merge_invocations",
        "failure_score",
        "perfect_score",
        "warn_on_score_mismatch",
    ),
)
_OPTIMIZE_SETTINGS = ExtraSettings(
    _optimize_function,
    (
        "batch_sampler",
        "merge_val_overlap_floor",
        "stop_callbacks",
        "cache_evaluation",
        "val_evaluation_policy",
        "acceptance_criterion",
        "sampling_strategy",
        "selection_strategy",
    ),
)
"""What DSPy hands on to the gepa package."""
_BUDGET_SETTINGS = ("auto", "max_full_evals", "max_metric_calls")
"""Of these a job has one at most."""
_DEFAULT_MINIBATCH = 3


@dataclass(frozen=True, kw_only=True)
class Gepa(Optimizer):
    """Improve instructions by reflection on what went wrong."""

    name: ClassVar[str] = "gepa"
    changes_in_program: ClassVar[str] = (
        "instructions: a model reads what went wrong, and writes better ones"
    )
    cost_description: ClassVar[str] = (
        "max_metric_calls questions (by default 3 valsets and the other training questions), and "
        "one proposal for about 6 of these"
    )
    needs_description: ClassVar[str] = "the gepa package (a dependency of dspy)"
    needs_valset: ClassVar[bool] = True
    extra_settings: ClassVar = (_CONSTRUCTOR_SETTINGS, _OPTIMIZE_SETTINGS)
    smallest_values: ClassVar = {
        "max_metric_calls": 1,
        "max_full_evals": 1,
        "reflection_minibatch_size": 1,
        "merge_val_overlap_floor": 1,
    }
    object_settings: ClassVar = {
        "candidate_selection_strategy": ("pareto", "current_best"),
        "component_selector": ("round_robin", "all"),
        "batch_sampler": ("epoch_shuffled",),
        "stop_callbacks": (),
        "val_evaluation_policy": ("full_eval",),
        "acceptance_criterion": ("strict_improvement", "improvement_or_equal"),
        "sampling_strategy": (),
        "selection_strategy": (),
    }

    frontier_type: FrontierType = "instance"
    """By what candidates are kept to go on from: "instance" keeps the best at each question,
    "objective" those with the best score or the fewest tokens of prompts, "hybrid" both, and
    "cartesian" the best at each question by each objective.

    The result is the candidate with the best score in any case. If the writing of memories is
    tuned, the words of the memory are a third objective.
    """
    max_metric_calls: int | None = None
    """Questions that are asked in all.

    None: three times those it chooses by, and each training question once.
    """

    def check_requirements(self, job: OptimizerJob) -> None:
        settings = self.settings()
        budgets = [name for name in _BUDGET_SETTINGS if settings.get(name)]
        if len(budgets) > 1:
            raise UserError(f"gepa takes one of {', '.join(budgets)}; leave out the others")

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        """Return how many calls are paid at least and at most.

        GEPA scores the start on the valset. Then it goes through rounds: the program answers a
        minibatch of questions, gets new instructions, and answers the minibatch again. If it got
        better, it is scored on the valset.
        """
        budget = self._budget(job)
        valset = len(job.val)
        answers_per_round = self._answers_per_round()
        # GEPA looks at its budget only before each round, so it completes a round that it has
        # begun, and may exceed the budget by one round.
        most_rounds = math.ceil(max(0, budget - valset) / answers_per_round)
        most_excess = answers_per_round + valset
        return CallBounds(
            # At least: the start is scored.
            answers=Range(min(budget, valset), budget + most_excess),
            # At most: the start writes the memories, and so does each program that is proposed.
            memory_writings=Range(1, 1 + most_rounds),
            # One in each round, and one more to be safe: an unreadable proposal is asked for again.
            proposals=Range(0, most_rounds + 1),
        )

    def proposal_warning(self, job: OptimizerJob, calls_left: int | None) -> str | None:
        """Return a line that warns of too few proposals; None if there are enough.

        GEPA makes one proposal a round. The number of rounds is limited by GEPA's own budget, which
        counts answers, and by the run's budget of calls. The smaller number counts.
        """
        budget = self._budget(job)
        valset = len(job.val)
        answers_per_round = self._answers_per_round()
        # The start is scored on the valset before the first round. GEPA completes each round that
        # it has begun, so numbers of rounds are rounded up.
        rounds = math.ceil(max(0, budget - valset) / answers_per_round)
        limit = f"max_metric_calls = {budget}"

        if calls_left is not None:
            # Each answer takes at least one call, and so does the proposal of the round.
            calls_per_round = answers_per_round + 1
            affordable_rounds = math.ceil(max(0, calls_left - valset) / calls_per_round)
            if affordable_rounds < rounds:
                rounds = affordable_rounds
                limit = f"the {calls_left} calls that are left"

        reason = (
            f"{limit} with {valset} questions to choose by "
            f"and {answers_per_round} for each proposal"
        )
        return few_proposals_line(self.name, most_proposals=rounds, reason=reason)

    def _budget(self, job: OptimizerJob) -> int:
        """Return how many questions are asked in all.

        At most one of `auto`, `max_full_evals` and `max_metric_calls` is set
        (`check_requirements`); without any, our default counts. `auto` and `max_full_evals` are
        settings of DSPy's, and are counted as DSPy counts them.
        """
        import dspy
        from dspy.teleprompt.gepa.gepa import AUTO_RUN_SETTINGS

        auto = self.extra.get("auto")
        if auto:
            candidates = AUTO_RUN_SETTINGS[auto]["n"]
            # `auto_budget` is a method that does not use its object, and the object's constructor
            # would ask for models. So the method is called without an object.
            auto_budget = cast("Any", dspy.GEPA).auto_budget
            no_object = None
            return auto_budget(no_object, job.predictor_count, candidates, len(job.val))
        if self.extra.get("max_full_evals"):
            return self.extra["max_full_evals"] * (len(job.train) + len(job.val))
        if self.max_metric_calls is not None:
            return self.max_metric_calls
        return _default_budget(job)

    def _answers_per_round(self) -> int:
        """Return how many questions a round asks: a minibatch before the proposal, and one after.

        The valset that follows on a better minibatch is not counted.
        """
        return 2 * self.extra.get("reflection_minibatch_size", _DEFAULT_MINIBATCH)

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program whose instructions score best on the valset."""
        import dspy

        from .gepa_component_selector import CalledPredictors
        from .gepa_proposer import rule_abiding_proposer

        # GEPA takes exactly one of its three budgets. The other two are in `extra`.
        max_metric_calls = self.max_metric_calls
        has_other_budget = self.extra.get("auto") or self.extra.get("max_full_evals")
        if not max_metric_calls and not has_other_budget:
            max_metric_calls = _default_budget(job)

        guard = getattr(job.task_lm, "guard", None)
        refused_calls_before = 0 if guard is None else guard.refused_calls
        recorder = FrontierRecorder(
            lambda: guard is not None and guard.refused_calls > refused_calls_before
        )
        gepa_settings = {
            **_OPTIMIZE_SETTINGS.select(self.extra),
            "frontier_type": self.frontier_type,
            "callbacks": [recorder],
        }

        constructor_settings = {
            "component_selector": CalledPredictors(),
            **_CONSTRUCTOR_SETTINGS.select(self.extra),
        }
        constructor_settings["failure_score"] = _failure_score(
            constructor_settings.get("failure_score", 0.0)
        )

        teleprompter = dspy.GEPA(
            metric=job.metric_views.feedback,
            reflection_lm=job.prompt_lm,
            num_threads=job.threads,
            seed=job.seed,
            # The recorder keeps the statistics, also if a limit ends GEPA before it returns.
            track_stats=False,
            instruction_proposer=rule_abiding_proposer(job.rules),
            max_metric_calls=max_metric_calls,
            **constructor_settings,
            gepa_kwargs=gepa_settings,
        )
        try:
            compiled: Any = teleprompter.compile(
                job.student, trainset=list(job.train), valset=list(job.val)
            )
        finally:
            job.on_frontier(recorder.points)
        return compiled


def _failure_score(score: float) -> dspy.Prediction:
    """Return what GEPA is to count for a question without an answer: a score, as an objective too.

    Without any objective, GEPA would end at a candidate that answered none of the questions it is
    scored on, and it would leave such questions out of the mean by which it compares candidates.
    What an answer would have cost is not known, so nothing counts as its tokens.
    """
    import dspy

    return dspy.Prediction(score=score, objective_scores={SCORE: score})


def _default_budget(job: OptimizerJob) -> int:
    """Return the budget where none is set: three valsets, and each training question once."""
    return 3 * len(job.val) + len(job.train)
