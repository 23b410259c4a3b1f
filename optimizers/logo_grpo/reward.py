r"""Rewards: how good a written memory is, by the answers it gives and by its length.

    c     compression excess    max(0, |M| - 0.7 |S|) / |S|
    R     of a rollout          mean score of all answers - lambda c               "trajectory"
    R_s   of session s          mean score of the answers about session s          "session"
                                - lambda c
          or from s on          mean of R_s, R_s+1, ..., R_last                    "cumulative"

|M| is the number of words of the memory M at the end of the rollout, |S| that of all sessions
written by then. lambda is the compression penalty, 0.3 in the paper. The rest is the released
code's: scores at the end and by session, the threshold 0.7, and words as `\b\w+\b`.

Faults of a completion are not part of its reward: that it could not be read, or that code refused
one of its operations. Such a completion changes nothing in the memory, and as released it costs
nothing else. But then a model that writes nothing readable scores like one that had nothing to
write. So each kind of fault may have a term of its own in the advantage, which is normalised
separately (`engines.local.loss.subtract_faults`): that is ours, and off unless it is set.

Example:
    >>> from mempiler.optimizers.logo_grpo.reward import compression_excess
    >>> compression_excess(memory_words=90, session_words=100, threshold=0.7)
    0.2
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Literal

import dspy
from pydantic import NonNegativeFloat, PositiveInt
from pydantic.dataclasses import dataclass as validated_dataclass

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
"""Scores an answer, from 0 to 1."""
SessionReward = Literal["session", "cumulative", "trajectory"]
"""Which of the rewards above the completions of a session get."""


@validated_dataclass(frozen=True, config={"extra": "forbid"})
class RewardSettings:
    """What a reward is made of."""

    metric: Literal["benchmark", "released"] = "benchmark"
    """The benchmark's own metric, or the F1 of the released code (`released_f1`)."""
    compression: NonNegativeFloat = 0.3
    """lambda, the compression penalty; the released scripts have 0.2 and 0.3."""
    threshold: NonNegativeFloat = 0.7
    """The length that costs a memory nothing, as a share of the words of the sessions."""
    format_penalty: NonNegativeFloat = 0.0
    """The weight of unreadable completions in the advantage; 0, as released, has no such term."""
    unknown_id_penalty: NonNegativeFloat = 0.0
    """The weight of completions of which code refused an operation, e.g. on an unknown id."""
    questions: PositiveInt = 64
    """The most questions after a whole rollout; all members of a group are asked the same."""
    local_questions: PositiveInt = 16
    """The most questions after the rerun of a session."""

    @property
    def fault_weights(self) -> dict[str, float]:
        """The weights of the kinds of fault that cost something, by fields of `Faults`."""
        weights: dict[str, float] = {}
        if self.format_penalty > 0:
            weights["unreadable"] = self.format_penalty
        if self.unknown_id_penalty > 0:
            weights["refused"] = self.unknown_id_penalty
        return weights


@dataclass(frozen=True)
class Faults:
    """What is wrong with a completion."""

    unreadable: bool = False
    refused: bool = False
    """Whether code refused one of its operations."""


FLAWLESS = Faults()


