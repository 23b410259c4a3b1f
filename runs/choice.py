"""The result of `mempiler.choose`: what each method scored and costs, and which one won."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BrokenRunError
from .console import format_estimate
from .halving import Dropout
from .metered_usage import UsageSummary, usage_totals
from .results import Evaluation, refuse_broken
from .statistics import Difference, Interval, Verdict
from .tables import ResultTable


@dataclass(frozen=True)
class MeanUsage:
    """What one question costs on average.

    That is recalling and answering it, and its share of writing the memory that it is about.
    """

    calls: float
    tokens: float
    """Of prompts and answers together."""
    usd: float | None
    """US dollars; None if the price of a call is not known."""
    seconds: float
    """For recalling and answering alone: writing the memory is not in it."""

    @classmethod
    def of_evaluation(cls, evaluation: Evaluation) -> MeanUsage | None:
        """Return the mean over the questions of an evaluation; None if no question was asked."""
        question_count = len(evaluation.rows)
        if question_count == 0:
            return None

        usage = evaluation.usage
        # A sum without the calls whose price is not known would be too low.
        has_all_prices = not usage.unpriced
        return cls(
            calls=usage.calls / question_count,
            tokens=usage.tokens / question_count,
            usd=usage.cost / question_count if has_all_prices else None,
            seconds=evaluation.answering_usage.seconds / question_count,
        )

    def to_dict(self) -> dict[str, float | None]:
        """Return the figures as JSON data."""
        return {
            "calls": self.calls,
            "tokens": self.tokens,
            "usd": self.usd,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class ChoiceRow:
    """The result of one method."""

    program: str
    """The name of the method or program."""
    run: Path
    """The folder of its evaluation, for `mempiler show` and `mempiler compare`."""
    evaluation: Evaluation | None = field(repr=False)
    """Its scores; None if a limit was reached before its first question."""
    dropout: Dropout | None
    """When and why it dropped out; None if it stayed to the end."""
    difference: Difference | None
    """Its scores minus those of the leader, on the questions of both; None for the leader."""

    @property
    def questions(self) -> int:
        """How many questions it was asked."""
        return 0 if self.evaluation is None else len(self.evaluation.rows)

    @property
    def score(self) -> float | None:
        """Its mean score on these questions; None if none was asked."""
        return None if self.evaluation is None else self.evaluation.score

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the score; None with fewer than two questions."""
        return None if self.evaluation is None else self.evaluation.interval

    @property
    def usage(self) -> MeanUsage | None:
        """What a question costs on average; None if none was asked."""
        return None if self.evaluation is None else MeanUsage.of_evaluation(self.evaluation)

    @property
    def broken(self) -> str | None:
        """What failed so often that the score says little, in one line; None if nothing did."""
        if self.evaluation is None or not self.evaluation.broken:
            return None
        return self.evaluation.breakage

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON data."""
        interval = self.interval
        return {
            "program": self.program,
            "run": str(self.run),
            "questions": self.questions,
            "score": self.score,
            "interval": None if interval is None else [interval.low, interval.high],
            "per_question": None if self.usage is None else self.usage.to_dict(),
            "left_after_round": None if self.dropout is None else self.dropout.round,
            "left_because": None if self.dropout is None else self.dropout.reason,
            "difference": None if self.difference is None else self.difference.to_dict(),
            "broken": self.broken,
        }


@dataclass(frozen=True)
class Choice:
    """Which of several methods suits the questions best."""

    rows: tuple[ChoiceRow, ...]
    """All methods, the best first: those that stayed to the end, then the last to drop out."""
    difference: Difference
    """The scores of the leader minus those of the next best method, on the questions of both."""
    benchmark: str
    lm: str
    comparable: bool
    """False for a smoke test, see `Evaluation.comparable`."""
    question_count: int
    """How many questions could be asked."""
    usage: UsageSummary
    """Calls, tokens and cost of the run. Answers that a resumed run had already are not in it."""
    run: Path
    """The folder of the run."""
    run_id: str
    """The id of the run: that of its MLflow run, which contains one run for each method."""
    stopped: str | None = None
    """The limit that ended the run early, e.g. "max-calls 100"; None if none did."""
    notes: tuple[str, ...] = ()
    """What a reader of the table has to know, a line each."""

    @property
    def leader(self) -> str:
        """The method with the best score, whether or not it is told apart from the others."""
        return self.rows[0].program

    @property
    def verdict(self) -> Verdict:
        """Whether the leader is better than the next best method."""
        return self.difference.verdict

    @property
    def winner(self) -> str | None:
        """The leader, if it is better than the next best method; else None."""
        if self.verdict == "better" and self.rows[0].broken is None:
            return self.leader
        return None

    @property
    def finalists(self) -> tuple[ChoiceRow, ...]:
        """The methods that stayed to the end."""
        return tuple(row for row in self.rows if row.dropout is None)

    @property
    def cheapest(self) -> str | None:
        """The finalist that costs the fewest dollars a question, if nothing else decides.

        Tokens count where a price is not known. None unless the verdict is "not told apart".
        """
        candidates = [row for row in self.finalists if row.usage is not None]
        if self.verdict != "not told apart" or len(candidates) < 2:
            return None
        has_prices = all(_dollars(row) is not None for row in candidates)
        cost = _dollars if has_prices else _tokens
        return min(candidates, key=lambda row: cost(row) or 0.0).program

    @property
    def answers(self) -> int:
        """How many answers were scored, over all methods."""
        return sum(row.questions for row in self.rows)

    @property
    def all_answers(self) -> int:
        """How many answers it would take to ask every method every question."""
        return len(self.rows) * self.question_count

    def statement(self) -> str:
        """Return the winner, or why there is none, with the numbers, on one line."""
        runner_up = self.rows[1].program
        numbers = f"{self.difference} (scope: {self.difference.scope})"
        if self.winner is not None:
            return f"winner: {self.winner}, better than {runner_up}: {numbers}"
        if self.rows[0].broken is not None:
            return f"no winner: the run of {self.leader} is broken: {self.rows[0].broken}"

        line = f"{self.verdict}: {self.leader} and {runner_up}: {numbers}"
        if self.cheapest is not None:
            line += f"; the cheapest method left is {self.cheapest}"
        return line

    def refuse_broken(self) -> None:
        """Raise an error if the choice cannot be trusted.

        The command line calls this after it has printed the result, so that its exit code is right.

        Raises:
            BrokenRunError: The leader's evaluation is broken, or nothing was asked.
        """
        if self.answers == 0:
            advice = f"resume with --resume {self.run.name} and a higher limit"
            raise BrokenRunError(f"nothing was evaluated: {self.stopped}; {advice}")
        leader = self.rows[0]
        if leader.evaluation is not None:
            refuse_broken(leader.evaluation, str(leader.run))

    def table(self) -> ResultTable:
        """Return a row for each method, with the statement and the notes below."""
        column_names = (
            "method",
            "questions",
            "score",
            "minus leader",
            "calls",
            "tokens",
            "US$",
            "seconds",
            "dropped out",
        )
        smoke_test = "" if self.comparable else " (smoke test, not comparable)"
        title = f"methods on {self.benchmark}, LM {self.lm}{smoke_test}"
        lines = [_table_line(row) for row in self.rows]
        return ResultTable(title, column_names, lines, self._lines_below())

    def _lines_below(self) -> list[str]:
        """Return the lines below the table."""
        share = self.answers / self.all_answers
        totals = usage_totals(self.usage)
        lines = [
            self.statement(),
            f"scored {self.answers:,} of {self.all_answers:,} answers ({share:.0%}),"
            f" with {totals['calls']:,.0f} calls",
            "calls, tokens, US$ and seconds are means per question",
        ]
        if self.difference.warning is not None:
            lines.append(self.difference.warning)
        lines.extend(self.notes)
        for row in self.rows[1:]:
            if row.broken is not None:
                lines.append(f"broken run: {row.program}: {row.broken}")
        if self.stopped is not None:
            lines.append(f"stopped by a limit: {self.stopped}; to resume: --resume {self.run.name}")
        return lines

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `mempiler choose --json` prints."""
        return {
            "winner": self.winner,
            "leader": self.leader,
            "verdict": self.verdict,
            "difference": self.difference.to_dict(),
            "cheapest": self.cheapest,
            "programs": [row.to_dict() for row in self.rows],
            "benchmark": self.benchmark,
            "lm": self.lm,
            "comparable": self.comparable,
            "questions": self.question_count,
            "answers": self.answers,
            "all_answers": self.all_answers,
            "usage": dict(self.usage),
            "stopped": self.stopped,
            "notes": list(self.notes),
            "run": str(self.run),
            "run_id": self.run_id,
        }


