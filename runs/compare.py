"""Compare finished runs question by question: paired differences, a gate, and a judge's preference.

Two runs are compared on the questions that both were asked. A question is the same in both if its
id, its words and its gold answer are. One that failed counts as 0. Every category is judged by
itself: of twenty that do not differ, one seems to differ by chance.

    runs = [load_run("baseline"), load_run("last")]
    page = compare_runs(runs)
    page.verdict            # "B against A: +0.050 [+0.010, +0.090], ...: better (scope: ...)"

The result is a `Page` like that of a single run. Its phases are the runs, by the letters A, B, ...;
A is the *baseline*, the run that the others are compared with.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import dspy

from ..data.catalog import benchmark as load_benchmark
from ..data.judge import AnyJudge, Preference, ask_all, preference, with_user_facts
from ..errors import DataError, UserError
from ..reading.failures import concerns_prompt
from .folder import RunFolder
from .metered_usage import cached_share
from .pages.facts import Fact, describe_evaluation
from .pages.page import CategoryScores, Page, open_page, run_page
from .results import Evaluation, QuestionKey, question_key
from .row_metrics import mean
from .rows import SHOWN_RECALL, Row
from .statistics import MIN_N, Difference, Interval, Scope, bootstrap_interval

CONDITIONS = {
    "benchmark": "benchmark",
    "data_sha256": "data (sha256)",
    "metric": "metric",
    "support_tokens": "recalled tokens that support looks at",
    "lm": "LM",
    "judge_lm": "judge LM",
    "answer_lm": "answering LM",
    "judge_hash": "judge prompt (hash)",
}
"""The conditions under which a run scores: their names in the record of a run, and in words.

If two runs differ in a condition, the difference of their scores is not due to the programs alone.
"""

_MAX_CONDITION_TEXT = 40
"""Most characters of a condition's value that a warning shows."""


@dataclass(frozen=True)
class FinishedRun:
    """A finished run, read from its folder."""

    name: str
    """The name of the run's folder."""
    evaluation: Evaluation
    """What is compared; of a compile, the program that it kept, on the test questions."""
    conditions: Mapping[str, Any]
    """The conditions under which the scores were made, by the names of `CONDITIONS`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the run was started with."""

    def summary(self) -> dict[str, Any]:
        """Return scores, calls, cost and times as JSON data."""
        evaluation = self.evaluation
        return {
            "run": self.name,
            "program": evaluation.program,
            "lm": evaluation.lm,
            "comparable": evaluation.comparable,
            "n": evaluation.n,
            "score": evaluation.score,
            "failures": evaluation.failures,
            "prompt_tokens": evaluation.prompt_tokens,
            **evaluation.metered_usage,
            "recall": evaluation.retrieval().get(SHOWN_RECALL),
            "cached_share": cached_share(evaluation.prompt_cache),
            "search_ms": evaluation.search_ms(),
            "latency": mean([row.seconds for row in evaluation.rows]),
        }


def load_run(name: str) -> FinishedRun:
    """Read a finished run from its folder.

    Args:
        name: Any name that `RunFolder.open` takes, e.g. the name of the folder.

    Raises:
        UserError: There is no such run, or it has no result yet.
        DataError: The files of the run are damaged, or not those of a run.
    """
    folder = RunFolder.open(name)
    page = open_page(folder)
    # A compile scores its program "before" and, if it kept the compiled program, also "after". The
    # last evaluation is that of the program that the run ended with.
    evaluations = list(page.phases.values())
    last_evaluation = evaluations[-1]

    record = folder.read()
    settings: Mapping[str, Any] = record["settings"]
    logged_parameters: Mapping[str, Any] = record.get("parameters") or {}
    conditions = {key: logged_parameters.get(key) for key in CONDITIONS}

    # The parameters have the metric's title for display. The settings have its exact name.
    benchmark_options: Mapping[str, Any] = settings.get("options") or {}
    conditions["metric"] = benchmark_options.get("metric")

    return FinishedRun(
        name=folder.path.resolve().name,
        evaluation=last_evaluation,
        conditions=conditions,
        settings=settings,
    )


def compare_runs(runs: Sequence[FinishedRun], min_n: int = MIN_N) -> Page:
    """Return a page of the questions that all runs were asked; the first run is the baseline.

    Args:
        runs: Two or more.
        min_n: With fewer questions there is no verdict.

    Raises:
        UserError: There are too many runs, or they have no question in common.
    """
    letters = string.ascii_uppercase
    if len(runs) > len(letters):
        raise UserError(f"{len(runs)} runs are too many for a page; name {len(letters)} at most")
    shared_questions = _shared_questions(runs)
    if not shared_questions:
        names = ", ".join(run.name for run in runs)
        raise UserError(
            f"{names} have no question in common; compare runs on the same data and part"
        )

    phases: dict[str, Evaluation] = {}
    facts: list[Fact] = []
    for letter, run in zip(letters, runs, strict=False):
        rows = tuple(row for row in run.evaluation.rows if question_key(row) in shared_questions)
        phases[letter] = run.evaluation.model_copy(update={"rows": rows})
        facts.append(Fact(letter, f"{run.name}: {describe_evaluation(run.evaluation)}"))

    title = " against ".join(run.name for run in reversed(runs))
    warnings = list(_comparison_warnings(runs, len(shared_questions)))
    page = run_page("compare", title, phases, facts, warnings, min_n=min_n)
    return page.model_copy(update={"verdict": _comparison_verdict(page)})


