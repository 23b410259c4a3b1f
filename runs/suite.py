"""A suite: several benchmarks that one method is scored on, with one score.

    palbench ──> palbench.restate, palbench.generate, palbench.select ──> plain mean of their scores, on 0 to 100

Every part runs with its own task, as an MLflow run inside the suite's. Memories do not depend on the task, so a history
is written once for all parts. Limits hold for the parts together.

Limits: a suite cannot be compiled on, nor resumed; its parts can. A mean of BLEU and S-score is a number to
watch one method by, not a published one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from ..data.catalog import SUITES, benchmark_class
from ..engines.guard import Guard
from ..engines.meter import Meter
from ..errors import Stopped, UnknownNameError, UserError
from ..programs.remember import MemoryCache
from .evaluate import Progress
from .experiment import Note, Part, run_evaluate
from .planning import Plan, plan_evaluate
from .results import Evaluation
from .setup import Setup, replayed_setup
from .tracking import Tracker, nested_in


@dataclass(frozen=True)
class SuiteEvaluation:
    """One program on all parts of a suite."""

    suite: str
    program: str
    parts: Mapping[str, Evaluation]
    """By the part's name without the suite's, in the suite's order."""
    run_id: str = ""

    @property
    def by(self) -> dict[str, float | None]:
        """Score of every part, on 0 to 100 (an S-score down to -100); None without answers."""
        return {name: None if found.score is None else 100 * found.score for name, found in self.parts.items()}

    @property
    def score(self) -> float | None:
        """Plain mean of the parts' scores; None where a part has none."""
        known = [value for value in self.by.values() if value is not None]
        return sum(known) / len(known) if len(known) == len(self.parts) else None

    def summary(self) -> dict[str, Any]:
        """The object `--json` prints."""
        by = {name: {"score": self.by[name], **_part(found)} for name, found in self.parts.items()}
        comparable = all(found.comparable for found in self.parts.values())
        named = {"program": self.program, "benchmark": self.suite, "comparable": comparable}
        stopped = next((found.stopped for found in self.parts.values() if found.stopped), None)
        return {**named, "score": self.score, "by": by, "stopped": stopped, "run_id": self.run_id}


def run_suite(
    name: str,
    setup: Setup,
    part: Part = "all",
    config: Mapping[str, Any] | None = None,
    note: Note = lambda phase: None,
    allow_code: bool = False,
    meter: Meter | None = None,
) -> SuiteEvaluation:
    """Scores a method on every part of `setup.benchmark`; arguments as `experiment.run_evaluate`.

    Raises:
        UserError: A run is to be resumed, or given to workers, or a saved program is for one of the tasks only.
        UnknownNameError: No part has an option of the setup.
        DataError: Recorded answers do not fit, or name no part that they are of.
    """
    setup = replayed_setup(setup)
    if setup.resume:
        raise UserError(f"{setup.benchmark} is a suite, whose parts are runs of their own; resume one with --on PART")
    if setup.workers != 1:
        raise UserError(f"{setup.benchmark} is a suite, whose parts share memories; give --workers with --on PART")
    setups = part_setups(setup)
    shared = meter or Meter(), MemoryCache(), Guard(setup.limits)
    with Tracker(f"evaluate-{name}-{setup.benchmark}", {"command": "evaluate"}) as tracker:
        tags = nested_in(tracker.run_id)
        try:
            found = {
                short: run_evaluate(name, each, part, config, _named(note, short), allow_code, *shared, tags)
                for short, each in setups.items()
            }
        except Stopped as stop:
            raise Stopped(stop.kept) from stop  # a suite has no run of its own that could be resumed
        program = next(iter(found.values())).program
        suite = SuiteEvaluation(setup.benchmark, program, found, tracker.run_id)
        scores = {f"suite.{short}": value for short, value in suite.by.items()}
        tracker.metrics({"suite.score": suite.score, **scores})
        tracker.json("suite.json", suite.summary())
    return suite


def plan_suite(
    name: str, setup: Setup, part: Part = "all", config: Mapping[str, Any] | None = None, allow_code: bool = False
) -> dict[str, Plan]:
    """The plan of every part. Memories are counted in each, though they are written once."""
    return {short: plan_evaluate(name, each, part, config, allow_code) for short, each in part_setups(setup).items()}


def is_suite(name: str) -> bool:
    """Whether a name of `--on` is a suite."""
    return name in SUITES


def part_setups(setup: Setup) -> dict[str, Setup]:
    """The setup of every part, by its name without the suite's.

    An option goes to the parts that have it, `metric` to those that have such a metric.

    Raises:
        UnknownNameError: No part takes an option, or a metric.
    """
    parts = SUITES[setup.benchmark][1]
    taken: dict[str, dict[str, Any]] = {name: {} for name in parts}
    for option, value in setup.options.items():
        takers = [name for name in parts if takes_option(name, option, value)]
        if not takers:
            _refuse(setup.benchmark, parts, option, value)
        for name in takers:
            taken[name][option] = value
    return {
        name.removeprefix(f"{setup.benchmark}."): replace(setup, benchmark=name, options=taken[name]) for name in parts
    }


def takes_option(name: str, option: str, value: Any) -> bool:
    """Whether a benchmark has an option, and where the option is `metric`, such a metric."""
    kind = benchmark_class(name)
    if option == "metric":
        return value in getattr(kind, "metrics", {})
    return option in _options(kind)


def _options(kind: type) -> list[str]:
    load: Callable[..., Any] = getattr(kind, "load")  # noqa: B009
    return [each.name for each in signature(load).parameters.values() if each.kind is each.KEYWORD_ONLY]


def _refuse(suite: str, parts: tuple[str, ...], option: str, value: Any) -> None:
    kinds = [benchmark_class(name) for name in parts]
    if option == "metric":
        raise UnknownNameError(f"metric of {suite}", value, dict.fromkeys(m for k in kinds for m in k.metrics))  # pyright: ignore[reportAttributeAccessIssue]
    raise UnknownNameError(f"option of {suite}", option, dict.fromkeys(o for k in kinds for o in _options(k)))


def _named(note: Note, short: str) -> Note:
    def told(phase: str) -> Progress | None:
        return note(f"{short}: {phase}")

    return told


def _part(found: Evaluation) -> dict[str, Any]:
    """A part's own summary, with its score under a name that includes its scale."""
    summary = found.summary()
    return {"of_one": summary.pop("score"), **summary}
