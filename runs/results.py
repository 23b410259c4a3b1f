"""What an evaluation found: one row per question, and the sums every table prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from ..data.confusion import Confusion
from ..records import Failure
from .statistics import Difference, interval, paired

RECALL_AT = (5, 20)
SHOWN = "shown"
"""Evidence recall of what the task saw, the policy of the method included."""


OUTCOMES = ("ok", "salvaged", "asked again", "lost")
"""How predictor calls end."""

MAX_LOST = 0.1
"""The share of lost calls above which a run is broken, unless it says otherwise."""


class Row(BaseModel):
    """One question and what became of it."""

    model_config = ConfigDict(frozen=True)

    id: str
    group: str
    category: str
    counts: bool
    """Whether it is part of the headline score."""
    question: str
    gold: str
    answer: str
    score: float
    """0 where the question failed; failures are counted beside the score."""
    parts: dict[str, float]
    recall: dict[str, float]
    """Evidence recall by name, of what was shown and of the index by itself, e.g. {"shown": 0.5, "recall@5": 1.0}.

    Empty where the question names no evidence.
    """
    sources: tuple[str, ...]
    """Turns behind the recalled context, best first."""
    seconds: float
    hits: int = 0
    """Entries recalled."""
    context_tokens: int = 0
    """Length of the recalled context, as `records.estimate_tokens` counts."""
    prompt_tokens: int = 0
    """Prompt tokens of the calls that recalled and answered, as the endpoint counts them; writing memories is none."""
    recall_counts: dict[str, int] = {}
    """What the recall took, as the method counts it, e.g. {"calls": 4, "facts": 22}."""
    failure: Failure | None = None


class Evaluation(BaseModel):
    """One program on one set of questions."""

    model_config = ConfigDict(frozen=True)

    program: str
    benchmark: str
    lm: str
    embedder: str | None
    judge: str | None = None
    """Model and prompt hash of the judge, where one scored."""
    comparable: bool
    """False on a bundled sample or with an engine of rules: a wiring check."""
    rows: tuple[Row, ...]
    calls: dict[str, int]
    tokens: dict[str, int]
    cost: float | None
    """US dollars; None where the price of a call is not known."""
    prompt_cache: dict[str, int] = {}
    """Prompt tokens of which the endpoint said how many it had in its cache (`told`), and those it had (`reused`)."""
    write_failures: int
    """Items whose LM output stayed unparseable while memories were written."""
    failed_writes: tuple[Failure, ...] = ()
    """Those items, by history, item and predictor; as many as `write_failures`."""
    seconds: float
    answers: dict[str, dict[str, int]] = {}
    """Predictor calls by predictor and how they ended: ok, salvaged, asked again, lost."""
    faults: dict[str, dict[str, int]] = {}
    """What was wrong with answers, by predictor and kind; see `reading.mends` and `programs.failing`."""
    max_lost: float = MAX_LOST
    """The share of lost calls above which the score is that of a broken run."""
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
    def counted(self) -> list[Row]:
        """The rows behind the headline score."""
        return [row for row in self.rows if row.counts]

    @property
    def n(self) -> int:
        """Questions behind the headline score."""
        return len(self.counted)

    @property
    def score(self) -> float | None:
        """Mean headline score; None without questions."""
        return mean([row.score for row in self.counted])

    @property
    def failures(self) -> int:
        """Questions without an answer."""
        return sum(row.failure is not None for row in self.rows)

    @property
    def outcomes(self) -> dict[str, int]:
        """Predictor calls by how they ended, over all predictors."""
        counts: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        for found in self.answers.values():
            counts.update(found)
        return dict(counts)

    @property
    def lost(self) -> float:
        """The share of predictor calls whose answer was lost."""
        counts = self.outcomes
        return counts["lost"] / max(1, sum(counts.values()))

    @property
    def broken(self) -> bool:
        """Whether so many calls were lost that the score says little of the program."""
        return self.lost > self.max_lost

    def metrics(self) -> dict[str, float]:
        """Mean of every part of the metric over the headline questions."""
        names = dict.fromkeys(name for row in self.counted for name in row.parts)
        return {name: _mean_of([row.parts.get(name) for row in self.counted]) for name in names}

    def retrieval(self) -> dict[str, float]:
        """Mean evidence recall over the headline questions that name evidence, failed ones included.

        Where the method speaks of particular turns at all, a context of summaries alone shows no evidence.
        """
        rows = [row for row in self.counted if row.recall]
        names = dict.fromkeys(name for row in rows for name in row.recall)
        found = {name: _mean_of([row.recall.get(name) for row in rows]) for name in names}
        if SHOWN in found and any(SHOWN not in row.recall for row in rows):
            del found[SHOWN]
            if any(row.hits and SHOWN in row.recall for row in rows):
                found = {SHOWN: sum(row.recall.get(SHOWN, 0.0) for row in rows) / len(rows), **found}
        return found

    def context(self) -> dict[str, float]:
        """Mean size of the recalled context over the headline questions: entries and tokens."""
        return {
            "hits": _mean_of([float(row.hits) for row in self.counted]),
            "tokens": _mean_of([float(row.context_tokens) for row in self.counted]),
        }

    @property
    def prompt_tokens(self) -> float | None:
        """Mean prompt tokens of a headline question; None where they were not counted."""
        return mean([float(row.prompt_tokens) for row in self.counted]) or None

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
                "in_score": rows[0].counts if rows else True,
                **{name: _mean_of([row.parts.get(name) for row in rows]) for name in parts},
                "context_tokens": mean([float(row.context_tokens) for row in rows]),
                "failures": sum(row.failure is not None for row in rows),
            }
        return found

    def summary(self) -> dict[str, Any]:
        """The object `--json` prints."""
        found = interval([row.score for row in self.counted], [row.group for row in self.counted])
        return {
            "program": self.program,
            "benchmark": self.benchmark,
            "lm": self.lm,
            "embedder": self.embedder,
            "judge": self.judge,
            "comparable": self.comparable,
            "n": self.n,
            "score": self.score,
            "interval": None if found is None else [found.low, found.high],
            "interval_unit": None if found is None else found.unit,
            "metrics": self.metrics(),
            "aggregate": self.aggregate,
            "confusion": None if self.confusion is None else self.confusion.model_dump(mode="json"),
            "by": self.by_category(),
            "retrieval": self.retrieval(),
            "context": self.context(),
            "calls": self.calls,
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
            "prompt_cache": self.prompt_cache,
            "cached_share": cached_share(self.prompt_cache),
            "cost": self.cost,
            "answers": self.answers,
            "faults": self.faults,
            "lost": self.lost,
            "max_lost": self.max_lost,
            "broken": self.broken,
            "failures": self.failures,
            "write_failures": self.write_failures,
            "failed_writes": [failure.model_dump() for failure in self.failed_writes],
            "seconds": round(self.seconds, 3),
            "stopped": self.stopped,
            "run_id": self.run_id,
        }


def difference(start: Evaluation, result: Evaluation) -> Difference:
    """Paired difference (result minus start) over the headline questions both have answered."""
    before = {row.id: row for row in start.counted}
    both = [(before[row.id], row) for row in result.counted if row.id in before]
    return paired([b.score for _, b in both], [a.score for a, _ in both], [a.group for a, _ in both])


def mean(values: Sequence[float]) -> float | None:
    """Mean, or None if empty."""
    return sum(values) / len(values) if values else None


def cached_share(counts: Mapping[str, int]) -> float | None:
    """The share of prompt tokens that the endpoint had in its cache; None where it does not say."""
    return counts["reused"] / counts["told"] if counts.get("told") else None


def counts_of(usage: Any) -> Mapping[str, Any]:
    """Calls, tokens and cost of a meter reading, as evaluations hold them."""
    known = usage.unpriced == 0 and sum(usage.calls.values()) > 0
    return {
        "calls": usage.by_role(),
        "tokens": {"input": usage.input_tokens, "output": usage.output_tokens},
        "prompt_cache": {"told": usage.told_tokens, "reused": usage.reused_tokens} if usage.told_tokens else {},
        "cost": usage.cost if known or usage.cost else None,
        "answers": _by_first(usage.answers),
        "faults": _by_first(usage.faults),
    }


def _by_first(counts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (predictor, name), count in sorted(counts.items()):
        found.setdefault(predictor, {})[name] = count
    return found


def _mean_of(values: Sequence[float | None]) -> float:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else 0.0
