r"""Rewards: scores of a written memory, by the answers it gives and by its length.

    c = max(0, memory words - .7 session words) / session words
    R = mean score of the answers - lambda c                            lambda = .3
    R_s = mean score of the answers about session s - lambda c          "session": of the calls of that session
          mean of R_s, ..., R_last                                      "cumulative"
          R                                                             "trajectory"

Faults of a completion (it could not be read, or code refused one of its operations) are no part of its reward. Each
kind is a term of its own in the advantage, normalised separately (`engines.local.loss.subtract_faults`).
Subtracted from rewards, one unreadable member would raise the deviation of its whole group, and so shrink what the
others learn from theirs.

Source: Memory-R2's released code (terminal and per-session scores, compression with threshold .7 and words by
`\b\w+\b`); the paper's lambda is .3. A completion that cannot be read changes nothing in the memory, in the released
code as here. That faults may cost something of their own is ours, and off unless it is set (`local:tiny` has it):
without that a model that writes nothing readable scores as one that had nothing to write.

Example:
    >>> from mempiler.optimizers.logo_grpo.reward import compression_excess
    >>> compression_excess(memory_words=90, session_words=100, threshold=0.7)
    0.2
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import dspy
from pydantic import NonNegativeFloat, PositiveInt
from pydantic.dataclasses import dataclass as checked

from ...data.text_metrics import squad_words
from ...memory.memory import Memory
from ...memory.word_count import count_memory_words, count_words
from ...programs.call_recorder import PredictorCall
from ...programs.program import MemoryProgram
from ...programs.recording import failure_of, record_failure
from ...programs.threads import gather
from ...reading.failures import concerns_prompt
from ...records import History
from .rollout import Rollout

Metric = Callable[[dspy.Example, dspy.Prediction], float]
SessionReward = Literal["session", "cumulative", "trajectory"]


@checked(frozen=True, config={"extra": "forbid"})
class RewardSettings:
    """What a reward is made of."""

    metric: Literal["benchmark", "released"] = "benchmark"
    """The benchmark's own metric, or the released code's set-overlap F1 (`released_f1`)."""
    compression: NonNegativeFloat = 0.3
    """lambda; the released scripts use .2 and .3."""
    threshold: NonNegativeFloat = 0.7
    """Share of the sessions' words that a memory may have for free."""
    format_penalty: NonNegativeFloat = 0.0
    """Weight of the advantage's term for completions that cannot be read; 0, as released: no such term."""
    unknown_id_penalty: NonNegativeFloat = 0.0
    """The same for completions of which code refused an operation, e.g. on an id that was not shown."""
    questions: PositiveInt = 64
    """Most questions that a whole trajectory is asked, the same ones for all members of a group."""
    local_questions: PositiveInt = 16
    """Most questions right after one session."""

    @property
    def fault_weights(self) -> dict[str, float]:
        """The weights of faults that cost something, by the names of `Faults`."""
        weights = {"unreadable": self.format_penalty, "refused": self.unknown_id_penalty}
        return {name: weight for name, weight in weights.items() if weight > 0}


@dataclass(frozen=True)
class Faults:
    """What is wrong with a completion."""

    unreadable: bool = False
    refused: bool = False
    """Whether code refused one of its operations."""


FLAWLESS = Faults()


@dataclass(frozen=True)
class QuestionScores:
    """The questions that a memory was asked, with their scores."""

    examples: tuple[dspy.Example, ...]
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean score; 0 without questions, as in the released code."""
        return sum(self.scores) / len(self.scores) if self.scores else 0.0

    def with_evidence_in(self, turns: Iterable[str], last: bool = False) -> QuestionScores:
        """The questions with evidence in some turns; of the last session, those without any evidence, too."""
        own = set(turns)
        kept = [
            (example, score)
            for example, score in zip(self.examples, self.scores, strict=True)
            if (own & set(example.evidence_ids) if example.get("evidence_ids") else last)
        ]
        return QuestionScores(tuple(example for example, _ in kept), tuple(score for _, score in kept))


def chosen(examples: Sequence[dspy.Example], most: int, seed: str) -> list[dspy.Example]:
    """At most so many questions, in order, the same ones for the same seed."""
    if len(examples) <= most:
        return list(examples)
    picked = sorted(random.Random(seed).sample(range(len(examples)), most))
    return [examples[n] for n in picked]


def answer(
    program: MemoryProgram, history: History, memory: Memory, examples: Sequence[dspy.Example], metric: Metric
) -> QuestionScores:
    """Asks a settled memory questions about its history, under the reader's model.

    A question scores 0 if its answer, or that of its metric's judge, cannot be read, or its prompt is refused.
    """

    def one(example: dspy.Example) -> float:
        try:
            return float(metric(example, program.answer(memory, program.query_of(example, history))))
        except Exception as error:
            if not concerns_prompt(error):
                raise
            record_failure(failure_of(str(example.get("id") or example.question), error))
            return 0.0

    return QuestionScores(tuple(examples), tuple(gather([lambda each=each: one(each) for each in examples])))


def reward(answered: QuestionScores, rollout: Rollout, settings: RewardSettings) -> float:
    """R of a rollout: the mean score of what its memory answered minus lambda c."""
    said = sum(count_words(turn.content) for item in rollout.history.items for turn in item.turns)
    return answered.mean - settings.compression * compression_excess(
        count_memory_words(rollout.memory), said, settings.threshold
    )


def session_rewards(
    answered: QuestionScores, rollout: Rollout, settings: RewardSettings, kind: SessionReward = "session"
) -> list[float]:
    """What the calls of each session are rewarded by: the questions about it, these and all later ones, or all."""
    if kind == "trajectory":
        return [reward(answered, rollout, settings)] * len(rollout.sessions)
    last = len(rollout.sessions) - 1
    found = [
        reward(answered.with_evidence_in((turn.id for turn in run.item.turns), n == last), rollout, settings)
        for n, run in enumerate(rollout.sessions)
    ]
    return [fmean(found[n:]) for n in range(len(found))] if kind == "cumulative" else found


def faults_of(call: PredictorCall, last: bool) -> Faults:
    """Return what is wrong with a completion of a call; only an unreadable completion is followed by another one."""
    return Faults(unreadable=not last or call.error is not None, refused=last and call.rejected_operations > 0)


def penalty(call: PredictorCall, last: bool, settings: RewardSettings) -> float:
    """Return what the faults of a completion cost, for trainers elsewhere that take one reward and no further terms."""
    faults = faults_of(call, last)
    return settings.format_penalty * faults.unreadable + settings.unknown_id_penalty * faults.refused


def compression_excess(memory_words: int, session_words: int, threshold: float) -> float:
    """c: by how much a memory is longer than it may be, in parts of the sessions' length; 0 for empty sessions."""
    return max(0.0, memory_words - threshold * session_words) / session_words if session_words else 0.0


def released_f1(example: dspy.Example, prediction: dspy.Prediction) -> float:
    """The released code's F1: words that both have, each once, over the lengths of both lists.

    Repeated words count in the lengths but not in the overlap, so an answer equal to its gold scores below 1 if it
    repeats a word. Nothing against nothing is 1.
    """
    gold, said = squad_words(str(example.answer)), squad_words(str(prediction.get("answer") or ""))
    common = len(set(gold) & set(said))
    if not common:
        return float(gold == said)
    precision, recall = common / len(said), common / len(gold)
    return 2 * precision * recall / (precision + recall)
