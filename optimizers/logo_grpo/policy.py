"""Score the model that learns: it writes the memories of held-out users, and is asked about them.

A policy is the model together with its temperature. Greedy decoding (temperature 0) and sampling
are two policies of one model: training can make it sharper without making it better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import dspy

from ...programs.call_recorder import Completion, PredictorCall
from ...programs.program import MemoryProgram
from ...records import History, estimate_tokens
from .groups import SampledTokens
from .reward import Metric, QuestionScores, score_answers
from .rollout import Rollout, roll_out, run_parallel, single_attempt


@dataclass(frozen=True)
class CompletionCounts:
    """Counts of the completions of writing predictors."""

    completions: int = 0
    unreadable: int = 0
    refused_operations: int = 0
    """Operations that code refused."""
    tokens: int = 0
    """Tokens generated."""

    @property
    def format_failures(self) -> float:
        """The share of completions that could not be read; 0 without completions."""
        return self.unreadable / self.completions if self.completions else 0.0


def count_completions(calls: Sequence[PredictorCall]) -> CompletionCounts:
    """Count the completions of calls, and how many of them could not be read."""
    completions = 0
    unreadable = 0
    refused_operations = 0
    tokens = 0
    for call in calls:
        completions += len(call.completions)
        unreadable += _count_unreadable(call)
        refused_operations += call.rejected_operations
        tokens += sum(_token_count(completion) for completion in call.completions)
    return CompletionCounts(completions, unreadable, refused_operations, tokens)


def _count_unreadable(call: PredictorCall) -> int:
    """Return how many completions of a call could not be read.

    A model is asked again only if its completion is unreadable. So all completions but the last one
    are unreadable; the last one is if the call ended with an error.
    """
    if not call.completions or call.error is not None:
        return len(call.completions)
    return len(call.completions) - 1


def _token_count(completion: Completion) -> int:
    """Return the tokens of a completion; an estimate if the engine kept no record of them."""
    tokens: SampledTokens | None = completion.sample
    if tokens is None:
        return estimate_tokens(completion.text)
    return len(tokens.completion_ids)


@dataclass(frozen=True)
class Decoding:
    """How a policy writes."""

    name: str
    """Part of the names of its rollouts, which seed what is sampled."""
    temperature: float = 0.0
    samples: int = 1
    """How often each history is written; a question's score is the mean over them."""


@dataclass(frozen=True)
class PolicyScore:
    """The scores of a policy."""

    scores: tuple[float, ...]
    """The score of each question."""
    counts: CompletionCounts

    @property
    def score(self) -> float:
        """The mean score; 0 without questions."""
        return sum(self.scores) / len(self.scores) if self.scores else 0.0


@dataclass(frozen=True)
class ScoredRollout:
    """A rollout, and how the questions about its memory were answered."""

    rollout: Rollout
    answers: QuestionScores


def questions_by_history(examples: Sequence[dspy.Example]) -> dict[History, list[dspy.Example]]:
    """Return the questions about each history; histories are in order of first appearance."""
    questions: dict[History, list[dspy.Example]] = {}
    for example in examples:
        questions.setdefault(example.history, []).append(example)
    return questions


def score_policy(
    program: MemoryProgram,
    examples: Sequence[dspy.Example],
    metric: Metric,
    lm: dspy.BaseLM,
    decoding: Decoding,
    reader: dspy.BaseLM | None = None,
    threads: int = 32,
) -> PolicyScore:
    """Write every history of the questions, ask all questions about it, and score the answers.

    Args:
        program: The program.
        examples: The questions.
        metric: Scores an answer.
        lm: The model that writes, without a cache.
        decoding: How it writes.
        reader: The model that answers; `lm` at temperature 0 if None.
        threads: Rollouts at the same time.
    """
    writing_lm = lm.copy(temperature=decoding.temperature, cache=False)
    reading_lm = reader if reader is not None else lm.copy(temperature=0.0, cache=False)

    calls: list[Callable[[], ScoredRollout]] = []
    for history, questions in questions_by_history(examples).items():
        for sample in range(decoding.samples):
            # The first sample has the name, and so the draws, that a single one would have.
            suffix = f"/{sample}" if sample else ""
            name = f"{decoding.name}/{history.id}{suffix}"
            calls.append(
                partial(
                    _write_and_ask,
                    program,
                    history,
                    name,
                    questions,
                    metric,
                    writing_lm=writing_lm,
                    reading_lm=reading_lm,
                )
            )
    with dspy.context(adapter=single_attempt(program), trace=None, disable_history=True):
        scored_rollouts = run_parallel(calls, threads)

    scores: list[float] = []
    predictor_calls: list[PredictorCall] = []
    for start in range(0, len(scored_rollouts), decoding.samples):
        samples = scored_rollouts[start : start + decoding.samples]
        scores.extend(_mean_scores([sample.answers for sample in samples]))
        for sample in samples:
            predictor_calls.extend(sample.rollout.calls)
    return PolicyScore(tuple(scores), count_completions(predictor_calls))


def _write_and_ask(
    program: MemoryProgram,
    history: History,
    name: str,
    questions: Sequence[dspy.Example],
    metric: Metric,
    writing_lm: dspy.BaseLM,
    reading_lm: dspy.BaseLM,
) -> ScoredRollout:
    """Write one history with one model, and ask another one the questions about it."""
    with dspy.context(lm=writing_lm):
        rollout = roll_out(program.method.writer, history, name)
    with dspy.context(lm=reading_lm):
        answers = score_answers(program, history, rollout.memory, questions, metric)
    return ScoredRollout(rollout, answers)


def _mean_scores(samples: Sequence[QuestionScores]) -> list[float]:
    """Return the mean score of each question over the samples of its history."""
    scores_by_question = zip(*(sample.scores for sample in samples), strict=True)
    return [fmean(scores) for scores in scores_by_question]
