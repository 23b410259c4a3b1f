"""Decide whether a compiled program replaces the original one: the promotion.

A compile starts from a program, the original, and its optimizer makes a changed one, the compiled
program. Both answer the dev questions, which the optimizer has not seen. The compiled program is
*promoted*, that is, saved as the result of the compile, in one of two ways:

    better     the verdict of the paired difference there (`Difference.verdict`) is "better"
    cheaper    it is not worse by more than a margin (`non_inferiority`), and takes fewer tokens
               (`token_difference`); open only if the user names a margin

Otherwise the original is kept, and `Promotion.rejection_reason` says why. `--force` promotes
without these conditions. The test questions have no say.

    promotion = decide_promotion(original_on_dev, compiled_on_dev)
    kept = original if promotion.rejection_reason else compiled

When a compiled program is registered under an alias, `publish.gate` asks the same of it and of the
program that the alias names (`judge_candidate`).

Scoring on dev and test follows the optimizer, so a part of the run's limits is reserved for it
before the optimizer begins (`estimate_remaining_usage`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import dspy

from ..data.dataset import Split
from ..engines.usage import Usage
from .non_inferiority import NonInferiority, check_non_inferiority
from .results import Evaluation, pair_rows
from .rows import Row
from .statistics import MIN_N, Difference, compare_paired_scores
from .token_difference import TokenDifference, compare_tokens, tokens_of_questions

PROMPT_GROWTH = 2.0
"""How many times longer the prompts of a compiled program may be than those of the original.

