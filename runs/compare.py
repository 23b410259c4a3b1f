"""Compares finished runs question by question: paired differences, and a judge's preference.

Questions are paired by id, words and gold answer; one that failed counts as 0 in its run. Every category is judged by
itself: of twenty that do not differ, one seems to differ by chance.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..data.catalog import benchmark as load_benchmark
from ..data.judge import AnyJudge, Preference, ask_all, preference, with_user_facts
from ..errors import DataError, UserError
from ..reading.failures import concerns_prompt
from .folder import RunFolder
from .pages.page import Category, Page, heading, open_page, run_page
from .results import Evaluation, cached_share, mean, question
from .rows import SHOWN, Row
from .statistics import MIN_N, Difference, Interval, Scope, bootstrap_interval

BASIS = {
    "benchmark": "benchmark",
    "data_sha256": "data (sha256)",
    "metric": "metric",
    "lm": "LM",
    "judge_lm": "judge LM",
    "answer_lm": "answering LM",
    "judge_hash": "judge prompt (hash)",
}
"""What two runs should have in common for their difference to be that of the programs."""


@dataclass(frozen=True)
class FinishedRun:
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
            **found.metered_usage,
            "recall": found.retrieval().get(SHOWN),
            "cached_share": cached_share(found.prompt_cache),
            "search_ms": found.search_ms(),
            "latency": mean([row.seconds for row in found.rows]),
        }


def rejection_reason(run: FinishedRun, gap: Difference) -> str | None:
    """Why a run with this difference to a baseline may not take its place; None if it may."""
    if run.evaluation.broken:
        return "broken"
    return gap.verdict if gap.verdict in ("worse", "too few to tell") else None


@dataclass(frozen=True)
class GateResult:
    """Whether every compared run may take the place of the baseline."""

    passed: bool
    message: str
    """The decision on one line."""
    scope: Scope
    """What it speaks of: all runs are compared on the same questions."""


def decide_gate(baseline: FinishedRun, compared: Sequence[tuple[FinishedRun, Difference]]) -> GateResult:
    """Decide by the difference of each run to the baseline, of which there is at least one."""
    refused: list[str] = []
    accepted: list[str] = []
    for run, difference in compared:
        numbers = f"({difference}; scope: {difference.scope})"
        reason = rejection_reason(run, difference)
        if reason is None:
            accepted.append(f"{run.name} {numbers}")
        else:
            refused.append(f"{run.name} {reason} {numbers}")

    scope = compared[0][1].scope
    if refused:
        return GateResult(False, f"gate: against {baseline.name}: {'; '.join(refused)}", scope)
    return GateResult(True, f"gate: nothing worse than {baseline.name}: {'; '.join(accepted)}", scope)


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
    """Queries on which a reply of the judge could not be read, or its prompt was refused; in no other number."""
    judge_hash: str


def preferences(baseline: FinishedRun, other: FinishedRun, judge: AnyJudge, threads: int = 8) -> Preferences:
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
    made = baseline.settings
    benchmark = load_benchmark(made["benchmark"], made.get("data"), **(made.get("options") or {}))
    asked = with_user_facts(benchmark.examples, benchmark.group)
    examples = {(str(example.id), str(example.question)): example for example in asked}

    def prefers(pair: tuple[Row, Row]) -> Preference | None:
        a, b = pair
        try:
            return preference(judge, examples[a.id, a.question], b.answer, a.answer)
        except KeyError:
            raise DataError(f"query {a.id!r} is not in the benchmark of {baseline.name} any more") from None
        except Exception as error:
            if not concerns_prompt(error):
                raise
            return None

    said = ask_all(prefers, shared, threads)
    kept = [(value, row.group) for value, (row, _) in zip(said, shared, strict=True) if value is not None]
    values = [value for value, _ in kept]
    rates = [value.win_share for value in values]
    return Preferences(
        run=other.name,
        n=len(values),
        rate=mean(rates),
        interval=bootstrap_interval(rates, [group for _, group in kept]),
        tied=mean([1 - value.win_share - value.loss_share for value in values]),
        wins=sum(value.win_share > value.loss_share for value in values),
        ties=sum(value.win_share == value.loss_share for value in values),
        losses=sum(value.win_share < value.loss_share for value in values),
        unreadable=said.count(None),
        judge_hash=judge.hash,
    )


def load_run(name: str) -> FinishedRun:
    """Reads a finished run by any of its names (`RunFolder.open`).

    Raises:
        UserError: There is no such run, or it has no result yet.
        DataError: Its files are not what a run writes.
    """
    folder = RunFolder.open(name)
    page, record = open_page(folder), folder.read()
    settings, parameters = record["settings"], record.get("parameters") or {}
    basis = {key: parameters.get(key) for key in BASIS} | {"metric": (settings.get("options") or {}).get("metric")}
    return FinishedRun(folder.path.resolve().name, list(page.phases.values())[-1], basis, settings)


def compare(runs: Sequence[FinishedRun], min_n: int = MIN_N) -> Page:
    """One page of several runs, over the questions that all were asked; the first is the baseline.

    Args:
        runs: Two or more.
        min_n: With fewer questions there is no verdict.

    Raises:
        UserError: There are too many, or they have no question in common.
    """
    if len(runs) > len(string.ascii_uppercase):
        raise UserError(f"{len(runs)} runs are too many for a page; name {len(string.ascii_uppercase)} at most")
    shared = set.intersection(*({question(row) for row in run.evaluation.rows} for run in runs))
    if not shared:
        told = ", ".join(run.name for run in runs)
        raise UserError(f"{told} have no question in common; compare runs on the same data and part")
    sides, facts = dict[str, Evaluation](), []
    for letter, run in zip(string.ascii_uppercase, runs, strict=False):
        rows = tuple(row for row in run.evaluation.rows if question(row) in shared)
        sides[letter] = run.evaluation.model_copy(update={"rows": rows})
        facts.append((letter, f"{run.name}: {heading(run.evaluation)}"))
    title = " against ".join(run.name for run in reversed(runs))
    found = run_page("compare", title, sides, facts, list(_warnings(runs, len(shared))), min_n=min_n)
    gaps = zip(list(sides)[1:], found.total.differences if found.total else (), strict=True)
    verdict = "; ".join(f"{letter} against A: {gap.statement}" for letter, gap in gaps)
    return found.model_copy(update={"verdict": verdict})


def comparisons(page: Page, runs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """What `compare --json` prints of each run beside the baseline."""

    def plain(found: Category, n: int) -> dict[str, Any]:
        about = {
            "name": found.name,
            "in_score": found.in_headline,
            "a": found.scores[0].value,
            "b": found.scores[n].value,
        }
        return {**about, "difference": found.differences[n - 1].to_dict()}

    return [
        {
            "run": run.name,
            "shared": len(page.questions),
            "overall": page.total and plain(page.total, n),
            "by": {each.key: plain(each, n) for each in page.categories},
            "warnings": list(page.notes),
        }
        for n, run in enumerate(runs[1:], 1)
    ]


def _warnings(runs: Sequence[FinishedRun], shared: int) -> Iterator[str]:
    for key, words in BASIS.items():
        values = dict.fromkeys(str(run.basis.get(key) or "none")[:40] for run in runs)
        if len(values) > 1:
            yield f"not the programs alone differ, {words} does, too: {' and '.join(values)}"
    asked = [len(run.evaluation.rows) for run in runs]
    if set(asked) != {shared}:
        yield f"compared on the {shared} questions that all were asked, of {' and '.join(map(str, asked))}"
