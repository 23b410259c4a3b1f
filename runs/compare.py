"""Comparing finished runs question by question: paired differences, and a judge's preference.

Questions are paired by id, words and gold answer; one that failed counts as 0 in its run. Every category is judged by
itself: of twenty that do not differ, one seems to differ by chance.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from ..data.catalog import benchmark as load_benchmark
from ..data.judge import AnyJudge, Preference, ask_all, informed, preference
from ..errors import DataError, UserError
from .folder import RunFolder
from .pages.page import Category, Page, category, heading, open_page, run_page
from .results import Evaluation, cached_share, difference, mean, pairs, question
from .rows import SHOWN, Row
from .statistics import MIN_N, Interval, interval

BASIS = {
    "benchmark": "benchmark",
    "data_sha256": "data (sha256)",
    "metric": "metric",
    "lm": "LM",
    "judge_lm": "judge LM",
    "judge_hash": "judge prompt (hash)",
}
"""What two runs should have in common for their difference to be that of the programs."""


@dataclass(frozen=True)
class Recorded:
    """A finished run as its folder keeps it."""

    name: str
    """Name of the run's folder."""
    evaluation: Evaluation
    """What is compared: of a compile, the program it kept on the test questions."""
    basis: Mapping[str, Any]
    """What the scores rest on, by the names of `BASIS`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the run was started with."""

    def usage(self) -> dict[str, Any]:
        """What tables say beside the scores."""
        found = self.evaluation
        names = ("program", "lm", "comparable", "n", "score", "failures", "prompt_tokens")
        return {
            "run": self.name,
            **{name: getattr(found, name) for name in names},
            **found.spent,
            "recall": found.retrieval().get(SHOWN),
            "cached_share": cached_share(found.prompt_cache),
            "latency": mean([row.seconds for row in found.rows]),
        }


@dataclass(frozen=True)
class Comparison:
    """A run against a baseline."""

    baseline: Recorded
    other: Recorded
    shared: int
    """Questions that both runs were asked, those outside the headline score included."""
    overall: Category
    by: Mapping[str, Category]
    warnings: tuple[str, ...]

    def refusal(self) -> str | None:
        """Why the other run may not take the baseline's place; None if it may."""
        found = self.overall.difference
        if self.other.evaluation.broken:
            return "broken"
        return found.verdict if found.verdict in ("worse", "too few to tell") else None

    def to_dict(self) -> dict[str, Any]:
        """The object `compare --json` prints of it."""
        return {
            "run": self.other.name,
            "shared": self.shared,
            "overall": _plain(self.overall),
            "by": {key: _plain(found) for key, found in self.by.items()},
            "warnings": list(self.warnings),
        }


def _plain(found: Category) -> dict[str, Any]:
    a, b = (each.value for each in found.scores)
    return {"name": found.name, "in_score": found.counts, "a": a, "b": b, "difference": found.difference.to_dict()}


def compare(baseline: Recorded, other: Recorded, min_n: int = MIN_N) -> Comparison:
    """Pairs the questions of two runs; with fewer than `min_n` there is no verdict.

    Raises:
        UserError: They have no question in common.
    """
    both = pairs(baseline.evaluation.rows, other.evaluation.rows)
    if not both:
        raise UserError(
            f"{other.name} and {baseline.name} have no question in common; compare runs on the same data and part"
        )
    names = {**other.evaluation.names, **baseline.evaluation.names}
    counted = [pair for pair in both if pair[0].counts and pair[1].counts]
    parts = {key: [pair for pair in both if pair[0].category == key] for key in sorted({a.category for a, _ in both})}
    by = {
        key: category(key, names.get(key, key), list(zip(*found, strict=True)), min_n) for key, found in parts.items()
    }
    overall = category("", "score", list(zip(*counted, strict=True)) or [(), ()], min_n)
    return Comparison(baseline, other, len(both), overall, by, tuple(_warnings(baseline, other, len(both))))


@dataclass(frozen=True)
class Preferences:
    """How often one run's responses are preferred over a baseline's."""

    run: str
    n: int
    """Queries judged."""
    rate: float | None
    """Share of judgments, two a query, that prefer the run; None if none could be made."""
    interval: Interval | None
    tied: float | None
    """Share of judgments that prefer neither."""
    wins: int
    """Queries on which the run is preferred more often than the baseline."""
    ties: int
    losses: int
    unreadable: int
    """Queries on which a reply of the judge could not be read; in none of the other numbers."""
    judge_hash: str

    def to_dict(self) -> dict[str, Any]:
        """The object `compare --json` prints of it."""
        return asdict(self)


