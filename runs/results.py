"""The result of an evaluation: one row per question, and the figures that tables print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel

from ..data.confusion import Confusion
from ..engines.usage import Usage
from ..errors import BrokenRunError
from ..records import Failure
from .config import MAX_FAILURE_RATE
from .console import format_estimate
from .metered_usage import UsageSummary, cached_share
from .row_metrics import counted_rows, mean, mean_parts, mean_recall, search_times
from .rows import Row
from .statistics import MIN_N, Difference, Interval, bootstrap_interval, compare_paired_scores
from .tables import ResultTable
from .write_precision import STORED_WORDS, UNUSED_ENTRIES

if TYPE_CHECKING:
    import pandas as pd

OUTCOMES = ("ok", "repaired", "retried", "lost")
"""How predictor calls end."""

_ELSEWHERE = "elsewhere"
"""The role, in tables, of calls that this run did not make: an endpoint or recorded answers did."""

_DATA_FRAME_COLUMNS = {
    "id",
    "group",
    "category",
    "question",
    "gold",
    "answer",
    "score",
    "seconds",
    "hits",
    "context_tokens",
    "prompt_tokens",
    "output_tokens",
    "calls",
    "cost",
}
"""What a data frame has of every row, beside the parts of its score and its evidence recall."""

# Groups of rows may be ids of users.
_LEFT_OUT_OF_JSON = {"rows", "names", "expected", "writing_tokens"}

_PUBLISHED_FIGURES = (
    "lm",
    "embedder",
    "judge",
    "comparable",
    "run_id",
    "stopped",
    "n",
    "score",
    "interval",
    "interval_unit",
    "metrics",
    "retrieval",
    "context",
    "prompt_tokens",
    "failures",
    "write_failures",
    "failure_rate",
    "broken",
    "calls",
    "tokens",
    "cost",
    "seconds",
)
"""What a manifest says of an evaluation. Manifests are published with their programs, so names of
categories and classes are left out, and messages of failures, which may quote an answer or name a
user."""

_FAILED_WRITES = "writes failed"


@dataclass(frozen=True)
class _Loss:
    """How many things of one kind failed in an evaluation."""

    count: int
    total: int
    kind: str
    """What failed, in words, e.g. "questions failed"."""

    @property
    def share(self) -> float:
        """The share that failed; 0 if there was nothing."""
        return self.count / max(1, self.total)


class Evaluation(BaseModel, frozen=True):
    """The result of one program on one set of questions."""

    program: str
    benchmark: str
    lm: str
    embedder: str | None = None
    judge: str | None = None
    """Model and prompt hash of the judge; None if no judge scored."""
    comparable: bool
    """False for a smoke test: on a bundled sample, or with an engine of rules as the model."""
    rows: tuple[Row, ...]
    calls: dict[str, int] = {}
    """Calls by role; those that a cache answered are "cached"."""
    tokens: dict[str, int] = {}
    cost: float | None = None
    """US dollars; None if the price of a call is not known."""
    prompt_cache: dict[str, int] = {}
    """Prompt tokens of calls whose endpoint reports its cache (`told`), and those in it (`reused`).

    Empty if no endpoint reports it.
    """
    write_failures: int = 0
    """How many items could not be written because the LM's output stayed unparseable."""
    failed_writes: tuple[Failure, ...] = ()
    """Those failures; each says its history, item and predictor."""
    store_writes: int = 0
    """Sessions that a user's own stores were given.

    0 for Mempiler's methods, whose failed writes count as lost calls.
    """
    construction: Usage | None = None
    """What writing the memories takes, even if a cache or an earlier run has paid for it."""
    writing_tokens: dict[str, float] = {}
    """The tokens of `construction`, by the group of the rows."""
    histories: int = 0
    """How many histories were written to memories."""
    memory_words: float | None = None
    """Mean number of words of a memory; None if nothing was written, or it cannot be read here."""
    operations: dict[str, int] = {}
    """Operations on all memories by their outcome, if the method counts them."""
    seconds: float = 0.0
    call_outcomes: dict[str, dict[str, int]] = {}
    """Predictor calls by predictor and how they ended: ok, repaired, retried, lost."""
    faults: dict[str, dict[str, int]] = {}
    """What was wrong with answers, by predictor and kind.

    See `reading.repairs` and `programs.recording`.
    """
    max_failure_rate: float = MAX_FAILURE_RATE
    """The run is broken if a larger share of questions, calls or writes failed."""
    aggregate: dict[str, int | float] = {}
    """Metrics of all answers together that are not means over answers, e.g. macro-F1."""
    confusion: Confusion | None = None
    """Gold against predicted classes, if the benchmark reports them."""
    asks_for_answers: bool = True
    """Whether the questions were answered. If not, the metric looks at what was recalled."""
    expected: tuple[str, ...] = ()
    """Categories of the benchmark that tables list even if they have no question."""
    names: dict[str, str] = {}
    """Names of categories in tables, by the category of the rows."""
    run_id: str | None = None
    """The id of the run: that of its MLflow run, unless `tracking` was "off"."""
    stopped: str | None = None
    """Why not all questions were asked, e.g. "budget reached: max-calls 100"; None if all were."""

    @property
    def headline_rows(self) -> list[Row]:
        """The rows behind the headline score."""
        return [row for row in self.rows if row.in_headline]

    @property
    def n(self) -> int:
        """The number of questions behind the headline score."""
        return len(self.headline_rows)

    @property
    def score(self) -> float | None:
        """The mean headline score; None without questions."""
        return mean(row.score for row in self.headline_rows)

    @property
    def failures(self) -> int:
        """The number of questions without an answer."""
        return sum(row.failure is not None for row in self.rows)

    @property
    def outcomes(self) -> dict[str, int]:
        """Predictor calls by how they ended, over all predictors."""
        totals: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        for counts in self.call_outcomes.values():
            totals.update(counts)
        return dict(totals)

    @property
    def failure_rate(self) -> float:
        """The largest share that failed: of questions, predictor calls, or sessions for stores."""
        return self._largest_loss.share

    @property
    def broken(self) -> bool:
        """Whether so much failed that the score says little about the program."""
        return self.failure_rate > self.max_failure_rate

    @property
    def breakage(self) -> str:
        """What broke a broken run, and its most frequent error, in one line."""
        loss = self._largest_loss
        allowed = f"--max-failure-rate allows {self.max_failure_rate:.0%}"
        line = f"{loss.count} of {loss.total} {loss.kind}, {allowed}"

        # A lost answer has no error of its own: one of a question or a write has to explain it.
        failures = [row.failure for row in self.rows if row.failure]
        if loss.kind == _FAILED_WRITES or not failures:
            failures = list(self.failed_writes)
        if not failures:
            return line

        message_counts = Counter(failure.message for failure in failures)
        [(most_frequent, _)] = message_counts.most_common(1)
        return f"{line}; most often: {most_frequent}"

    @property
    def _largest_loss(self) -> _Loss:
        """What failed in the largest share: questions, answers of predictors, or writes to stores.

        Of equal shares, the first one in this order.
        """
        outcomes = self.outcomes
        losses = [
            _Loss(self.failures, len(self.rows), "questions failed"),
            _Loss(outcomes["lost"], sum(outcomes.values()), "answers were lost"),
        ]
        if self.store_writes:
            losses.append(_Loss(self.write_failures, self.store_writes, _FAILED_WRITES))
        return max(losses, key=lambda loss: loss.share)

    @property
    def cut_answers(self) -> int:
        """How many answers of models were cut off at their token limit.

        Answers that were asked for again are counted too.
        """
        return sum(counts.get("cut", 0) for counts in self.faults.values())

    @property
    def repeated_id_warning(self) -> str:
        """A warning, in one line, if a user's search returned entries with equal ids; "" if not.

        An entry is told from others by its id, so of several with one id only one may count. Such a
        score can be too low.
        """
        ids = [row.repeated_id for row in self.rows if row.repeated_id]
        if not ids:
            return ""
        return (
            f"{len(ids)} questions were answered from several entries with the same id,"
            f" such as {ids[0]!r}; let search give every entry an id of its own, or none"
        )

    @property
    def answering_usage(self) -> Usage:
        """What recalling and answering takes, over all questions."""
        total = Usage()
        for row in self.rows:
            total += Usage(
                calls=row.calls,
                input_tokens=row.prompt_tokens,
                output_tokens=row.output_tokens,
                cost=row.cost or 0.0,
                # Here the questions whose price is not known are counted, not their calls.
                unpriced=int(row.cost is None),
                seconds=row.answering,
            )
        return total

    @property
    def usage(self) -> Usage:
        """What writing and answering take together."""
        return self.answering_usage + (self.construction or Usage())

    @property
    def metered_usage(self) -> UsageSummary:
        """Calls, tokens and cost as the run's meter counted them.

        A user's own endpoint, or a file of recorded answers, may report calls that did not go
        through the meter. If it counted none, these calls are returned instead.
        """
        reported = self.usage
        has_metered_calls = any(self.calls.values())
        if reported.calls and not has_metered_calls:
            return UsageSummary(
                calls={_ELSEWHERE: int(reported.calls)},
                tokens={
                    "input": int(reported.input_tokens),
                    "output": int(reported.output_tokens),
                },
                prompt_cache={},
                cost=None if reported.unpriced else reported.cost,
            )
        return UsageSummary(
            calls=self.calls,
            tokens=self.tokens,
            prompt_cache=self.prompt_cache,
            cost=self.cost,
        )

    def metrics(self) -> dict[str, float]:
        """Return the mean of every part of the metric over the headline questions."""
        return mean_parts(self.headline_rows)

    def retrieval(self) -> dict[str, float]:
        """Return mean evidence recall over the headline questions that name evidence.

        Failed questions count too. See `row_metrics.mean_recall` for contexts of summaries.
        """
        return mean_recall(self.headline_rows)

    def search_ms(self) -> dict[str, float | None]:
        """Return the median and 95th percentile of search times, and the mean CPU time, in ms."""
        return search_times(self.rows)

    def context(self) -> dict[str, float]:
        """Return the mean size of the recalled context, in entries ("hits") and tokens."""
        rows = self.headline_rows
        return {
            "hits": mean(row.hits for row in rows) or 0.0,
            "tokens": mean(row.context_tokens for row in rows) or 0.0,
        }

    @property
    def prompt_tokens(self) -> float | None:
        """Mean prompt tokens of a headline question; None if they were not counted."""
        return mean(float(row.prompt_tokens) for row in self.headline_rows) or None

    def by_category(self) -> dict[str, dict[str, Any]]:
        """Return the figures of every category, as JSON objects.

        Categories outside the headline score are included; "in_score" says which ones are in it.
        """
        rows_by_category: dict[str, list[Row]] = {category: [] for category in self.expected}
        for row in self.rows:
            rows_by_category.setdefault(row.category, []).append(row)

        figures: dict[str, dict[str, Any]] = {}
        for category, all_rows in sorted(rows_by_category.items()):
            rows = counted_rows(all_rows)
            figures[category] = {
                "name": self.names.get(category, category),
                "n": len(rows),
                "score": mean(row.score for row in rows),
                # Either all of these rows are in the score, or none is.
                "in_score": rows[0].in_headline if rows else True,
                **mean_parts(rows),
                "context_tokens": mean(float(row.context_tokens) for row in rows),
                "failures": sum(row.failure is not None for row in rows),
            }
        return figures

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each question, as a pandas data frame."""
        import pandas as pd

        records: list[dict[str, Any]] = []
        for row in self.rows:
            record = row.model_dump(include=_DATA_FRAME_COLUMNS)
            record["failure"] = None if row.failure is None else row.failure.message
            record.update(row.parts)
            record.update(row.recall)
            records.append(record)
        return pd.DataFrame(records)

    def table(self) -> ResultTable:
        """Return scores by category, and the headline score with its interval."""
        metrics = self.metrics()
        lines: list[list[str]] = []
        for category in self.by_category().values():
            name = category["name"]
            if not category["in_score"]:
                name = f"{name} (not in score)"
            cells = [name, str(category["n"]), format_estimate(category["score"])]
            cells.extend(format_estimate(category.get(metric)) for metric in metrics)
            lines.append(cells)

        headline = ["score", str(self.n), format_estimate(self.score, self.interval)]
        headline.extend(format_estimate(value) for value in metrics.values())
        lines.append(headline)

        smoke_test = "" if self.comparable else " (smoke test, not comparable)"
        title = f"{self.program} on {self.benchmark}, LM {self.lm}{smoke_test}"
        return ResultTable(title, ["category", "n", "score", *metrics], lines, self._notes())

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the headline score; None with fewer than two questions."""
        rows = self.headline_rows
        return bootstrap_interval([row.score for row in rows], [row.group for row in rows])

    def _notes(self) -> list[str]:
        """Return what a reader of the table has to know about the run, a line each."""
        notes: list[str] = []
        if UNUSED_ENTRIES in self.aggregate:
            notes.append(
                f"of the stored entries, {self.aggregate[UNUSED_ENTRIES]:.1%} were of no use"
                f" ({UNUSED_ENTRIES})"
            )
        if STORED_WORDS in self.aggregate:
            notes.append(f"{self.aggregate[STORED_WORDS]:.2f} words stored for each word said")
        if self.failures:
            notes.append(f"{self.failures} questions failed")
        if self.write_failures:
            notes.append(f"{self.write_failures} writes failed")
        if self.cut_answers:
            notes.append(f"{self.cut_answers} answers were cut off at the token limit")
        if self.repeated_id_warning:
            notes.append(self.repeated_id_warning)
        if self.broken:
            notes.append(f"broken run: {self.breakage}")
        if self.stopped:
            notes.append(f"stopped before all questions were asked: {self.stopped}")
        return notes

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `mempiler evaluate --json` prints."""
        interval = self.interval
        return {
            **self.model_dump(mode="json", exclude=_LEFT_OUT_OF_JSON),
            "n": self.n,
            "score": self.score,
            "prompt_tokens": self.prompt_tokens,
            "failure_rate": self.failure_rate,
            "broken": self.broken,
            "failures": self.failures,
            "interval": None if interval is None else [interval.low, interval.high],
            "interval_unit": None if interval is None else interval.unit,
            "metrics": self.metrics(),
            "by": self.by_category(),
            "retrieval": self.retrieval(),
            "context": self.context(),
            "search_ms": self.search_ms(),
            "cached_share": cached_share(self.prompt_cache),
            "answering": asdict(self.answering_usage),
            "seconds": round(self.seconds, 3),
        }

    def published_figures(self) -> dict[str, Any]:
        """Return the part of `to_dict` that holds no text of the questions, answers or users."""
        figures = self.to_dict()
        return {name: figures[name] for name in _PUBLISHED_FIGURES}


def refuse_broken(evaluation: Evaluation, run: str | None, note: str = "") -> None:
    """Raise an error if too much failed in an evaluation.

    Args:
        evaluation: The evaluation.
        run: The name or id of its run.
        note: What else the error says, at its end.

    Raises:
        BrokenRunError: The evaluation is broken. The error says what broke it, and which command
            lists all failures.
    """
    if evaluation.broken:
        advice = f"mempiler show {run} --failed lists all"
        raise BrokenRunError(f"broken run: {evaluation.breakage}; {advice}{note}")


def raise_if_unanswered(
    evaluations: Iterable[Evaluation], stopped: str | None, run: str | None
) -> None:
    """Raise an error if a limit stopped a run before its first question was answered.

    Args:
        evaluations: All evaluations of the run.
        stopped: The limit that the run reached; None if it reached none.
        run: The name or id of the run.

    Raises:
        BrokenRunError: No evaluation has a row, and a limit is the reason.
    """
    if stopped and not any(evaluation.rows for evaluation in evaluations):
        advice = f"--resume {run} with a higher limit goes on"
        raise BrokenRunError(f"nothing was evaluated: {stopped}; {advice}")


class QuestionKey(NamedTuple):
    """What identifies a question in several runs."""

    id: str
    question: str
    gold: str


def question_key(row: Row) -> QuestionKey:
    """Return what identifies the question of a row in other runs."""
    return QuestionKey(row.id, row.question, row.gold)


class PairedRows(NamedTuple):
    """The rows of one question in two evaluations."""

    before: Row
    after: Row


def pair_rows(before: Sequence[Row], after: Sequence[Row]) -> list[PairedRows]:
    """Return the questions that are in both evaluations, in the order of the second one."""
    rows_before = {question_key(row): row for row in before}
    pairs: list[PairedRows] = []
    for row in after:
        row_before = rows_before.get(question_key(row))
        if row_before is not None:
            pairs.append(PairedRows(row_before, row))
    return pairs


def difference(before: Sequence[Row], after: Sequence[Row], min_n: int = MIN_N) -> Difference:
    """Return the paired difference of the scores, after minus before.

    Only the questions that are in both are compared.

    Args:
        before: The rows of the first program.
        after: The rows of the second program.
        min_n: The smallest number of questions for which there is a verdict.
    """
    pairs = pair_rows(before, after)
    return compare_paired_scores(
        [pair.after.score for pair in pairs],
        [pair.before.score for pair in pairs],
        [pair.before.group for pair in pairs],
        min_n=min_n,
    )
