"""Estimates the LM calls of each optimizer, as ranges that follow from its settings and DSPy's loops.

T is the number of training questions it learns from, V of its valset, P of the predictors it may change. Bootstrapping
stops early when enough demos pass, so it is between the demos wanted and the questions tried.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

import dspy
from dspy.teleprompt.gepa.gepa import AUTO_RUN_SETTINGS

from .catalog import optimizer
from .job import OptimizerJob
from .runners import TRIED, gepa_budget, strategy_steps


@dataclass(frozen=True)
class Range:
    """From `low` to `high`."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Range:
        """The range, multiplied."""
        return Range(self.low * factor, self.high * factor)


NOTHING = Range(0, 0)


@dataclass(frozen=True)
class CostEstimate:
    """What an optimizer does."""

    runs: Range
    """Program runs on a question."""
    writings: Range = NOTHING
    """How often the memories of its questions are written anew."""
    proposals: Range = NOTHING
    """Calls of the prompt LM."""
    recalls: Range = NOTHING
    """Questions that are recalled and not answered, for labelled demos."""

    def __add__(self, other: CostEstimate) -> CostEstimate:
        return CostEstimate(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class _Counts:
    settings: Mapping[str, Any]
    train: int
    val: int
    predictors: int

    @property
    def tries(self) -> Range:
        most = min(self.settings.get("max_tries", self.train), self.train)
        return Range(min(self.settings["max_bootstrapped_demos"], most), most)

    def recalled(self, wanted: int, most: int) -> Range:
        """Questions that are recalled for labelled demos."""
        return Range(min(wanted, self.train), min(most, self.train))

    @property
    def before_tries(self) -> Range:
        most = self.settings["max_tries"] if self.settings["max_labeled_demos"] else 0
        return self.recalled(most, 2 * most)


def estimate_cost(name: str, settings: Mapping[str, Any], train: int, val: int, predictors: int) -> CostEstimate:
    """The effort of an optimizer of the catalog with all its settings, by questions to learn from and to choose by."""
    return EFFORTS[name](_Counts(settings, train, val, predictors))


def few_proposals(name: str, job: OptimizerJob, calls: int | None) -> str | None:
    """Says in one line that a budget (`calls` that are left) allows no more than one proposal; None where it does."""
    counts = _Counts(job.settings, len(job.train), len(job.val), len(job.student.named_predictors()))
    done = EFFORTS[name](counts)
    if not done.proposals.high:
        return None
    most, why = int(done.proposals.high), "its settings"
    if name == "gepa":
        budget, batch = _gepa_runs(counts)
        most, why = math.ceil(max(0, budget - counts.val) / batch), f"max_metric_calls = {budget}"
        if calls is not None and math.ceil(max(0, calls - counts.val) / (batch + 1)) < most:
            most, why = math.ceil(max(0, calls - counts.val) / (batch + 1)), f"the {calls} calls that are left"
        why += f" with {counts.val} questions to choose by and {batch} for each proposal"
    told = "no proposal" if most == 0 else "one proposal at most"
    return f"{name}: the budget allows {told} ({why}); raise it, or learn from fewer questions" if most < 2 else None


def _labeled(counts: _Counts) -> CostEstimate:
    wanted = counts.settings["max_labeled_demos"]
    recalls = counts.recalled(wanted, TRIED * wanted)
    return CostEstimate(NOTHING, Range(recalls.low / counts.train, 1), recalls=recalls)


def _knn(counts: _Counts) -> CostEstimate:
    return CostEstimate(NOTHING, Range(1, 1), recalls=counts.recalled(counts.train, counts.train))


def _bootstrap(counts: _Counts) -> CostEstimate:
    rounds = counts.settings.get("max_rounds", 1)
    runs = Range(counts.tries.low, counts.tries.high * rounds)
    return CostEstimate(runs, Range(1, rounds), recalls=counts.before_tries)


def _bootstrap_random(counts: _Counts) -> CostEstimate:
    sets = counts.settings["num_candidate_programs"]
    scored = (sets + 3) * counts.val
    runs = Range(scored + counts.tries.low + sets, scored + (sets + 1) * counts.tries.high)
    return CostEstimate(runs, Range(1, sets + 2), recalls=counts.before_tries)


def _mipro(counts: _Counts) -> CostEstimate:
    settings = counts.settings
    trials, batch, sets = settings["num_trials"], settings["minibatch_size"], settings["num_candidates"]
    if settings.get("auto"):
        sets = AUTO_RUN_SETTINGS[settings["auto"]]["n"]
        trials = int(max(4 * counts.predictors * math.log2(sets), 1.5 * sets))
    if counts.val > batch:
        # Every so many minibatches a full evaluation, one at the end, and one of the start.
        full = trials // settings.get("minibatch_full_eval_steps", 5)
        scored = Range(trials * batch + (full + 1) * counts.val, trials * batch + (full + 3) * counts.val)
    else:
        scored = Range((trials + 1) * counts.val, (trials + 1) * counts.val)
    # Trials that draw a combination again repeat their calls, which the run's answers hold.
    scored = Range(scored.low * 0.72, scored.high)
    bootstraps = max(1, sets - 2)
    runs = scored + Range(counts.tries.low + bootstraps - 1, bootstraps * counts.tries.high)
    summary = min(10, counts.train // 10 + 1) + 1
    proposals = Range(counts.predictors * sets + 2, summary + 1 + counts.predictors * (3 * sets + 1))
    return CostEstimate(runs, Range(1, trials + bootstraps + 2), proposals, counts.before_tries)


def _copro(counts: _Counts) -> CostEstimate:
    settings = counts.settings
    most = settings["breadth"] * settings["depth"] * counts.predictors
    proposals = settings["depth"] * counts.predictors * settings["breadth"]
    # Candidates that repeat an earlier one are not scored again.
    runs = Range(counts.predictors * counts.train, most * counts.train)
    return CostEstimate(runs, Range(1, most), Range(settings["depth"] * counts.predictors, proposals))


def _simba(counts: _Counts) -> CostEstimate:
    settings = counts.settings
    batch = min(settings["bsize"], counts.train)
    steps, tried = settings["max_steps"], settings["num_candidates"]
    runs = Range(steps * batch * tried + counts.train, steps * batch * (2 * tried + 1) + (steps + 1) * counts.train)
    return CostEstimate(runs, Range(1, steps * (2 * tried + 1)), Range(0, steps * tried))


def _gepa(counts: _Counts) -> CostEstimate:
    budget, batch = _gepa_runs(counts)
    # The last round may overrun the budget by one valset and its minibatches; almost half of the runs may repeat
    # earlier ones, since minibatches are drawn again and again from the same questions.
    runs = Range(min(budget, gepa_budget(counts.train, counts.val)) * 0.55, budget + counts.val + batch)
    rounds = max(0, budget - counts.val) / batch
    return CostEstimate(runs, Range(1, rounds + 1), Range(0, rounds + 2))


def _gepa_runs(counts: _Counts) -> tuple[int, int]:
    """Its budget, and the runs behind a proposal: a minibatch before it and one after it."""
    settings, gepa = counts.settings, cast("Any", dspy.GEPA)
    budget = settings["max_metric_calls"]
    if budget is None:
        budget = gepa_budget(counts.train, counts.val)
    if settings.get("auto"):
        budget = gepa.auto_budget(None, counts.predictors, AUTO_RUN_SETTINGS[settings["auto"]]["n"], counts.val)
    elif settings.get("max_full_evals"):
        budget = settings["max_full_evals"] * (counts.train + counts.val)
    return budget, 2 * settings.get("reflection_minibatch_size", 3)


def _infer_rules(counts: _Counts) -> CostEstimate:
    sets = counts.settings["num_candidates"]
    scored = sets * counts.val
    runs = Range(scored + counts.tries.low, scored + counts.tries.high)
    return CostEstimate(runs, Range(1, sets + 1), Range(sets, 3 * sets * counts.predictors), counts.before_tries)


def _better_together(counts: _Counts) -> CostEstimate:
    total = CostEstimate(Range(counts.val, counts.val))
    for step in strategy_steps(counts.settings):
        part = estimate_cost(step, optimizer(step).settings, counts.train, counts.val, counts.predictors)
        total += part + CostEstimate(Range(counts.val, counts.val))
    return total


def _finetune(counts: _Counts) -> CostEstimate:
    return CostEstimate(Range(counts.train, counts.train), Range(1, 1))


EFFORTS: dict[str, Callable[[_Counts], CostEstimate]] = {
    "labeled": _labeled,
    "knn": _knn,
    "bootstrap": _bootstrap,
    "bootstrap-random": _bootstrap_random,
    "mipro": _mipro,
    "copro": _copro,
    "simba": _simba,
    "gepa": _gepa,
    "infer-rules": _infer_rules,
    "better-together": _better_together,
    "finetune": _finetune,
}
"""By the names of the catalog."""