def preferences(baseline: Recorded, other: Recorded, judge: AnyJudge, threads: int = 8) -> Preferences:
    """Has a judge compare the responses of two runs to the queries that both were asked, in both orders.

    The benchmark is read again from where the baseline's run found it.

    Raises:
        UserError: They have no query in common.
        DataError: The benchmark does not hold the queries any more.
        LMError: The judge's endpoint failed.
    """
    before = {(row.id, row.question): row for row in baseline.evaluation.rows}
    shared = [(before[row.id, row.question], row) for row in other.evaluation.rows if (row.id, row.question) in before]
    if not shared:
        raise UserError(f"{other.name} and {baseline.name} have no query in common; compare runs on the same data")
    examples = _examples(baseline)

    def prefers(pair: tuple[Row, Row]) -> Preference | None:
        a, b = pair
        try:
            return preference(judge, examples[a.id, a.question], b.answer, a.answer)
        except KeyError:
            raise DataError(f"query {a.id!r} is not in the benchmark of {baseline.name} any more") from None
        except AdapterParseError:
            return None

    said = ask_all(prefers, shared, threads)
    kept = [(value, row.group) for value, (row, _) in zip(said, shared, strict=True) if value is not None]
    values = [value for value, _ in kept]
    rates = [value.ahead for value in values]
    return Preferences(
        run=other.name,
        n=len(values),
        rate=mean(rates),
        interval=interval(rates, [group for _, group in kept]),
        tied=mean([1 - value.ahead - value.behind for value in values]),
        wins=sum(value.ahead > value.behind for value in values),
        ties=sum(value.ahead == value.behind for value in values),
        losses=sum(value.ahead < value.behind for value in values),
        unreadable=said.count(None),
        judge_hash=judge.hash,
    )


def recorded(name: str) -> Recorded:
    """Reads a finished run by any of its names (`RunFolder.open`).

    Raises:
        UserError: There is no such run, or it has no result yet.
        DataError: Its files are not what a run writes.
    """
    page, folder = open_page(name), RunFolder.open(name)
    record = folder.read()
    settings, parameters = record["settings"], record.get("parameters") or {}
    basis = {key: parameters.get(key) for key in BASIS} | {"metric": (settings.get("options") or {}).get("metric")}
    return Recorded(folder.path.resolve().name, list(page.phases.values())[-1], basis, settings)


def side_by_side(runs: Sequence[Recorded], min_n: int = MIN_N) -> Page:
    """One page of several runs, over the questions that all were asked; the first is the baseline.

    Raises:
        UserError: There are too many, or they have no question in common.
    """
    if len(runs) > len(string.ascii_uppercase):
        raise UserError(f"{len(runs)} runs are too many for a page; name {len(string.ascii_uppercase)} at most")
    shared = set.intersection(*({question(row) for row in run.evaluation.rows} for run in runs))
    if not shared:
        named = ", ".join(run.name for run in runs)
        raise UserError(f"{named} have no question in common; compare runs on the same data and part")
    sides, facts = dict[str, Evaluation](), []
    for letter, run in zip(string.ascii_uppercase, runs, strict=False):
        rows = tuple(row for row in run.evaluation.rows if question(row) in shared)
        sides[letter] = run.evaluation.model_copy(update={"rows": rows})
        facts.append((letter, f"{run.name}: {heading(run.evaluation)}"))
    notes = dict.fromkeys(note for other in runs[1:] for note in compare(runs[0], other).warnings)
    gaps = {letter: difference(sides["A"].counted, side.counted, min_n) for letter, side in sides.items()}
    verdict = "; ".join(f"{letter} against A: {gap}: {gap.verdict}" for letter, gap in gaps.items() if letter != "A")
    return run_page("compare", " against ".join(run.name for run in reversed(runs)), sides, facts, list(notes), verdict)


def _examples(run: Recorded) -> dict[tuple[str, str], dspy.Example]:
    made = run.settings
    benchmark = load_benchmark(made["benchmark"], made.get("data"), **(made.get("options") or {}))
    return {(str(example.id), str(example.question)): example for example in informed(benchmark)}


def _warnings(baseline: Recorded, other: Recorded, shared: int) -> Iterator[str]:
    for key, words in BASIS.items():
        a, b = baseline.basis.get(key), other.basis.get(key)
        if a != b:
            yield f"not the programs alone differ, {words} does, too: {_short(a)} and {_short(b)}"
    asked = len(baseline.evaluation.rows), len(other.evaluation.rows)
    if asked != (shared, shared):
        yield f"compared on the {shared} questions that both were asked, of {asked[0]} and {asked[1]}"
    for run in (baseline, other):
        if run.evaluation.stopped:
            yield f"{run.name} was stopped before its end: {run.evaluation.stopped}"
        if run.evaluation.broken:
            yield f"{run.name} is a broken run: {run.evaluation.breakage}"


def _short(value: Any) -> str:
    return "none" if value is None else str(value)[:40]
