"""How lenient a judge is, and how far it agrees with people.

    labelled answers ── check_judge(judge) ──> accept rate per kind of answer, the vague ones among them
    human,judge rows ── read_agreement ──> matrix, share of agreement, Cohen's kappa

A judge that accepts vague answers raises every score that it gives (snap-research/locomo#23); with the rate beside the
score a reader can tell. The labelled answers that are bundled are our own: 17 questions with four answers each.

Limits: short facts in English, one call per answer; a judge may do better here than on long answers.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dspy.utils.exceptions import AdapterParseError
from pydantic import ValidationError

from ..errors import DataError, UserError
from ..records import Record
from .catalog import benchmark_class
from .dataset import refuse_fatal
from .jsonl.benchmark import read_rows
from .judge import AnswerJudge, GenerousJudge, Judge, ask_all
from .samples import sample

Kind = Literal["right", "paraphrased-right", "vague-wrong", "specific-wrong"]
KINDS: tuple[Kind, ...] = ("right", "paraphrased-right", "vague-wrong", "specific-wrong")


class LabelledAnswer(Record):
    """An answer of which we know whether it is right."""

    question: str
    gold_answer: str
    answer: str
    kind: Kind

    @property
    def right(self) -> bool:
        """Whether a judge should accept it."""
        return self.kind.endswith("right")


@dataclass(frozen=True)
class Accepted:
    """What a judge did with the answers of some kinds."""

    n: int
    accepted: int
    unreadable: int
    """Answers on which its reply could not be read; in neither of the rates."""

    @property
    def rate(self) -> float | None:
        """Accepted among those judged; None where none was."""
        judged = self.n - self.unreadable
        return self.accepted / judged if judged else None

    def to_dict(self) -> dict[str, Any]:
        """The counts and the rate as plain JSON values."""
        return {**vars(self), "rate": self.rate}


@dataclass(frozen=True)
class JudgeReport:
    """What a judge did with labelled answers."""

    hash: str
    """Names the judge's prompt."""
    kinds: Mapping[Kind, Accepted]

    @property
    def right(self) -> Accepted:
        """The right answers: its rate should be 1."""
        return self._of("right")

    @property
    def wrong(self) -> Accepted:
        """The wrong answers: its rate is the judge's leniency, and should be 0."""
        return self._of("wrong")

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        kinds = {kind: found.to_dict() for kind, found in self.kinds.items()}
        return {"judge_hash": self.hash, "kinds": kinds, "right": self.right.to_dict(), "wrong": self.wrong.to_dict()}

    def _of(self, end: str) -> Accepted:
        found = [each for kind, each in self.kinds.items() if kind.endswith(end)]
        return Accepted(
            sum(each.n for each in found), sum(each.accepted for each in found), sum(each.unreadable for each in found)
        )


@dataclass(frozen=True)
class Agreement:
    """Judgments of people (rows) against those of a judge (columns)."""

    labels: tuple[str, ...]
    """In the order of their first appearance."""
    counts: Mapping[tuple[str, str], int]
    """How often a person said the first and the judge the second."""

    @property
    def n(self) -> int:
        """How many were judged by both."""
        return sum(self.counts.values())

    @property
    def observed(self) -> float:
        """The share on which both agree."""
        return sum(self.counts.get((label, label), 0) for label in self.labels) / self.n

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa (1960): agreement beyond that of chance; None where chance alone would always agree."""
        humans, judges = Counter[str](), Counter[str]()
        for (human, judge), count in self.counts.items():
            humans[human] += count
            judges[judge] += count
        chance = sum(humans[label] * judges[label] for label in self.labels)
        agreed = sum(self.counts.get((label, label), 0) for label in self.labels)
        # Whole numbers up to the last step: (observed - chance) / (1 - chance) with both sides times n * n.
        return None if chance == self.n**2 else (agreed * self.n - chance) / (self.n**2 - chance)

    def to_dict(self) -> dict[str, Any]:
        """The matrix by human label, then judge label, and the figures, as plain JSON values."""
        matrix = {row: {column: self.counts.get((row, column), 0) for column in self.labels} for row in self.labels}
        return {"n": self.n, "matrix": matrix, "agreement": self.observed, "kappa": self.kappa}


def judge_of(benchmark: str | None) -> type[Any]:
    """The class of the judge of answers of a benchmark; ours if None.

    Raises:
        UserError: No metric of the benchmark asks a judge that is given a question, its gold answer and an answer.
    """
    if benchmark is None:
        return Judge
    for make in benchmark_class(benchmark).metrics.values():
        for kind in make().asked.values():
            if issubclass(kind, Judge | GenerousJudge):
                return kind
    raise UserError(f"{benchmark}: no metric of it asks a judge of short answers; leave --on out")


def read_labelled(path: str | Path | None = None) -> tuple[LabelledAnswer, ...]:
    """Reads labelled answers: the bundled ones, or a JSON-lines file with the same four fields.

    Raises:
        DataError: A line is not of this form; the message names it.
    """
    if path is None:
        with sample("judge_check.jsonl") as file:
            return read_labelled(file)
    path, found = Path(path), []
    for line, row in read_rows(path, refuse_fatal(path)):
        try:
            found.append(LabelledAnswer.model_validate(row))
        except ValidationError as error:
            first = error.errors()[0]
            raise DataError(f"{path}: line {line}, {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return tuple(found)


def check_judge(judge: AnswerJudge, labelled: Sequence[LabelledAnswer], threads: int = 8) -> JudgeReport:
    """Has a judge judge labelled answers.

    Args:
        judge: The judge.
        labelled: The answers.
        threads: Answers in flight.

    Raises:
        LMError: The judge's endpoint failed.
    """

    def accepts(each: LabelledAnswer) -> bool | None:
        try:
            return judge(each.question, each.gold_answer, each.answer).correct
        except AdapterParseError:
            return None

    verdicts = ask_all(accepts, labelled, threads)
    by_kind: dict[Kind, list[bool | None]] = {
        kind: [said for each, said in zip(labelled, verdicts, strict=True) if each.kind == kind] for kind in KINDS
    }
    return JudgeReport(
        judge.hash, {kind: Accepted(len(said), said.count(True), said.count(None)) for kind, said in by_kind.items()}
    )


def read_agreement(path: str | Path) -> Agreement:
    """Reads a CSV file with the columns `human` and `judge`, one judgment of both a line.

    Labels are any words, e.g. A, tie, B or right, wrong; blanks around them do not count. Other columns are not read.

    Raises:
        DataError: The file is missing, is no UTF-8 text, has no such columns or no rows, or a label is empty; the
            message names the line.
    """
    path = Path(path)
    counts: Counter[tuple[str, str]] = Counter()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, skipinitialspace=True)
            for column in ("human", "judge"):
                if column not in (rows.fieldnames or ()):
                    raise DataError(f"{path}: line 1: no column {column!r}; the first line names human,judge")
            for row in rows:
                for column in ("human", "judge"):
                    if not (row[column] or "").strip():
                        raise DataError(f"{path}: line {rows.line_num}: {column!r} is empty; every line needs both")
                counts[row["human"].strip(), row["judge"].strip()] += 1
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as a CSV file: {error}") from error
    if not counts:
        raise DataError(f"{path}: holds no judgments; one line human,judge for each")
    return Agreement(tuple(dict.fromkeys(label for pair in counts for label in pair)), counts)
