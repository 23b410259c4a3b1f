"""Comparing finished runs question by question: paired differences, and a judge's preference.

Questions are paired by id, words and gold answer; one that failed counts as 0 in its run. Every category is judged by
itself: of twenty that do not differ, one seems to differ by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError
from pydantic import ValidationError

from ..data.catalog import benchmark as load_benchmark
from ..data.judge import AnyJudge, Preference, ask_all, informed, preference
from ..errors import DataError, UserError
from ..records.whole_file import replacing
from .folder import RUN, RunFolder
from .results import Evaluation, cached_share, difference, mean, pairs
from .rows import SHOWN, Row
from .statistics import MIN_N, Difference, Interval, interval

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
    phases: Mapping[str, Evaluation]
    """`evaluation` of an evaluate; `start` and `result` of a compile, the same without a gain."""
    basis: Mapping[str, Any]
    """What the scores rest on, by the names of `BASIS`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the run was started with."""
    folder: Path | None = None
    """Where it is."""

    @property
    def evaluation(self) -> Evaluation:
        """What is compared: of a compile, the program it kept on the test questions."""
        return self.phases["evaluation" if "evaluation" in self.phases else "result"]

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
class Paired:
    """Two runs on the questions of a category that both were asked, or on those of the headline score."""

    name: str
    in_score: bool
    a: float | None
    """Mean score of the baseline on these questions; None without any."""
    b: float | None
    difference: Difference
    """b - a, with the verdict."""

    def to_dict(self) -> dict[str, Any]:
        """The object `compare --json` prints of it."""
        scores = {"a": self.a, "b": self.b}
        return {"name": self.name, "in_score": self.in_score, **scores, "difference": self.difference.to_dict()}


@dataclass(frozen=True)
class Comparison:
    """A run against a baseline."""

    baseline: Recorded
    other: Recorded
    shared: int
    """Questions that both runs were asked, those outside the headline score included."""
    overall: Paired
    by: Mapping[str, Paired]
    warnings: tuple[str, ...]

    def refusal(self, margin: float | None = None) -> str | None:
        """Why the other run may not take the baseline's place, or is worse by more than the margin; None if it may."""
        found = self.overall.difference
        if self.other.evaluation.broken:
            return "broken"
        if found.verdict == "worse" or (margin is not None and found.mean < -margin):
            return "worse"
        return found.verdict if found.verdict == "too few to tell" else None

    def to_dict(self) -> dict[str, Any]:
        """The object `compare --json` prints of it."""
        return {
            "run": self.other.name,
            "shared": self.shared,
            "overall": self.overall.to_dict(),
            "by": {category: found.to_dict() for category, found in self.by.items()},
            "warnings": list(self.warnings),
        }


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
    categories = {
        category: [pair for pair in both if pair[0].category == category]
        for category in sorted({row.category for row, _ in both})
    }
    return Comparison(
        baseline,
        other,
        len(both),
        _paired("score", [pair for pair in both if pair[0].counts and pair[1].counts], True, min_n),
        {key: _paired(names.get(key, key), found, found[0][0].counts, min_n) for key, found in categories.items()},
        tuple(_warnings(baseline, other, len(both))),
    )


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
    """Reads a finished run.

    Args:
        name: Its folder, the end of the folder's name, or its MLflow run id (`RunFolder.open`).

    Raises:
        UserError: There is no such run, or it has no result yet.
        DataError: Its files are not what a run writes.
    """
    folder = RunFolder.open(name)
    record = folder.read()
    result, settings = record.get("result"), record["settings"]
    if not isinstance(result, dict):
        state = f"has no result yet (status {record.get('status')})"
        raise UserError(f"run {folder.path.name} {state}; finish it with its own command and --resume")
    phases = ("start", "result") if settings.get("command") == "compile" else ("evaluation",)
    summaries = {phase: result if phase == "evaluation" else result.get(phase) for phase in phases}
    parameters = record.get("parameters") or {}
    basis = {key: parameters.get(key) for key in BASIS} | {"metric": (settings.get("options") or {}).get("metric")}
    found = {phase: _evaluation(folder, phase, summary) for phase, summary in summaries.items()}
    return Recorded(folder.path.resolve().name, found, basis, settings, folder.path)


def keep_rows(folder: RunFolder, phase: str, evaluation: Evaluation) -> None:
    """Writes the scored questions of an evaluation into the run's folder, one JSON object a line."""
    with replacing(folder.path / f"{phase}_rows.jsonl") as file:
        file.writelines(f"{row.model_dump_json(exclude={'seen'})}\n" for row in evaluation.rows)


def _examples(run: Recorded) -> dict[tuple[str, str], dspy.Example]:
    made = run.settings
    benchmark = load_benchmark(made["benchmark"], made.get("data"), **(made.get("options") or {}))
    return {(str(example.id), str(example.question)): example for example in informed(benchmark)}


def _paired(name: str, both: list[tuple[Row, Row]], in_score: bool, min_n: int) -> Paired:
    before, after = [a for a, _ in both], [b for _, b in both]
    a, b = (mean([row.score for row in rows]) for rows in (before, after))
    return Paired(name, in_score, a, b, difference(before, after, min_n))


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


def _evaluation(folder: RunFolder, phase: str, summary: Any) -> Evaluation:
    path = folder.path / f"{phase}_rows.jsonl"
    rows = tuple(_rows(path))
    try:
        known = {key: summary[key] for key in Evaluation.model_fields if key in summary}
        names = {category: found["name"] for category, found in summary["by"].items()}
        asked = sum(found["n"] for found in summary["by"].values())
        evaluation = Evaluation.model_validate({**known, "rows": rows, "names": names})
    except (ValidationError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder.path / RUN}: its result is not that of a run; evaluate again") from error
    if asked != len(rows):
        raise DataError(f"{path}: holds {len(rows)} questions, but {RUN} says {asked}; evaluate again")
    return evaluation


def _rows(path: Path) -> Iterator[Row]:
    try:
        # Not splitlines, which breaks at characters that JSON leaves as they are.
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except FileNotFoundError:
        raise DataError(f"{path}: is missing; an older version made this run: evaluate again") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines if lines != [""] else [], 1):
        try:
            row = Row.model_validate_json(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number} is no scored question; evaluate again") from error
        if not all(map(math.isfinite, (row.score, *row.parts.values(), *row.recall.values()))):
            raise DataError(f"{path}: line {number} has a score that is no finite number; evaluate again")
        yield row