So much is reserved for scoring it.
"""

PromotionBasis = Literal["better", "cheaper"]
"""What a program is promoted for."""


@dataclass(frozen=True)
class DevResults:
    """What a program did on the dev questions, in the order of the questions."""

    scores: Sequence[float]
    groups: Sequence[str]
    """The conversation or user of each question."""
    tokens: Sequence[float]
    """What each question took; empty if it was not recorded."""
    lm: str
    """The name of the model that answered."""

    @classmethod
    def of_rows(cls, evaluation: Evaluation, rows: Sequence[Row]) -> Self:
        """Return what an evaluation says of some of its questions."""
        return cls(
            scores=[row.score for row in rows],
            groups=[row.group for row in rows],
            tokens=tokens_of_questions(evaluation, rows),
            lm=evaluation.lm,
        )


@dataclass(frozen=True)
class Saving:
    """What the dev questions say of a candidate that may be a little worse if it is cheaper."""

    score: NonInferiority
    """Whether it is at most the margin worse."""
    tokens: TokenDifference | None
    """What it takes, minus what the baseline takes; None if that cannot be compared."""
    obstacle: str | None = None
    """Why the tokens cannot be compared, or None."""

    @property
    def is_shown(self) -> bool:
        """Whether it is not worse by more than the margin, and cheaper."""
        return self.score.is_shown and self.tokens is not None and self.tokens.is_lower

    @property
    def statement(self) -> str:
        """What was shown, with the numbers, e.g. for the page of a run."""
        return f"not {self.score} and cheaper: {self.tokens}"

    @property
    def shortfall(self) -> str:
        """What was not shown, with the numbers."""
        if self.tokens is None:
            return f"it may not be cheaper: {self.obstacle}"
        problems: list[str] = []
        if not self.score.is_shown:
            problems.append(f"it may be {self.score}")
        if not self.tokens.is_lower:
            problems.append(f"it may not be cheaper: {self.tokens}")
        return "; ".join(problems)

    def to_dict(self) -> dict[str, Any]:
        """Return the saving as JSON data."""
        return {
            "margin": self.score.margin,
            "lower_bound": self.score.lower_bound,
            "p": self.score.p_value,
            "not_worse": self.score.is_shown,
            "tokens": None if self.tokens is None else self.tokens.to_dict(),
            "obstacle": self.obstacle,
        }


@dataclass(frozen=True)
class Promotion:
    """Whether a compiled program is promoted, and why, or why not."""

    gain: Difference | None
    """The compiled program minus the original on the dev questions; None if they were not compared.

    They are compared only if both programs answered every question.
    """
    rejection_reason: str | None
    """Why the original program is kept, in one sentence; None if the compiled one is promoted."""
    saving: Saving | None = None
    """What was found for the second way; None if no margin was named, or nothing compared."""

    @property
    def basis(self) -> PromotionBasis | None:
        """What the program is promoted for; None if it is not."""
        if self.rejection_reason is not None or self.gain is None:
            return None
        return "better" if self.gain.verdict == "better" else "cheaper"

    @property
    def statement(self) -> str:
        """Why the program is promoted, with the numbers.

        Ask only for that of a promoted program.
        """
        assert self.gain is not None, "a promoted program was compared"
        if self.basis == "better":
            return self.gain.statement
        assert self.saving is not None, "what is not better is promoted for its saving"
        return f"{self.saving.statement}; scores {self.gain.statement}"

    def to_dict(self) -> dict[str, Any]:
        """Return the promotion as JSON data."""
        return {
            "basis": self.basis,
            "difference": None if self.gain is None else self.gain.to_dict(),
            "saving": None if self.saving is None else self.saving.to_dict(),
        }


def decide_promotion(
    original: Evaluation,
    compiled: Evaluation | None,
    limit_hit: str | None = None,
    min_n: int = MIN_N,
    margin: float | None = None,
) -> Promotion:
    """Decide whether a compiled program is promoted.

    Args:
        original: The original program on the dev questions.
        compiled: The compiled program on the dev questions; None if it could not be scored.
        limit_hit: The limit of the run that was reached, which the reason names; None if none was.
        min_n: With fewer questions nothing is promoted.
        margin: How much worse a cheaper program may be; None promotes none for being cheaper.
    """
    if compiled is None:
        reason = f"Nothing was compiled and scored on dev ({limit_hit or 'stopped'})"
        return Promotion(gain=None, rejection_reason=reason)
    if not _is_complete(original) or not _is_complete(compiled):
        cause = limit_hit or "the endpoint failed on some"
        reason = f"Not all dev questions were answered ({cause})"
        return Promotion(gain=None, rejection_reason=reason)
    if compiled.broken:
        reason = f"The compiled program's score is of a broken run ({compiled.breakage})"
        return Promotion(gain=None, rejection_reason=reason)

    pairs = pair_rows(original.headline_rows, compiled.headline_rows)
    baseline = DevResults.of_rows(original, [pair.before for pair in pairs])
    candidate = DevResults.of_rows(compiled, [pair.after for pair in pairs])
    return judge_candidate(candidate, baseline, min_n, margin)


def judge_candidate(
    candidate: DevResults,
    baseline: DevResults,
    min_n: int = MIN_N,
    margin: float | None = None,
    baseline_name: str = "",
) -> Promotion:
    """Decide by the dev questions whether a candidate may replace another program.

    Args:
        candidate: The candidate on the dev questions.
        baseline: The program that it would replace, on the same questions in the same order.
        min_n: With fewer questions nothing is promoted.
        margin: How much worse a cheaper candidate may be; None promotes none for being cheaper.
        baseline_name: The name of that program in the reason; "" leaves it out.
    """
    gain = compare_paired_scores(candidate.scores, baseline.scores, candidate.groups, min_n=min_n)
    saving = None
    if margin is not None:
        saving = _measure_saving(candidate, baseline, min_n, margin, baseline_name)

    if gain.verdict == "better" or (saving is not None and saving.is_shown):
        return Promotion(gain, rejection_reason=None, saving=saving)
    reason = _rejection_reason(gain, saving, baseline_name)
    return Promotion(gain, rejection_reason=reason, saving=saving)


def _measure_saving(
    candidate: DevResults, baseline: DevResults, min_n: int, margin: float, baseline_name: str
) -> Saving:
    """Return whether a candidate is not worse by more than a margin, and cheaper."""
    score = check_non_inferiority(
        candidate.scores, baseline.scores, candidate.groups, margin, min_n
    )
    for name, results in ((baseline_name or "the original", baseline), ("the program", candidate)):
        if results.scores and not results.tokens:
            obstacle = f"{name} keeps no tokens of each dev question; compile it again"
            return Saving(score, tokens=None, obstacle=obstacle)
    if candidate.lm != baseline.lm:
        # A token of one model may cost a hundred times as much as a token of another.
        obstacle = f"tokens of {candidate.lm} and of {baseline.lm} have different prices"
        return Saving(score, tokens=None, obstacle=obstacle)

    tokens = compare_tokens(candidate.tokens, baseline.tokens, candidate.groups)
    return Saving(score, tokens)


def _rejection_reason(gain: Difference, saving: Saving | None, baseline_name: str) -> str:
    """Return why a candidate is rejected by its results on the dev questions.

    Args:
        gain: The scores of the candidate minus those of the program that it would replace.
        saving: What was found for the second way; None if it is closed.
        baseline_name: The name of that program in the sentence; "" leaves it out.
    """
    over = f" over {baseline_name}" if baseline_name else ""
    numbers = f"{gain}; scope: {gain.scope}"
    if gain.verdict == "too few to tell":
        min_n = gain.min_n
        return f"Too few dev questions to tell a gain{over} ({numbers}; --min-n is {min_n})"
    reason = f"No significant gain{over} on dev ({numbers})"
    if saving is not None:
        reason += f"; {saving.shortfall}"
    return reason


def _is_complete(evaluation: Evaluation) -> bool:
    """Return whether every question was asked, and no endpoint failed.

    A question counts as 0 if the endpoint failed. The program would be blamed for that.
    """
    if evaluation.stopped:
        return False
    return not any(
        row.failure is not None and row.failure.kind == "endpoint" for row in evaluation.rows
    )


def estimate_remaining_usage(
    original: Evaluation, spent: Usage, split: Split, writes_memories: bool
) -> Usage:
    """Estimate what the scorings after the optimizer will take, from the first scoring of the run.

    The first scoring was that of the original program on dev. Those to come are the compiled
    program on dev, and both programs on test. Answering grows with the number of questions, writing
    with the number of memories. The compiled program may have longer prompts, so everything but the
    calls is multiplied by `PROMPT_GROWTH`.

    Args:
        original: The first scoring. It says how much of the work was answering, and how much
            writing.
        spent: What the run's guard counted for the first scoring, answering and writing together.
            The limits are compared with such counts, so the estimate is a multiple of them.
        split: The questions.
        writes_memories: Whether the compiled program may write other memories than the original.
            If not, it uses those of the original.
    """
    question_count = len(split.dev) + 2 * len(split.test)
    dev_memories = _count_histories(split.dev)
    test_memories = _count_histories(split.test)
    # The original program has written the memories of dev, and writes those of test. The compiled
    # program writes all of them once more if they are others.
    memory_count = test_memories
    if writes_memories:
        memory_count += dev_memories + test_memories

    remaining = _RemainingWork(
        question_ratio=question_count / max(1, len(original.rows)),
        memory_ratio=memory_count / max(1, dev_memories),
    )
    answering = original.answering_usage
    writing = original.construction or Usage()
    calls_factor = remaining.multiple_of_first(answering=answering.calls, writing=writing.calls)
    tokens_factor = remaining.multiple_of_first(answering=answering.tokens, writing=writing.tokens)
    seconds_factor = remaining.multiple_of_first(
        answering=answering.seconds, writing=writing.seconds
    )
    return Usage(
        calls=spent.calls * calls_factor,
        # Limits count input and output tokens together, so all of them may stand here.
        input_tokens=spent.tokens * PROMPT_GROWTH * tokens_factor,
        cost=spent.cost * PROMPT_GROWTH * tokens_factor,
        seconds=spent.seconds * PROMPT_GROWTH * seconds_factor,
    )


@dataclass(frozen=True)
class _RemainingWork:
    """What is still to be scored, as a multiple of what the first scoring did."""

    question_ratio: float
    """Questions to answer, divided by those of the first scoring."""
    memory_ratio: float
    """Memories to write, divided by those of the first scoring."""

    def multiple_of_first(self, *, answering: float, writing: float) -> float:
        """Return how many times as much as the first scoring the remaining work takes.

        For example, let a quarter of the first scoring have been writing. With 4 times as many
        memories and 2 times as many questions, the factor is 0.25 * 4 + 0.75 * 2 = 2.5.

        Args:
            answering: What answering took in the first scoring, e.g. in calls.
            writing: What writing the memories took, in the same unit.
        """
        writing_share = 0.0
        if writing:
            writing_share = writing / (answering + writing)
        return writing_share * self.memory_ratio + (1 - writing_share) * self.question_ratio


def _count_histories(examples: Sequence[dspy.Example]) -> int:
    """Return the number of histories that the questions are about; each has a memory."""
    return len({example.history.id for example in examples})