def _shared_questions(runs: Sequence[FinishedRun]) -> set[QuestionKey]:
    """Return the questions that all runs were asked."""
    shared = {question_key(row) for row in runs[0].evaluation.rows}
    for run in runs[1:]:
        shared &= {question_key(row) for row in run.evaluation.rows}
    return shared


def _comparison_warnings(runs: Sequence[FinishedRun], shared_count: int) -> Iterator[str]:
    """Yield a line for each condition in which the runs differ, and one on the questions left out.

    Args:
        runs: The runs.
        shared_count: How many questions all runs were asked.
    """
    for key, title in CONDITIONS.items():
        values: list[str] = []
        for run in runs:
            values.append(str(run.conditions.get(key) or "none")[:_MAX_CONDITION_TEXT])
        different_values = list(dict.fromkeys(values))
        if len(different_values) > 1:
            listed = " and ".join(different_values)
            yield f"the runs differ in more than their programs: {title}: {listed}"

    counts = [len(run.evaluation.rows) for run in runs]
    if any(count != shared_count for count in counts):
        listed = " and ".join(str(count) for count in counts)
        yield f"compared on the {shared_count} questions that all were asked, of {listed}"


def _comparison_verdict(page: Page) -> str:
    """Return the verdict on every run but the baseline, on one line."""
    differences = () if page.total is None else page.total.differences
    statements: list[str] = []
    for letter, difference in zip(list(page.phases)[1:], differences, strict=True):
        statements.append(f"{letter} against A: {difference.statement}")
    return "; ".join(statements)