def _dollars(row: ChoiceRow) -> float | None:
    """Return the US dollars of a question; None if they are not known."""
    return None if row.usage is None else row.usage.usd


def _tokens(row: ChoiceRow) -> float | None:
    """Return the tokens of a question; None if there was none."""
    return None if row.usage is None else row.usage.tokens


def _table_line(row: ChoiceRow) -> list[str]:
    """Return the cells of a method."""
    usage_cells = ["-", "-", "-", "-"]
    usage = row.usage
    if usage is not None:
        usage_cells = [
            f"{usage.calls:,.1f}",
            f"{usage.tokens:,.0f}",
            format_estimate(usage.usd, form="{:.5f}"),
            f"{usage.seconds:.2f}",
        ]
    dropout = "-"
    if row.dropout is not None:
        dropout = f"round {row.dropout.round}: {row.dropout.reason}"
    return [
        row.program,
        str(row.questions),
        format_estimate(row.score, row.interval),
        _difference_cell(row.difference),
        *usage_cells,
        dropout,
    ]


def _difference_cell(difference: Difference | None) -> str:
    """Return the score minus that of the leader, with its interval; "-" for the leader itself."""
    if difference is None or difference.n == 0:
        return "-"
    return format_estimate(difference.mean, difference.interval, form="{:+.3f}")
