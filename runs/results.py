"""The result of an evaluation: one row per question, and the sums that tables print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from ..data.confusion import Confusion
from ..engines.usage import Usage
from ..errors import BrokenRunError
from ..records import Failure
from .config import MAX_FAILURE_RATE
from .console import format_estimate
from .rows import SHOWN, Row
from .statistics import MIN_N, Difference, bootstrap_interval, compare_paired_scores
from .tables import ResultTable

if TYPE_CHECKING:
    import pandas as pd

OUTCOMES = ("ok", "repaired", "retried", "lost")
"""How predictor calls end."""

ELSEWHERE = "elsewhere"
"""What tables call calls that this run did not make: those of an endpoint, or of recorded answers."""

ROW_COLUMNS = {
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
"""What a data frame shows of every row, beside the parts of its score and its evidence recall."""


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
    """One program on one set of questions."""

    program: str
    benchmark: str
    lm: str
    embedder: str | None = None
    judge: str | None = None
    """Model and prompt hash of the judge, where one scored."""
    comparable: bool
    """False on a bundled sample or with an engine of rules: a smoke test."""
    rows: tuple[Row, ...]
    calls: dict[str, int] = {}
    tokens: dict[str, int] = {}
    cost: float | None = None
    """US dollars; None where the price of a call is not known."""
    prompt_cache: dict[str, int] = {}
    """Prompt tokens of which the endpoint said how many it had in its cache (`told`), and those it had (`reused`)."""
    write_failures: int = 0
    """Items whose LM output stayed unparseable while memories were written."""
    failed_writes: tuple[Failure, ...] = ()
    """Those items, by history, item and predictor; as many as `write_failures`."""
    store_writes: int = 0
    """Sessions that stores of the user's were given; 0 for a method of ours, whose failed writes are lost calls."""
    construction: Usage | None = None
    """What writing the memories takes, whoever paid for it first: a cache, an earlier go, or another evaluation."""
    histories: int = 0
    """Whose memories were written."""
    memory_words: float | None = None
    """Mean length of a memory; None where nothing was written, or it cannot be read here."""
    operations: dict[str, int] = {}
    """Operations on all memories by their outcome, of a method that counts them."""
    seconds: float = 0.0
    call_outcomes: dict[str, dict[str, int]] = {}
    """Predictor calls by predictor and how they ended: ok, repaired, retried, lost."""
    faults: dict[str, dict[str, int]] = {}
    """What was wrong with answers, by predictor and kind; see `reading.repairs` and `programs.recording`."""
    max_failure_rate: float = MAX_FAILURE_RATE
    """The share of failed questions, lost calls or failed writes above which the score is that of a broken run."""
    aggregate: dict[str, int | float] = {}
    """Metrics of all answers together that are no mean over answers, e.g. macro-F1."""
    confusion: Confusion | None = None
    """Gold against predicted classes, where the benchmark's result is one."""
    expected: tuple[str, ...] = ()
    """Categories of the benchmark that tables list even where no question is of them."""
    names: dict[str, str] = {}
    """Category names for tables, by the category of the rows."""
    run_id: str | None = None
    stopped: str | None = None
    """What ended it before all questions were asked, e.g. "budget reached: max-calls 100"."""

    @property
    def headline_rows(self) -> list[Row]:
        """The rows behind the headline score."""
        return [row for row in self.rows if row.in_headline]

    @property
    def n(self) -> int:
        """Questions behind the headline score."""
        return len(self.headline_rows)

    @property
    def score(self) -> float | None:
        """Mean headline score; None without questions."""
        return mean([row.score for row in self.headline_rows])

    @property
    def failures(self) -> int:
        """Questions without an answer."""
        return sum(row.failure is not None for row in self.rows)

    @property
    def outcomes(self) -> dict[str, int]:
        """Predictor calls by how they ended, over all predictors."""
        counts: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        for found in self.call_outcomes.values():
            counts.update(found)
        return dict(counts)

    @property
    def failure_rate(self) -> float:
        """The largest share of what was lost: questions, answers to predictor calls, or sessions given to stores."""
        return self._largest_loss.share

    @property
    def broken(self) -> bool:
        """Whether so much failed that the score says little of the program."""
        return self.failure_rate > self.max_failure_rate

    @property
    def breakage(self) -> str:
        """What broke a broken run, and what was wrong most often, in one line."""
        loss = self._largest_loss
        failed_questions = [row.failure for row in self.rows if row.failure]
        failures = failed_questions or list(self.failed_writes)
        if loss.kind == _FAILED_WRITES:
            failures = list(self.failed_writes)

        line = f"{loss.count} of {loss.total} {loss.kind}, --max-failure-rate allows {self.max_failure_rate:.0%}"
        if not failures:
            return line
        [(message, _)] = Counter(failure.message for failure in failures).most_common(1)
        return f"{line}; most often: {message}"

    @property
    def _largest_loss(self) -> _Loss:
        """What failed in the largest share; of equal shares the first one in this list."""
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
        """Answers of models that were cut off at their token limit, those that were asked for again included."""
        return sum(counts.get("cut", 0) for counts in self.faults.values())

    @property
    def repeated_ids(self) -> str:
        """How many questions were shown several entries with the same id, in one line; "" if none was."""
        ids = [row.repeated_id for row in self.rows if row.repeated_id]
        if not ids:
            return ""
        return (
            f"{len(ids)} questions were answered from several entries with the same id, such as {ids[0]!r};"
            " let search give every entry an id of its own, or none"
        )

    @property
    def answering_usage(self) -> Usage:
        """What recalling and answering takes, over all questions."""
        taken = (
            Usage(r.calls, r.prompt_tokens, r.output_tokens, r.cost or 0.0, int(r.cost is None), r.answering)
            for r in self.rows
        )
        return sum(taken, Usage())

    @property
    def usage(self) -> Usage:
        """What writing and answering take together."""
        return self.answering_usage + (self.construction or Usage())

    @property
    def metered_usage(self) -> dict[str, Any]:
        """Calls, tokens and cost as the run's meter counted them; where it counted none, what was called elsewhere."""
        taken = self.usage
        if any(self.calls.values()) or not taken.calls:
            return {"calls": self.calls, "tokens": self.tokens, "prompt_cache": self.prompt_cache, "cost": self.cost}
        tokens = {"input": int(taken.input_tokens), "output": int(taken.output_tokens)}
        cost = None if taken.unpriced else taken.cost
        return {"calls": {ELSEWHERE: int(taken.calls)}, "tokens": tokens, "prompt_cache": {}, "cost": cost}

    def metrics(self) -> dict[str, float]:
        """Mean of every part of the metric over the headline questions."""
        names = dict.fromkeys(name for row in self.headline_rows for name in row.parts)
        return {name: mean([row.parts.get(name) for row in self.headline_rows]) or 0.0 for name in names}

    def retrieval(self) -> dict[str, float]:
        """Mean evidence recall over the headline questions that name evidence, failed ones included.

        Where the method speaks of particular turns at all, a context of summaries alone shows no evidence.
        """
        rows = [row for row in self.headline_rows if row.recall]
        names = dict.fromkeys(name for row in rows for name in row.recall)
        found = {name: mean([row.recall.get(name) for row in rows]) or 0.0 for name in names}
        if SHOWN in found and any(SHOWN not in row.recall for row in rows):
            del found[SHOWN]
            if any(row.hits and SHOWN in row.recall for row in rows):
                found = {SHOWN: sum(row.recall.get(SHOWN, 0.0) for row in rows) / len(rows), **found}
        if set(found) == {SHOWN} and not any(row.sources for row in rows):
            return {}  # a system that never says what an answer rests on
        return found

    def search_ms(self) -> dict[str, float | None]:
        """Median and 95th percentile of what searching takes a question, in milliseconds, and the mean of its CPU."""
        taken = [row.search for row in self.rows if row.search is not None]
        middle, most = np.percentile(taken, (50, 95)).tolist() if taken else (None, None)
        return {"p50": middle, "p95": most, "cpu": mean([row.search_cpu for row in self.rows])}

    def context(self) -> dict[str, float]:
        """Mean size of the recalled context over the headline questions: entries and tokens."""
        return {
            "hits": mean([row.hits for row in self.headline_rows]) or 0.0,
            "tokens": mean([row.context_tokens for row in self.headline_rows]) or 0.0,
        }

    @property
    def prompt_tokens(self) -> float | None:
        """Mean prompt tokens of a headline question; None where they were not counted."""
        return mean([float(row.prompt_tokens) for row in self.headline_rows]) or None

    def by_category(self) -> dict[str, dict[str, Any]]:
        """n, score, parts, size of the context and failures of every category, those outside the headline score too."""
        found = {}
        for category in sorted({row.category for row in self.rows} | set(self.expected)):
            rows = [row for row in self.rows if row.category == category]
            parts = dict.fromkeys(name for row in rows for name in row.parts)
            found[category] = {
                "name": self.names.get(category, category),
                "n": len(rows),
                "score": mean([row.score for row in rows]),
                "in_score": rows[0].in_headline if rows else True,
                **{name: mean([row.parts.get(name) for row in rows]) or 0.0 for name in parts},
                "context_tokens": mean([float(row.context_tokens) for row in rows]),
                "failures": sum(row.failure is not None for row in rows),
            }
        return found

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each question, as a pandas data frame."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for row in self.rows:
            fields = row.model_dump(include=ROW_COLUMNS)
            fields["failure"] = None if row.failure is None else row.failure.message
            rows.append(fields | row.parts | row.recall)
        return pd.DataFrame(rows)

    def table(self) -> ResultTable:
        """Return scores by category, with the interval of the whole."""
        metrics = self.metrics()
        rows: list[list[str]] = []
        for category in self.by_category().values():
            name = category["name"] if category["in_score"] else f"{category['name']} (not in score)"
            cells = [name, str(category["n"]), format_estimate(category["score"])]
            rows.append([*cells, *(format_estimate(category.get(metric)) for metric in metrics)])
        whole = bootstrap_interval([row.score for row in self.headline_rows], [row.group for row in self.headline_rows])
        rows.append(["score", str(self.n), format_estimate(self.score, whole), *map(format_estimate, metrics.values())])

        notes = [f"{self.failures} questions failed"] if self.failures else []
        if self.write_failures:
            notes.append(f"{self.write_failures} writes failed")
        if self.cut_answers:
            notes.append(f"{self.cut_answers} answers were cut off at the token limit")
        if self.repeated_ids:
            notes.append(self.repeated_ids)
        if self.broken:
            notes.append(f"broken run: {self.breakage}")
        if self.stopped:
            notes.append(f"stopped before all questions were asked: {self.stopped}")
        smoke_test = "" if self.comparable else " (smoke test, not comparable)"
        title = f"{self.program} on {self.benchmark}, LM {self.lm}{smoke_test}"
        return ResultTable(title, ["category", "n", "score", *metrics], rows, notes)

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `mempiler evaluate --json` prints."""
        found = bootstrap_interval([row.score for row in self.headline_rows], [row.group for row in self.headline_rows])
        return {
            **self.model_dump(mode="json", exclude={"rows", "names", "expected"}),
            **{
                name: getattr(self, name)
                for name in ("n", "score", "prompt_tokens", "failure_rate", "broken", "failures")
            },
            "interval": None if found is None else [found.low, found.high],
            "interval_unit": None if found is None else found.unit,
            "metrics": self.metrics(),
            "by": self.by_category(),
            "retrieval": self.retrieval(),
            "context": self.context(),
            "search_ms": self.search_ms(),
            "cached_share": cached_share(self.prompt_cache),
            "answering": asdict(self.answering_usage),
            "seconds": round(self.seconds, 3),
        }


def refuse_broken(found: Evaluation, run: str | None, note: str = "") -> None:
    """Ends a broken run by its name or id, saying what broke it and what lists all that failed.

    Raises:
        BrokenRunError: It is broken.
    """
    if found.broken:
        raise BrokenRunError(f"broken run: {found.breakage}; mempiler show {run} --failed lists all{note}")


def raise_if_unanswered(evaluations: Iterable[Evaluation], stopped: str | None, run: str | None) -> None:
    """Ends a run that a limit stopped before its first question was answered: there is no result to look at.

    Args:
        evaluations: All of the run.
        stopped: The limit that it reached; None if it reached none.
        run: Its name or id.

    Raises:
        BrokenRunError: No evaluation has a row, and a limit is the reason.
    """
    if stopped and not any(each.rows for each in evaluations):
        raise BrokenRunError(f"nothing was evaluated: {stopped}; --resume {run} with a higher limit goes on")


def question(row: Row) -> tuple[str, str, str]:
    """What a question is known by in several runs: id, words, gold answer."""
    return row.id, row.question, row.gold


def difference(before: Sequence[Row], after: Sequence[Row], min_n: int = MIN_N) -> Difference:
    """Paired difference of the scores, after minus before, over the questions that both were asked."""
    known = {question(row): row for row in before}
    both = [(known[question(row)], row) for row in after if question(row) in known]
    scores = [b.score for _, b in both], [a.score for a, _ in both]
    return compare_paired_scores(*scores, [a.group for a, _ in both], min_n=min_n)


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of the values that there are, or None."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def cached_share(counts: Mapping[str, int]) -> float | None:
    """The share of prompt tokens that the endpoint had in its cache; None where it does not say."""
    return counts["reused"] / counts["told"] if counts.get("told") else None


def counts_of(usage: Any) -> Mapping[str, Any]:
    """Calls, tokens and cost of a meter reading, as evaluations hold them."""
    known = usage.unpriced == 0 and sum(usage.calls.values()) > 0
    return {
        "calls": usage.by_role(),
        "tokens": {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            **({"estimated_calls": usage.estimated} if usage.estimated else {}),
        },
        "prompt_cache": {"told": usage.cache_reported_tokens, "reused": usage.cached_tokens}
        if usage.cache_reported_tokens
        else {},
        "cost": usage.cost if known or usage.cost else None,
        "call_outcomes": _by_first(usage.answers),
        "faults": _by_first(usage.faults),
    }


def totals(spent: Mapping[str, Any]) -> dict[str, float | None]:
    """Calls that were made, tokens and cost in all, of what `counts_of` gives."""
    calls = sum(count for role, count in spent["calls"].items() if role != "cached")
    tokens = spent["tokens"].get("input", 0) + spent["tokens"].get("output", 0)
    return {"calls": float(calls), "tokens": float(tokens), "cost": spent["cost"]}


def _by_first(counts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (predictor, name), count in sorted(counts.items()):
        found.setdefault(predictor, {})[name] = count
    return found
