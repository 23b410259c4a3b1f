"""How lenient a judge is: the share of labelled answers of each kind that it accepts, the vague ones among them.

A judge that accepts vague answers raises every score that it gives (snap-research/locomo#23). The labelled answers that
are bundled are our own: 17 questions with four answers each, short facts in English.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import computed_field

from ..errors import UserError
from ..reading.failures import concerns_prompt
from ..records import Record
from .catalog import benchmark_class
from .dataset import raise_on_fatal
from .judge import AnyJudge, Judge, ask_all
from .json_lines import json_rows
from .samples import sample

Kind = Literal["right", "paraphrased-right", "vague-wrong", "specific-wrong"]
KINDS: tuple[Kind, ...] = ("right", "paraphrased-right", "vague-wrong", "specific-wrong")


class LabelledAnswer(Record):
    """An answer of which we know whether it is right."""

    question: str
    gold_answer: str
    answer: str
    kind: Kind


class Accepted(Record):
    """What a judge did with the answers of some kinds."""

    n: int
    accepted: int
    unreadable: int
    """Answers on which its reply could not be read, or its prompt was refused; in neither of the rates."""

    @computed_field
    @property
    def rate(self) -> float | None:
        """Accepted among those judged; None where none was."""
        judged = self.n - self.unreadable
        return self.accepted / judged if judged else None


class JudgeReport(Record):
    """What a judge did with labelled answers."""

    judge_hash: str
    """Names the judge's prompt."""
    kinds: dict[Kind, Accepted]
    right: Accepted
    """The right answers: its rate should be 1."""
    wrong: Accepted
    """The wrong answers: its rate is the judge's leniency, and should be 0."""


def judge_of(benchmark: str | None) -> type[Judge]:
    """The class of the judge of answers of a benchmark; ours if None.

    Raises:
        UserError: No metric of the benchmark asks a judge that is given a question, its gold answer and an answer.
    """
    if benchmark is None:
        return Judge
    for make in benchmark_class(benchmark).metrics.values():
        for kind in make().required_judges.values():
            if issubclass(kind, Judge):
                return kind
    raise UserError(f"{benchmark}: no metric of it asks a judge of short answers; leave --benchmark out")


def read_labelled(path: str | Path | None = None) -> tuple[LabelledAnswer, ...]:
    """Reads labelled answers: the bundled ones, or a JSON-lines file with the same four fields.

    Raises:
        DataError: A line is not of this form; the message names it.
    """
    if path is None:
        with sample("judge_check.jsonl") as file:
            return read_labelled(file)
    path = Path(path)
    return tuple(row for _, _, row in json_rows(path, LabelledAnswer, raise_on_fatal(path)))


def check_judge(judge: AnyJudge, labelled: Sequence[LabelledAnswer], threads: int = 8) -> JudgeReport:
    """Has a judge judge labelled answers, so many at once.

    Raises:
        LMError: The judge's endpoint failed.
    """

    def accepts(each: LabelledAnswer) -> bool | None:
        try:
            return judge(each.question, each.gold_answer, each.answer).correct
        except Exception as error:
            if not concerns_prompt(error):
                raise
            return None

    verdicts = list(zip(labelled, ask_all(accepts, labelled, threads), strict=True))

    def accepted(*kinds: Kind) -> Accepted:
        said = [verdict for each, verdict in verdicts if each.kind in kinds]
        return Accepted(n=len(said), accepted=said.count(True), unreadable=said.count(None))

    found: dict[Kind, Accepted] = {kind: accepted(kind) for kind in KINDS}
    return JudgeReport(judge_hash=judge.hash, kinds=found, right=accepted(*KINDS[:2]), wrong=accepted(*KINDS[2:]))
