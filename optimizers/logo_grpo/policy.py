"""Scores a policy: it writes the memories of held-out users, and questions about them are answered.

Greedy and sampled decoding are two policies of one model: a model can be sharper without being better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import dspy

from ...programs.call_recorder import PredictorCall
from ...programs.program import MemoryProgram
from ...records import History, estimate_tokens
from .reward import Metric, answer
from .rollout import Rollout, roll_out, run_parallel, single_attempt


@dataclass(frozen=True)
class CompletionStats:
    """What some calls of writing predictors amounted to."""

    completions: int
    malformed: int
    refused: int
    """Operations that code refused."""
    tokens: int
    """Tokens generated."""

    @property
    def format_failures(self) -> float:
        """Share of completions that could not be read."""
        return self.malformed / self.completions if self.completions else 0.0

    @classmethod
    def of(cls, calls: Sequence[PredictorCall]) -> CompletionStats:
        """Counts calls; a completion that another one had to follow is malformed too."""
        made = [completion for call in calls for completion in call.completions]
        bad = sum(len(call.completions) - (call.error is None) for call in calls if call.completions)
        return cls(len(made), bad, sum(call.rejected_operations for call in calls), sum(_length(each) for each in made))


@dataclass(frozen=True)
class PolicyScore:
    """Scores of a policy."""

    scores: tuple[float, ...]
    counts: CompletionStats

    @property
    def score(self) -> float:
        """Mean score."""
        return sum(self.scores) / len(self.scores) if self.scores else 0.0


def by_history(examples: Sequence[dspy.Example]) -> list[tuple[History, list[dspy.Example]]]:
    """Questions by the history they are about, in order of first appearance."""
    found: dict[History, list[dspy.Example]] = {}
    for example in examples:
        found.setdefault(example.history, []).append(example)
    return list(found.items())


def score_policy(
    program: MemoryProgram,
    examples: Sequence[dspy.Example],
    metric: Metric,
    lm: Any,
    temperature: float = 0.0,
    name: str = "score",
    threads: int = 32,
    reader: Any = None,
    samples: int = 1,
) -> PolicyScore:
    """Writes every history `samples` times and asks all its questions, whose scores are the mean over them.

    `lm` writes, without a cache, seeded by the name and the history's id; the reader answers, or `lm` at temperature 0.
    """
    writing = lm.copy(temperature=temperature, cache=False)
    reading = reader if reader is not None else lm.copy(temperature=0.0, cache=False)
    parts = by_history(examples)

    def one(history: History, asked: list[dspy.Example], n: int) -> tuple[Rollout, list[float]]:
        with dspy.context(lm=writing):
            taken = roll_out(program.method.writer, history, f"{name}/{history.id}" + (f"/{n}" if n else ""))
        with dspy.context(lm=reading):
            return taken, list(answer(program, history, taken.memory, asked, metric).scores)

    with dspy.context(adapter=single_attempt(program), trace=None, disable_history=True):
        found = run_parallel([lambda part=part, n=n: one(*part, n) for part in parts for n in range(samples)], threads)
    counts = CompletionStats.of([call for taken, _ in found for call in taken.calls])
    again = [[scores for _, scores in found[n : n + samples]] for n in range(0, len(found), samples)]
    return PolicyScore(
        tuple(fmean(each) for many in again for each in zip(*many, strict=True)),
        counts,
    )


def _length(completion: Any) -> int:
    ids = getattr(completion.sample, "completion_ids", None)
    return estimate_tokens(completion.text) if ids is None else len(ids)