def comparison_dicts(page: Page, runs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Return what `compare --json` prints of every run but the baseline.

    Args:
        page: The page that `compare_runs` made of the runs.
        runs: The same runs in the same order; the first is the baseline.
    """
    comparisons: list[dict[str, Any]] = []
    # In the scores of the page, the baseline has the position 0 and the other runs have 1, 2, ...
    for position, run in enumerate(runs[1:], start=1):
        overall = None
        if page.total is not None:
            overall = _category_dict(page.total, position)
        by_category = {
            category.key: _category_dict(category, position) for category in page.categories
        }
        comparison = {
            "run": run.name,
            "shared": len(page.questions),
            "overall": overall,
            "by": by_category,
            "warnings": list(page.notes),
        }
        comparisons.append(comparison)
    return comparisons


def _category_dict(category: CategoryScores, position: int) -> dict[str, Any]:
    """Return the scores of the baseline and of another run in a category, with their difference.

    Args:
        category: The category, or all questions.
        position: Which run: 0 would be the baseline, 1 is the first one that is compared with it.
    """
    baseline_score = category.scores[0]
    run_score = category.scores[position]
    # There is no difference of the baseline to itself, so the list begins with the next run.
    difference = category.differences[position - 1]
    return {
        "name": category.name,
        "in_score": category.in_headline,
        "a": baseline_score.value,
        "b": run_score.value,
        "difference": difference.to_dict(),
    }


@dataclass(frozen=True)
class GateResult:
    """Whether every compared run may take the place of the baseline."""

    passed: bool
    message: str
    """The decision on one line."""
    scope: Scope
    """What the decision speaks of: all runs are compared on the same questions."""


@dataclass(frozen=True)
class ComparedRun:
    """A run with its difference to the baseline."""

    run: FinishedRun
    difference: Difference

    @property
    def gate_refusal(self) -> str | None:
        """Why the run may not take the place of the baseline; None if it may."""
        if self.run.evaluation.broken:
            return "broken"
        verdict = self.difference.verdict
        if verdict in ("worse", "too few to tell"):
            return verdict
        return None


def compared_runs(page: Page, runs: Sequence[FinishedRun]) -> list[ComparedRun]:
    """Return every run of a comparison but the baseline, with its difference."""
    differences = () if page.total is None else page.total.differences
    pairs = zip(runs[1:], differences, strict=True)
    return [ComparedRun(run, difference) for run, difference in pairs]


def decide_gate(baseline: FinishedRun, others: Sequence[ComparedRun]) -> GateResult:
    """Decide whether all runs, of which there is at least one, may replace the baseline."""
    refused: list[str] = []
    accepted: list[str] = []
    for other in others:
        numbers = f"({other.difference}; scope: {other.difference.scope})"
        refusal = other.gate_refusal
        if refusal is None:
            accepted.append(f"{other.run.name} {numbers}")
        else:
            refused.append(f"{other.run.name} {refusal} {numbers}")

    # All runs are compared on the same questions, so the scope of any of them is that of all.
    scope = others[0].difference.scope
    if refused:
        message = f"gate: against {baseline.name}: {'; '.join(refused)}"
        return GateResult(passed=False, message=message, scope=scope)
    message = f"gate: nothing worse than {baseline.name}: {'; '.join(accepted)}"
    return GateResult(passed=True, message=message, scope=scope)


@dataclass(frozen=True)
class WinRate:
    """How often a judge prefers one run's responses to a baseline's."""

    run: str
    n: int
    """Number of queries that were judged."""
    rate: float | None
    """The share of judgments, two a query, that prefer the run; None without any."""
    interval: Interval | None
    """The confidence interval of `rate`."""
    tied: float | None
    """The share of judgments that prefer neither."""
    wins: int
    """Queries on which the run is preferred more often than the baseline."""
    ties: int
    losses: int
    unreadable: int
    """Queries on which a reply of the judge could not be read, or its prompt was refused.

    They are in no other number.
    """
    judge_hash: str
    """The hash of the judge's prompt."""


class _QueryKey(NamedTuple):
    """What identifies a query in a benchmark and in the rows of a run."""

    id: str
    text: str


@dataclass(frozen=True)
class _ResponsePair:
    """The responses of two runs to one query."""

    baseline: Row
    other: Row

    @property
    def query(self) -> _QueryKey:
        """What identifies the query in the benchmark."""
        return _QueryKey(self.baseline.id, self.baseline.question)


def judge_win_rate(
    baseline: FinishedRun, other: FinishedRun, judge: AnyJudge, threads: int = 8
) -> WinRate:
    """Let a judge compare the responses to the queries that both runs were asked, in both orders.

    The benchmark is read again from where the baseline's run read it.

    Raises:
        UserError: The runs have no query in common.
        DataError: The benchmark does not hold the queries any more.
        LMError: The judge's endpoint failed.
    """
    pairs = _response_pairs(baseline, other)
    if not pairs:
        raise UserError(
            f"{other.name} and {baseline.name} have no query in common;"
            " compare runs on the same data"
        )
    examples = _queries_of(baseline)
    for pair in pairs:
        if pair.query not in examples:
            problem = f"is not in the benchmark of {baseline.name} any more"
            raise DataError(f"query {pair.query.id!r} {problem}")

    judgments = ask_all(partial(_judge_pair, judge, examples), pairs, threads)

    preferences: list[Preference] = []
    groups: list[str] = []
    unreadable = 0
    for pair, judgment in zip(pairs, judgments, strict=True):
        if judgment is None:
            unreadable += 1
        else:
            preferences.append(judgment)
            groups.append(pair.baseline.group)

    win_shares = [judgment.win_share for judgment in preferences]
    return WinRate(
        run=other.name,
        n=len(preferences),
        rate=mean(win_shares),
        interval=bootstrap_interval(win_shares, groups),
        tied=mean([1 - judgment.win_share - judgment.loss_share for judgment in preferences]),
        wins=sum(judgment.win_share > judgment.loss_share for judgment in preferences),
        ties=sum(judgment.win_share == judgment.loss_share for judgment in preferences),
        losses=sum(judgment.win_share < judgment.loss_share for judgment in preferences),
        unreadable=unreadable,
        judge_hash=judge.hash,
    )


def _judge_pair(
    judge: AnyJudge, examples: Mapping[_QueryKey, dspy.Example], pair: _ResponsePair
) -> Preference | None:
    """Ask a judge which of two responses it prefers; return None if that fails for this pair only.

    Raises:
        Exception: A failure that every other pair would meet too, such as an endpoint that is gone.
    """
    example = examples[pair.query]
    try:
        return preference(judge, example, pair.other.answer, pair.baseline.answer)
    except Exception as error:
        # For instance, the reply cannot be read, or the prompt is too long. The other pairs have
        # other prompts.
        if concerns_prompt(error):
            return None
        raise


def _response_pairs(baseline: FinishedRun, other: FinishedRun) -> list[_ResponsePair]:
    """Return the responses to the queries that both runs were asked."""
    baseline_rows = {_QueryKey(row.id, row.question): row for row in baseline.evaluation.rows}
    pairs: list[_ResponsePair] = []
    for row in other.evaluation.rows:
        baseline_row = baseline_rows.get(_QueryKey(row.id, row.question))
        if baseline_row is not None:
            pairs.append(_ResponsePair(baseline_row, row))
    return pairs


def _queries_of(run: FinishedRun) -> dict[_QueryKey, dspy.Example]:
    """Return the queries of the benchmark of a run, by id and text."""
    settings = run.settings
    options = settings.get("options") or {}
    benchmark = load_benchmark(settings["benchmark"], settings.get("data"), **options)
    examples = with_user_facts(benchmark.examples, benchmark.group)
    return {_QueryKey(str(example.id), str(example.question)): example for example in examples}
