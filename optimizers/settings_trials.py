"""The trials of the optimizer `settings`: values that Optuna proposes, and what they reach.

Values are kept as changes to the start: {"k": 14} is the start with another `k`. So equal trials
are recognized, and scored once.

A trial that recalls too much gets a score below 0, the lower the more it recalls. So Optuna learns
to stay away from it.
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
"""Values of settings that differ from those of the start, by name."""

_DECIMALS = 3
"""Digits after the point of the values that are tried."""
_MAX_POPULATION = 50
_MIN_POPULATION = 4
_GENERATIONS = 10
"""So many generations NSGA-II has at least, if its population is not too small for that."""
_TOLERANCE = 1e-9
"""Smaller differences between scores or tokens come from rounding."""


class LimitReachedError(Exception):
    """Raised if a trial could not be scored, since a limit of the run was reached."""


@dataclass(frozen=True)
class Trial:
    """A set of values, and what it reached."""

    changes: Changes
    scores: TrialScores


class SettingsTrials:
    """Tries values of a program's settings, and remembers what each reached.

    Args:
        job: The program and the questions.
        settings: The settings to tune, by name.
        scorer: Scores a program.
        costs: What is to shrink, beside the score: fields of `TrialScores`.
        max_context_tokens: Most tokens that may be recalled for a question; those of the start if
            None.
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
        self._costs = costs
        self._max_context_tokens: float | None = max_context_tokens
        self._guard: BudgetGuard | None = None
        if isinstance(job.task_lm, MeteredLM):
            self._guard = job.task_lm.guard
        self._trials: dict[str, Trial] = {}
        """The trials that were scored, in their order; the start is the first."""

    def search(self, num_trials: int) -> Changes:
        """Try values, and return the changes of the best trial; none if the start is the best.

        The search ends early if a limit of the run is reached.
        """
        try:
            start = self._try({})
            if self._max_context_tokens is None:
                self._max_context_tokens = start.scores.context_tokens
            self._try_proposals(num_trials)
            return self._without_useless_changes(self._best()).changes
        except LimitReachedError:
            return self._best().changes if self._trials else {}

    def frontier(self) -> list[FrontierPoint]:
        """Return the start, and all trials that no other one beats in everything that counts."""
        points: list[FrontierPoint] = []
        for trial in self._trials.values():
            points.append(self._point(trial, number=len(points)))

        kept: list[FrontierPoint] = []
        for point in mark_frontier(points):
            if point.number == 0 or point.on_frontier:
                kept.append(point.renumbered(len(kept)))
        return kept

    def describe(self, changes: Changes) -> str:
        """Return in one line what was changed, and what that gained on the training questions."""
        count = len(self._trials)
        if not changes:
            return f"settings: none was better than the start (sets of values: {count})"

        before = self._trials[_key({})].scores
        after = self._trials[_key(changes)].scores
        words: list[str] = []
        for name, value in changes.items():
            words.append(f"{name} {self._settings[name].value} -> {value}")
        return (
            f"settings: {', '.join(words)}; on {after.n} training questions "
            f"{before.score:.3f} -> {after.score:.3f}, tokens of context "
            f"{before.context_tokens:,.0f} -> {after.context_tokens:,.0f} ({count} sets of values)"
        )

    def _try_proposals(self, num_trials: int) -> None:
        """Score the values that Optuna proposes, and tell it what they reached.

        Raises:
            LimitReachedError: A limit of the run was reached.
        """
        import optuna

        study = self._make_study(num_trials)
        for _ in range(num_trials):
            proposal = study.ask()
            changes = self._propose(proposal)
            try:
                trial = self._try(changes)
            except UserError:
                # The values do not go together, such as two switches of which one must be on.
                study.tell(proposal, state=optuna.trial.TrialState.FAIL)
                continue
            study.tell(proposal, self._objective_values(trial))

    def _make_study(self, num_trials: int) -> optuna.Study:
        """Return Optuna's study, which proposes the start first."""
        import optuna

        seed = self._job.seed
        sampler: optuna.samplers.BaseSampler
        if self._costs:
            population = min(_MAX_POPULATION, max(_MIN_POPULATION, num_trials // _GENERATIONS))
            sampler = optuna.samplers.NSGAIISampler(population_size=population, seed=seed)
        else:
            sampler = optuna.samplers.TPESampler(seed=seed)

        # The score comes first, then the costs.
        directions: list[Literal["minimize", "maximize"]] = ["maximize"]
        for _ in self._costs:
            directions.append("minimize")

        # A new study is logged as information, which is of no use to a user.
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            study = optuna.create_study(sampler=sampler, directions=directions)
        finally:
            optuna.logging.set_verbosity(verbosity)

        # A number that is not set, such as a limit that is None, is in no range of Optuna's.
        start_values = {name: setting.value for name, setting in self._settings.items()}
        study.enqueue_trial(
            {name: value for name, value in start_values.items() if value is not None}
        )
        return study

    def _propose(self, proposal: optuna.Trial) -> Changes:
        """Return the values that Optuna proposes, as changes to the start."""
        changes: dict[str, PlainValue] = {}
        for name, setting in self._settings.items():
            value = _suggest(proposal, setting)
            if value != setting.value:
                changes[name] = value
        return changes

    def _try(self, changes: Changes) -> Trial:
        """Return what the start reaches with some changes; equal changes are scored once.

        Raises:
            UserError: The values do not go together.
            LimitReachedError: A limit of the run was reached.
        """
        key = _key(changes)
        known_trial = self._trials.get(key)
        if known_trial is not None:
            return known_trial

        program = self._scorer.start.with_settings(changes)
        writes_memories = any(self._settings[name].is_of_writer for name in changes)
        refused_before = self._refused_calls()
        try:
            scores = self._scorer.score(program, writes_memories)
        except BudgetError as error:
            raise LimitReachedError from error
        # Questions whose calls were refused count as 0, so the score is wrong.
        if self._refused_calls() != refused_before:
            raise LimitReachedError
        trial = Trial(changes, scores)
        self._trials[key] = trial
        return trial

    def _refused_calls(self) -> int:
        """Return how many calls the run has refused, for its limits or since an endpoint died."""
        if self._guard is None:
            return 0
        return self._guard.refused_calls + (self._guard.fatal_error is not None)

    def _objective_values(self, trial: Trial) -> list[float]:
        """Return what Optuna is told: the score, and the costs that count."""
        scores = trial.scores
        score = scores.score
        if not self._is_within_limit(trial) and self._max_context_tokens:
            score = -scores.context_tokens / self._max_context_tokens
        return [score, *[float(getattr(scores, cost)) for cost in self._costs]]

    def _is_within_limit(self, trial: Trial) -> bool:
        limit = self._max_context_tokens
        return limit is None or trial.scores.context_tokens <= limit + _TOLERANCE

    def _best(self) -> Trial:
        """Return the trial with the best score within the limit; of equal ones the cheapest.

        It is the start if no trial is within the limit.
        """
        start, *others = self._trials.values()
        allowed = [trial for trial in others if self._is_within_limit(trial)]
        if self._is_within_limit(start) or not allowed:
            allowed.insert(0, start)
        return max(allowed, key=lambda trial: (trial.scores.score, -trial.scores.context_tokens))

    def _without_useless_changes(self, best: Trial) -> Trial:
        """Return a trial that is as good with fewer changes: those that gain nothing are undone.

        Raises:
            LimitReachedError: A limit of the run was reached.
        """
        for name in list(best.changes):
            fewer_changes = {other: value for other, value in best.changes.items() if other != name}
            try:
                candidate = self._try(fewer_changes)
            except UserError:
                continue
            is_as_good = candidate.scores.score >= best.scores.score - _TOLERANCE
            if is_as_good and self._is_within_limit(candidate):
                best = candidate
        return best

    def _point(self, trial: Trial, number: int) -> FrontierPoint:
        scores = trial.scores
        counts_time = "search_milliseconds" in self._costs
        return FrontierPoint(
            number=number,
            parents=(),
            instructions={},
            score=scores.score,
            n=scores.n,
            prompt_tokens=scores.context_tokens,
            search_milliseconds=scores.search_milliseconds if counts_time else None,
            settings=dict(trial.changes),
        )


def _suggest(proposal: optuna.Trial, setting: TunableSetting) -> Any:
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
    """Return a text that is equal for equal changes."""
    return json.dumps(dict(changes), sort_keys=True)
