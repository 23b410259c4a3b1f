"""Replays given completions as rollouts and scores them, for trainers that sample elsewhere.

    completions ── in the order of the calls ──> writer ──> rollout ──> questions ──> reward

Where completions end before the calls do, the rest is empty, which no adapter can read, so that it costs what
unreadable output costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import dspy
from dspy import lm15

from ...engines.metered_lm import MeteredLM
from ...engines.offline.engine import OfflineEngine
from ...errors import UserError
from ...programs.program import MemoryProgram
from ...programs.threads import in_order
from ...records import History
from .reward import Metric, RewardSettings, answer, chosen, penalty, reward
from .rollout import Rollout, roll_out, single_attempt


@dataclass(frozen=True)
class RolloutReward:
    """The reward of a rollout, and what it is made of."""

    value: float
    """R: the mean score of the answers less what the memory's length costs."""
    score: float
    """Mean score of the answers."""
    penalties: tuple[float, ...]
    """Of each call, in order."""

    @property
    def reward(self) -> float:
        """Of the whole rollout: R less the mean penalty of its completions."""
        return self.value - (sum(self.penalties) / len(self.penalties) if self.penalties else 0.0)


class CompletionsEngine(OfflineEngine):
    """An engine whose answers are given, in the order of the calls; empty text comes after them."""

    supports_response_schema: ClassVar[bool] = False

    def __init__(self, said: Sequence[str]) -> None:
        super().__init__()
        self.said, self.asked = said, 0

    def reply(self, request: lm15.Request) -> str:
        """Gives the next answer; calls come one after another."""
        self.asked += 1
        return self.said[self.asked - 1] if self.asked <= len(self.said) else ""


@dataclass(frozen=True)
class CompletionsScorer:
    """Writes a history with given completions, and scores the memory."""

    program: MemoryProgram
    metric: Metric
    questions: Callable[[History, int], Sequence[dspy.Example]]
    """What can be asked of a history after so many of its sessions."""
    reader: Any = None
    """Answers; tasks that answer by code ask none."""
    settings: RewardSettings = field(default_factory=RewardSettings)
    seed: int = 0
    """Chooses the questions where there are too many."""

    def write(self, past: History, lm: Any) -> Rollout:
        """The sessions of a history up to the horizon, written by a model that samples."""
        with self._context(lm):
            return roll_out(self.program.method.writer, past, "export")

    def replay(self, past: History, said: Sequence[str]) -> Rollout:
        """A history written with given completions.

        Raises:
            UserError: There are more of them than calls: they are of another program or history.
        """
        engine = CompletionsEngine(said)
        lm = MeteredLM("given/completions", engine=engine, cache=False, num_retries=0, temperature=0.0)
        rollout = self.write(past, lm)
        if engine.asked < len(said):
            raise UserError(
                f"{len(said)} completions, but the writer of {past.id} asked {engine.asked} times: they are of another "
                "program or history; export it anew"
            )
        return rollout

    def score(self, rollout: Rollout, whole: History) -> RolloutReward:
        """Scores a rollout of the first sessions of a history."""
        sessions, settings = len(rollout.history), self.settings
        asked = chosen(
            self.questions(whole, sessions), settings.questions, f"{self.seed} {whole.id} {sessions} questions"
        )
        with self._context(self.reader):
            answered = answer(self.program, rollout.history, rollout.memory, asked, self.metric)
        costs = tuple(penalty(call, True, settings) for call in rollout.calls)
        return RolloutReward(reward(answered, rollout, settings), answered.mean, costs)

    @contextmanager
    def _context(self, lm: Any) -> Iterator[None]:
        settings = {"adapter": single_attempt(self.program), "trace": None, "disable_history": True}
        with in_order(), dspy.context(lm=lm, warn_on_type_mismatch=False, **settings):
            yield
