"""How lenient a judge is: the share of labelled answers of each kind that it accepts.

A judge that accepts vague answers raises every score that it gives (snap-research/locomo#23). The
labelled answers that are bundled are our own: 17 questions with four answers each, short facts in
English.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from pydantic import computed_field

from ..errors import UserError
from ..reading.failures import concerns_prompt
from ..records import Record
from .catalog import benchmark_class
from .dataset import raise_on_fatal
from .json_lines import json_rows
from .judge import AnyJudge, Judge, Verdict, ask_all
from .samples import sample

Kind = Literal["right", "paraphrased-right", "vague-wrong", "specific-wrong"]
KINDS: tuple[Kind, ...] = get_args(Kind)
RIGHT_KINDS: tuple[Kind, ...] = ("right", "paraphrased-right")
WRONG_KINDS: tuple[Kind, ...] = ("vague-wrong", "specific-wrong")


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
    """Answers on which its reply could not be read, or its prompt was refused; in no rate."""

    @computed_field
    @property
    def rate(self) -> float | None:
        """Return the share of the judged answers that were accepted; None where none was judged."""
        num_judged = self.n - self.unreadable
        return self.accepted / num_judged if num_judged else None


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
    """Return the class of the judge of short answers of a benchmark; `Judge` if None.

    Raises:
        UserError: No metric of the benchmark asks a judge that is given a question, its gold answer
            and an answer.
    """
    if benchmark is None:
        return Judge
    for make_scorer in benchmark_class(benchmark).metrics.values():
        for judge_class in make_scorer().required_judges.values():
            if issubclass(judge_class, Judge):
                return judge_class
    raise UserError(
        f"{benchmark}: no metric of it asks a judge of short answers; leave --benchmark out"
    )


def read_labelled(path: str | Path | None = None) -> tuple[LabelledAnswer, ...]:
    """Read labelled answers: the bundled ones, or a JSON-lines file with the same four fields.

    Raises:
        DataError: A line is not of this form; the message names it.
    """
    if path is None:
        with sample("judge_check.jsonl") as file:
            return read_labelled(file)

    file = Path(path)
    rows = json_rows(file, LabelledAnswer, raise_on_fatal(file))
    return tuple(row for _, _, row in rows)


def check_judge(
    judge: AnyJudge, labelled: Sequence[LabelledAnswer], threads: int = 8
) -> JudgeReport:
    """Let a judge judge labelled answers.

    Args:
        judge: The judge.
        labelled: The answers.
        threads: How many are judged at once.

    Raises:
        LMError: The judge's endpoint failed.
    """
    judged_answers = ask_all(lambda answer: _judge(judge, answer), labelled, threads)
    counts_by_kind: dict[Kind, Accepted] = {}
    for kind in KINDS:
        counts_by_kind[kind] = _count_accepted(judged_answers, [kind])
    return JudgeReport(
        judge_hash=judge.hash,
        kinds=counts_by_kind,
        right=_count_accepted(judged_answers, RIGHT_KINDS),
        wrong=_count_accepted(judged_answers, WRONG_KINDS),
    )


class _JudgedAnswer(NamedTuple):
    """What a judge made of a labelled answer."""

    kind: Kind
    is_accepted: bool | None
    """None where its reply could not be read, or its prompt was refused."""


def _judge(judge: AnyJudge, answer: LabelledAnswer) -> _JudgedAnswer:
    """Judge one answer; a failure that concerns only this prompt counts as an unreadable verdict.

    Any other failure is raised.
    """
    try:
        verdict: Verdict = judge(answer.question, answer.gold_answer, answer.answer)
    except Exception as error:
        if not concerns_prompt(error):
            raise
        return _JudgedAnswer(answer.kind, is_accepted=None)
    return _JudgedAnswer(answer.kind, verdict.correct)


def _count_accepted(answers: Sequence[_JudgedAnswer], kinds: Collection[Kind]) -> Accepted:
    """Count what a judge did with the answers of some kinds."""
    results = [answer.is_accepted for answer in answers if answer.kind in kinds]
    return Accepted(
        n=len(results),
        accepted=results.count(True),
        unreadable=results.count(None),
    )
