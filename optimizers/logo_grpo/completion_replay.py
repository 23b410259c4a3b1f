"""Reward completions that were sampled elsewhere, for trainers that run their own sampling.

    completions, in the order of the calls --> writer --> rollout --> questions --> reward

The writer writes the history once more, and each of its calls is answered with the next completion.
Calls beyond the last completion get an empty text, which no adapter can read, so they cost what
unreadable output costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import dspy
from dspy import lm15

from ...engines.metered_lm import MeteredLM
from ...engines.offline.engine import OfflineEngine
from ...errors import UserError
from ...programs.program import MemoryProgram
from ...programs.threads import in_order
from ...records import History
from .reward import (
    Metric,
    RewardSettings,
    fault_penalty,
    rollout_reward,
    sample_questions,
    score_answers,
)
from .rollout import Rollout, roll_out, single_attempt


@dataclass(frozen=True)
class RolloutReward:
    """The reward of a rollout, and what it is made of."""

    value: float
    """R: the mean score of the answers, minus what the length of the memory costs."""
    score: float
    """The mean score of the answers."""
    penalties: tuple[float, ...]
    """What the faults of each call cost, in order."""

    @property
    def reward(self) -> float:
        """The reward of the whole rollout: R minus the mean penalty of its completions."""
        if not self.penalties:
            return self.value
        return self.value - sum(self.penalties) / len(self.penalties)


class ReplayEngine(OfflineEngine):
    """An engine that answers call after call with the next completion, and then with empty texts.

    Args:
        completions: The answers.
    """

    supports_response_schema: ClassVar[bool] = False

    def __init__(self, completions: Sequence[str]) -> None:
        super().__init__()
        self.completions = completions
        self.call_count = 0

    def reply(self, request: lm15.Request) -> str:
        """Return the next completion; calls must come one after another."""
        place = self.call_count
        self.call_count += 1
        return self.completions[place] if place < len(self.completions) else ""


@dataclass(frozen=True)
class ReplayScorer:
    """Writes histories with completions from elsewhere, and rewards the memories."""

    program: MemoryProgram
    metric: Metric
    questions: Callable[[History, int], Sequence[dspy.Example]]
    """Returns what can be asked of a history after so many of its sessions."""
    reader: dspy.BaseLM | None = None
    """The model that answers; tasks that answer by code need none."""
    settings: RewardSettings = field(default_factory=RewardSettings)
    seed: int = 0
    """Chooses the questions where there are too many."""

    def write(self, history: History, lm: dspy.BaseLM) -> Rollout:
        """Write a history, cut to the sessions that are trained, with a model that samples."""
        with self._single_calls_in_order(lm):
            return roll_out(self.program.method.writer, history, "export")

    def replay(self, history: History, completions: Sequence[str]) -> Rollout:
        """Write a history with completions from elsewhere.

        Raises:
            UserError: There are more completions than calls: they are of another program or
                history.
        """
        engine = ReplayEngine(completions)
        lm = MeteredLM(
            "given/completions",
            engine=engine,
            cache=False,
            num_retries=0,
            temperature=0.0,
        )
        rollout = self.write(history, lm)
        if engine.call_count < len(completions):
            raise UserError(
                f"{len(completions)} completions, but the writer of {history.id} asked "
                f"{engine.call_count} times: they are of another program or history; "
                "export it anew"
            )
        return rollout

    def score(self, rollout: Rollout, whole_history: History) -> RolloutReward:
        """Ask questions about the memory of a rollout, and return its reward.

        Args:
            rollout: A rollout of the first sessions of a history.
            whole_history: The history with all of its sessions.
        """
        sessions = len(rollout.history)
        examples = sample_questions(
            self.questions(whole_history, sessions),
            self.settings.questions,
            f"{self.seed} {whole_history.id} {sessions} questions",
        )
        with self._single_calls_in_order(self.reader):
            answers = score_answers(
                self.program, rollout.history, rollout.memory, examples, self.metric
            )
        # A rollout is written without second attempts. So each call has one completion, and that is
        # its last one.
        penalties = [
            fault_penalty(call, is_last=True, settings=self.settings) for call in rollout.calls
        ]
        return RolloutReward(
            value=rollout_reward(answers, rollout, self.settings),
            score=answers.mean,
            penalties=tuple(penalties),
        )

    @contextmanager
    def _single_calls_in_order(self, lm: dspy.BaseLM | None) -> Iterator[None]:
        """Make all calls of the block to `lm`, one after another, and each only once.

        So completions from elsewhere meet the calls that they were sampled for. Without an `lm` the
        block can make no calls.
        """
        # An adapter that does not ask again after an unreadable answer.
        adapter = single_attempt(self.program)
        with (
            in_order(),
            dspy.context(
                lm=lm,
                adapter=adapter,
                trace=None,
                disable_history=True,
                warn_on_type_mismatch=False,
            ),
        ):
            yield
