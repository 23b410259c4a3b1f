"""How lenient a judge is: the share of labelled answers of each kind that it accepts, the vague ones among them.

A judge that accepts vague answers raises every score that it gives (snap-research/locomo#23). The labelled answers that
are bundled are our own: 17 questions with four answers each, short facts in English.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dspy.utils.exceptions import AdapterParseError

from ..errors import UserError
from ..records import Record
from .catalog import benchmark_class
from .dataset import refuse_fatal
from .judge import AnswerJudge, GenerousJudge, Judge, ask_all
from .rows import json_rows
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
    path = Path(path)
    return tuple(row for _, _, row in json_rows(path, LabelledAnswer, refuse_fatal(path)))


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
