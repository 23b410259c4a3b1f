"""Win rate: which of two runs' responses a judge prefers, query by query.

    Recorded ┐                                   benchmark of the runs ── references, profile, date ──┐
    Recorded ┴── answers to the same queries ──────────────── data.preference.preference (both orders) ── win rate

Limits: the benchmark is read again from where the baseline's run found it. A query that failed in one of the runs has
an empty response there, and is judged as one. Two calls a query; nothing is kept for a second time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from ..data.catalog import benchmark as load_benchmark
from ..data.judge import ask_all
from ..data.preference import PairJudge, Preference, informed, preference
from ..errors import DataError, UserError
from .compare import Recorded
from .results import mean
from .rows import Row
from .statistics import Interval, interval


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


def preferences(baseline: Recorded, other: Recorded, judge: PairJudge, threads: int = 8) -> Preferences:
    """Has a judge compare the responses of two runs to the queries that both were asked.

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


def _examples(run: Recorded) -> dict[tuple[str, str], dspy.Example]:
    made = run.settings
    benchmark = load_benchmark(made["benchmark"], made.get("data"), **(made.get("options") or {}))
    return {(str(example.id), str(example.question)): example for example in informed(benchmark)}
