"""The trials of the optimizer `settings`: sets of values that Optuna proposes, and their scores.

A set of values is kept as its changes to the starting settings: {"k": 14} has another `k`, and
otherwise the starting values. So equal sets are recognized, and scored once.

A trial that recalls too many tokens is reported to Optuna with a score below 0, which is worse
than any real score. The more it recalls, the lower is this score, so Optuna learns in which
direction the limit is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..engines.metered_lm import MeteredLM
from ..errors import BudgetError, UserError
from ..memory.tuning_range import TuningRange
from .frontier import FrontierPoint, mark_frontier
from .trial_scores import ProgramScorer, TrialScores

if TYPE_CHECKING:
    import optuna

    from ..engines.limits import BudgetGuard
    from ..programs.tunable import PlainValue, TunableSetting
    from .job import OptimizerJob

Changes = Mapping[str, "PlainValue"]
"""The values that differ from the starting settings, by name; empty for the starting settings."""

_DECIMALS = 3
"""Digits after the point of the values that are tried."""
_MAX_POPULATION = 50
_MIN_POPULATION = 4
_GENERATIONS = 10
"""How many generations NSGA-II should get: its population is made small enough for that."""
_TOLERANCE = 1e-9
"""Scores or tokens that differ by less are equal: the difference comes from rounding."""


class LimitReachedError(Exception):
    """Raised if a trial cannot be scored because a limit of the run is reached."""


@dataclass(frozen=True)
class Trial:
    """A set of values and its scores."""

    changes: Changes
    scores: TrialScores


class SettingsTrials:
    """Tries values of a program's settings, and keeps the scores of each set of values.

    Args:
        job: The program and the questions.
        settings: The settings to tune, by name.
        scorer: Scores a program.
        costs: The names of what to minimize while the score is maximized, as
            `TrialScores.cost` takes them.
        max_context_tokens: Most tokens that may be recalled for a question, as a mean; None for as
            many as with the starting settings.
    """

    def __init__(
        self,
        job: OptimizerJob,
        settings: Mapping[str, TunableSetting],
        scorer: ProgramScorer,
        costs: Sequence[str] = (),
        max_context_tokens: int | None = None,
    ) -> None:
        self._job = job
        self._settings = settings
        self._scorer = scorer
        self._cost_names = costs
        self._max_context_tokens: float | None = max_context_tokens
        self._guard: BudgetGuard | None = None
        if isinstance(job.task_lm, MeteredLM):
            self._guard = job.task_lm.guard
        self._trials: dict[str, Trial] = {}
        """The trials in the order in which they were scored; the starting settings come first."""

    def search(self, num_trials: int) -> Changes:
        """Try values, and return the changes of the best trial.

        The result is empty if the starting settings are the best. The search ends early if a limit
        of the run is reached.
        """
        try:
            starting_trial = self._score_changes({})
            if self._max_context_tokens is None:
                self._max_context_tokens = starting_trial.scores.context_tokens
            self._try_proposals(num_trials)
            return self._without_useless_changes(self._best_trial()).changes
        except LimitReachedError:
            return self._best_trial().changes if self._trials else {}

    def frontier(self) -> list[FrontierPoint]:
        """Return the best trade-offs of score and costs, after the starting settings.

        A trade-off is one of the best if no other trial is at least as good in everything and
        better in something (the Pareto front).
        """
        all_points: list[FrontierPoint] = []
        for number, trial in enumerate(self._trials.values()):
            all_points.append(self._frontier_point(trial, number))

        points: list[FrontierPoint] = []
        for point in mark_frontier(all_points):
            is_start = point.number == 0
            if is_start or point.on_frontier:
                points.append(point.renumbered(len(points)))
        return points

    def describe(self, changes: Changes) -> str:
        """Return in one line what was changed, and what that gained on the training questions."""
        count = len(self._trials)
        if not changes:
            return f"settings: nothing was better than the starting values (sets tried: {count})"

        before = self._trials[_key({})].scores
        after = self._trials[_key(changes)].scores
        described_changes: list[str] = []
        for name, value in changes.items():
            described_changes.append(f"{name} {self._settings[name].value} -> {value}")
        return (
            f"settings: {', '.join(described_changes)}; on {after.n} training questions: score "
            f"{before.score:.3f} -> {after.score:.3f}, tokens of context "
            f"{before.context_tokens:,.0f} -> {after.context_tokens:,.0f} ({count} sets of values)"
        )

    def _try_proposals(self, num_trials: int) -> None:
        """Score the values that Optuna proposes, and report the scores to it.

        Raises:
            LimitReachedError: A limit of the run was reached.
        """
        import optuna

        study = self._make_study(num_trials)
        for _ in range(num_trials):
            proposal = study.ask()
            changes = self._proposed_changes(proposal)
            try:
                trial = self._score_changes(changes)
            except UserError:
                # The values contradict each other, such as two switches of which one must be on.
                study.tell(proposal, state=optuna.trial.TrialState.FAIL)
                continue
            study.tell(proposal, self._values_for_optuna(trial))

    def _make_study(self, num_trials: int) -> optuna.Study:
        """Return Optuna's study, which proposes the starting values first."""
        import optuna

        seed = self._job.seed
        sampler: optuna.samplers.BaseSampler
        if self._cost_names:
            population = min(_MAX_POPULATION, max(_MIN_POPULATION, num_trials // _GENERATIONS))
            sampler = optuna.samplers.NSGAIISampler(population_size=population, seed=seed)
        else:
            sampler = optuna.samplers.TPESampler(seed=seed)

        # The score comes first, then the costs.
        directions: list[Literal["minimize", "maximize"]] = ["maximize"]
        for _ in self._cost_names:
            directions.append("minimize")

        # A new study is logged as information, which is of no use to a user.
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            study = optuna.create_study(sampler=sampler, directions=directions)
        finally:
            optuna.logging.set_verbosity(verbosity)

        starting_values: dict[str, PlainValue] = {}
        for name, setting in self._settings.items():
            # None, such as a limit that is not set, is in no range of Optuna's.
            if setting.value is not None:
                starting_values[name] = setting.value
        study.enqueue_trial(starting_values)
        return study

    def _proposed_changes(self, proposal: optuna.Trial) -> Changes:
        """Return the values that Optuna proposes, as changes to the starting settings."""
        changes: dict[str, PlainValue] = {}
        for name, setting in self._settings.items():
            value = _proposed_value(proposal, setting)
            if value != setting.value:
                changes[name] = value
        return changes

    def _score_changes(self, changes: Changes) -> Trial:
        """Return the starting settings with some changes, and their scores.

        Equal changes are scored once.

        Raises:
            UserError: The values contradict each other.
            LimitReachedError: A limit of the run was reached.
        """
        key = _key(changes)
        known_trial = self._trials.get(key)
        if known_trial is not None:
            return known_trial

        program = self._scorer.original_program.with_settings(changes)
        refused_before = self._refused_calls()
        try:
            scores = self._scorer.score(program)
        except BudgetError as error:
            raise LimitReachedError from error
        # A question whose calls were refused has counted as 0, so the score is too low.
        if self._refused_calls() != refused_before:
            raise LimitReachedError

        trial = Trial(changes, scores)
        self._trials[key] = trial
        return trial

    def _refused_calls(self) -> int:
        """Return how many calls the run has refused for its limits; a fatal error counts as one."""
        if self._guard is None:
            return 0
        refused_calls = self._guard.refused_calls
        if self._guard.fatal_error is not None:
            refused_calls += 1
        return refused_calls

    def _values_for_optuna(self, trial: Trial) -> list[float]:
        """Return what Optuna is told of a trial: the score to maximize, then costs to minimize."""
        scores = trial.scores
        score = scores.score
        if not self._is_within_limit(trial):
            score = self._score_over_limit(trial)

        costs = [scores.cost(name) for name in self._cost_names]
        return [score, *costs]

    def _score_over_limit(self, trial: Trial) -> float:
        """Return a score below 0 for a trial that recalls too many tokens.

        Twice as many tokens as the limit give -2. If all such trials had the same score, Optuna
        could not see which of them is closer to the limit.
        """
        limit = self._max_context_tokens
        assert limit is not None, "without a limit no trial is over it"
        if limit == 0:
            # The starting settings recall nothing, and nothing is a multiple of that. So the trial
            # keeps its score here. `_best_trial` still does not choose it.
            return trial.scores.score
        return -trial.scores.context_tokens / limit

    def _is_within_limit(self, trial: Trial) -> bool:
        """Return whether a trial recalls no more tokens than allowed."""
        limit = self._max_context_tokens
        return limit is None or trial.scores.context_tokens <= limit + _TOLERANCE

    def _best_trial(self) -> Trial:
        """Return the trial with the best score within the limit of tokens.

        Among equal scores, the trial that recalls the fewest tokens is the best. If no trial is
        within the limit, the starting settings are returned.
        """
        trials = list(self._trials.values())
        allowed = [trial for trial in trials if self._is_within_limit(trial)]
        if not allowed:
            return trials[0]
        return max(allowed, key=lambda trial: (trial.scores.score, -trial.scores.context_tokens))

    def _without_useless_changes(self, best: Trial) -> Trial:
        """Undo each change that gains nothing, and return the trial that is left.

        Raises:
            LimitReachedError: A limit of the run was reached.
        """
        for name in list(best.changes):
            fewer_changes = dict(best.changes)
            del fewer_changes[name]
            try:
                candidate = self._score_changes(fewer_changes)
            except UserError:
                # The other values need this one, such as one of two switches that must be on.
                continue
            is_as_good = candidate.scores.score >= best.scores.score - _TOLERANCE
            if is_as_good and self._is_within_limit(candidate):
                best = candidate
        return best

    def _frontier_point(self, trial: Trial, number: int) -> FrontierPoint:
        """Return a trial as a point of score and costs. The starting settings have number 0."""
        scores = trial.scores
        search_milliseconds = None
        # A point with a time is compared by it, too. That is wanted only if time is a cost.
        if "search_milliseconds" in self._cost_names:
            search_milliseconds = scores.search_milliseconds
        return FrontierPoint(
            number=number,
            parents=(),
            instructions={},
            score=scores.score,
            n=scores.n,
            prompt_tokens=scores.context_tokens,
            search_milliseconds=search_milliseconds,
            settings=dict(trial.changes),
        )


def _proposed_value(proposal: optuna.Trial, setting: TunableSetting) -> Any:
    """Return the value of a setting that Optuna proposes."""
    values = setting.values
    if not isinstance(values, TuningRange):
        return proposal.suggest_categorical(setting.name, values)
    if setting.is_whole:
        low, high = int(values.low), int(values.high)
        return proposal.suggest_int(setting.name, low, high, log=values.log)
    number = proposal.suggest_float(setting.name, values.low, values.high, log=values.log)
    return round(number, _DECIMALS)


def _key(changes: Changes) -> str:
    """Return the key of some changes among the trials: a text that is equal for equal changes."""
    return json.dumps(dict(changes), sort_keys=True)
