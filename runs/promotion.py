"""Decide whether a compiled program replaces the original one: the promotion.

A compile starts from a program, the original, and its optimizer makes a changed one, the compiled
program. Both answer the dev questions, which the optimizer has not seen. The compiled program is
*promoted*, that is, saved as the result of the compile, if it is better there: if the verdict of
the paired difference (`Difference.verdict`) is "better". Otherwise the original is kept, and
`Promotion.rejection_reason` says why. `--force` promotes without this condition. The test questions
have no say.

    promotion = decide_promotion(original_on_dev, compiled_on_dev)
    kept = original if promotion.rejection_reason else compiled

When a compiled program is registered under an alias, `publish.gate` asks the same of it and of the
program that the alias names (`rejection_reason`).

Scoring on dev and test follows the optimizer, so a part of the run's limits is reserved for it
before the optimizer begins (`estimate_remaining_usage`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dspy

from ..data.dataset import Split
from ..engines.usage import Usage
from .results import Evaluation, difference
from .statistics import MIN_N, Difference

PROMPT_GROWTH = 2.0
"""How many times longer the prompts of a compiled program may be than those of the original.

So much is reserved for scoring it.
"""


@dataclass(frozen=True)
class Promotion:
    """Whether a compiled program is promoted, and why not."""

    gain: Difference | None
    """The compiled program minus the original on the dev questions; None if they were not compared.

    They are compared only if both programs answered every question.
    """
    rejection_reason: str | None
    """Why the original program is kept, in one sentence; None if the compiled one is promoted."""


def decide_promotion(
    original: Evaluation,
    compiled: Evaluation | None,
    limit_hit: str | None = None,
    min_n: int = MIN_N,
) -> Promotion:
    """Decide whether a compiled program is promoted.

    Args:
        original: The original program on the dev questions.
        compiled: The compiled program on the dev questions; None if it could not be scored.
        limit_hit: The limit of the run that was reached, which the reason names; None if none was.
        min_n: With fewer questions nothing is promoted.
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

    # A gain has no reason against it: then `rejection_reason` returns None.
    gain = difference(original.headline_rows, compiled.headline_rows, min_n)
    return Promotion(gain, rejection_reason(gain))


def rejection_reason(difference: Difference, baseline: str = "") -> str | None:
    """Return why a candidate is rejected by its scores on the dev questions; None if it is better.

    Args:
        difference: The scores of the candidate minus those of the program that it would replace.
        baseline: The name of that program in the sentence; "" leaves it out.
    """
    if difference.verdict == "better":
        return None

    over = f" over {baseline}" if baseline else ""
    numbers = f"{difference}; scope: {difference.scope}"
    if difference.verdict == "too few to tell":
        min_n = difference.min_n
        return f"Too few dev questions to tell a gain{over} ({numbers}; --min-n is {min_n})"
    return f"No significant gain{over} on dev ({numbers})"


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