@dataclass(frozen=True)
class QuestionScores:
    """The questions that a memory was asked, and the score of each answer."""

    examples: tuple[dspy.Example, ...]
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean score; 0 without questions, as in the released code."""
        return sum(self.scores) / len(self.scores) if self.scores else 0.0

    def about_session(self, turn_ids: Iterable[str], is_last: bool = False) -> QuestionScores:
        """Return the questions about one session: those with evidence in its turns.

        Args:
            turn_ids: The turns of the session.
            is_last: Whether it is the last session, which questions without any evidence count for.
        """
        session_turn_ids = set(turn_ids)
        examples: list[dspy.Example] = []
        scores: list[float] = []
        for example, score in zip(self.examples, self.scores, strict=True):
            evidence_ids = set(example.get("evidence_ids") or ())
            is_about_session = bool(evidence_ids & session_turn_ids)
            if is_about_session or (is_last and not evidence_ids):
                examples.append(example)
                scores.append(score)
        return QuestionScores(tuple(examples), tuple(scores))


def sample_questions(examples: Sequence[dspy.Example], limit: int, seed: str) -> list[dspy.Example]:
    """Return at most `limit` of the questions, in order; the same ones for the same seed."""
    if len(examples) <= limit:
        return list(examples)
    places = random.Random(seed).sample(range(len(examples)), limit)
    return [examples[place] for place in sorted(places)]


def score_answers(
    program: MemoryProgram,
    history: History,
    memory: Memory,
    examples: Sequence[dspy.Example],
    metric: Metric,
) -> QuestionScores:
    """Answer questions about a history from its memory, and score the answers.

    DSPy's current language model answers the questions. An answer that cannot be read scores 0,
    and so does a question whose prompt the provider refuses.

    Args:
        program: The program that answers.
        history: The history that the questions are about.
        memory: What the program remembers of the history, finalized.
        examples: The questions, with their gold answers.
        metric: Scores an answer; it may ask a judge, whose answer may be unreadable, too.

    Raises:
        Exception: Any other error, such as that of an unreachable endpoint.
    """
    calls = [
        partial(_score_answer, program, history, memory, example, metric) for example in examples
    ]
    scores = gather(calls)
    return QuestionScores(tuple(examples), tuple(scores))


def _score_answer(
    program: MemoryProgram,
    history: History,
    memory: Memory,
    example: dspy.Example,
    metric: Metric,
) -> float:
    """Ask one question, and return the score of the answer.

    A question counts as wrong, and is recorded as a failure, if the error concerns its prompt
    alone: the answer cannot be read, or the prompt is refused. Other questions may still succeed.

    Raises:
        Exception: Any other error, such as that of an unreachable endpoint.
    """
    try:
        prediction = program.answer(memory, program.query_of(example, history))
        return float(metric(example, prediction))
    except Exception as error:
        if not concerns_prompt(error):
            raise
        # Not all questions have an id; their text then tells which one failed.
        failed_question = str(example.get("id") or example.question)
        record_failure(failure_of(failed_question, error))
        return 0.0


def rollout_reward(answers: QuestionScores, rollout: Rollout, settings: RewardSettings) -> float:
    """Return the reward of a rollout: the mean score of its answers, less a penalty for its length.

    The penalty is for how much longer the memory is than it may be (`compression_excess`), times
    `settings.compression`. In the paper's symbols this is R = score - lambda c.
    """
    session_words = 0
    for item in rollout.history.items:
        for turn in item.turns:
            session_words += count_words(turn.content)
    memory_words = count_memory_words(rollout.memory)
    excess = compression_excess(memory_words, session_words, settings.threshold)
    length_penalty = settings.compression * excess
    return answers.mean - length_penalty


def session_rewards(
    answers: QuestionScores,
    rollout: Rollout,
    settings: RewardSettings,
    kind: SessionReward = "session",
) -> list[float]:
    """Return the reward of each session of a rollout.

    Args:
        answers: The questions about the memory at the end of the rollout, and their scores.
        rollout: The rollout.
        settings: What a reward is made of.
        kind: Which reward a session gets. All have the same penalty for the length of the memory at
            the end.
            "trajectory": the mean score of all answers, the same for every session.
            "session": the mean score of the answers about this session.
            "cumulative": the mean of the "session" rewards of this session and all later ones.
    """
    if kind == "trajectory":
        return [rollout_reward(answers, rollout, settings)] * len(rollout.sessions)

    rewards: list[float] = []
    last_number = len(rollout.sessions) - 1
    for number, session in enumerate(rollout.sessions):
        turn_ids = [turn.id for turn in session.item.turns]
        is_last = number == last_number
        answers_about_session = answers.about_session(turn_ids, is_last)
        rewards.append(rollout_reward(answers_about_session, rollout, settings))

    if kind == "cumulative":
        return [fmean(rewards[number:]) for number in range(len(rewards))]
    return rewards


def completion_faults(call: PredictorCall, is_last: bool) -> Faults:
    """Return what is wrong with one completion of a call.

    Args:
        call: The call. Its `error` and its refused operations are those of its last completion.
        is_last: Whether the completion is the last one of the call.
    """
    if not is_last:
        # A model is asked once more only if its completion could not be read.
        return Faults(unreadable=True)
    return Faults(unreadable=call.error is not None, refused=call.rejected_operations > 0)


def fault_penalty(call: PredictorCall, is_last: bool, settings: RewardSettings) -> float:
    """Return what the faults of a completion cost, for trainers other than ours.

    Our trainer has a term for each kind of fault in the advantage (`Group.fault_weights`). Other
    trainers take a single number, so this is subtracted from the reward that they get.

    Args:
        call: The call that the completion answered.
        is_last: Whether it is the last completion of the call; others were unreadable.
        settings: The settings of rewards, with the cost of each kind of fault.
    """
    faults = completion_faults(call, is_last)
    penalty = 0.0
    if faults.unreadable:
        penalty += settings.format_penalty
    if faults.refused:
        penalty += settings.unknown_id_penalty
    return penalty


def compression_excess(memory_words: int, session_words: int, threshold: float) -> float:
    """Return c: how much longer a memory is than it may be, as a share of the sessions' words.

    Args:
        memory_words: Words of the memory.
        session_words: Words of the sessions; without any, c is 0.
        threshold: The length that costs nothing, as a share of the sessions' words.
    """
    if not session_words:
        return 0.0
    return max(0.0, memory_words - threshold * session_words) / session_words


def released_f1(example: dspy.Example, prediction: dspy.Prediction) -> float:
    """Return the F1 of the released code: distinct common words over the lengths of both answers.

    Repeated words count in the lengths but not in the overlap, so an answer that equals its gold
    answer scores below 1 if it repeats a word. Two empty answers score 1.
    """
    gold_words = squad_words(str(example.answer))
    answer_words = squad_words(str(prediction.get("answer") or ""))
    common_words = set(gold_words) & set(answer_words)
    if not common_words:
        return float(gold_words == answer_words)

    precision = len(common_words) / len(answer_words)
    recall = len(common_words) / len(gold_words)
    return 2 * precision * recall / (precision + recall)
