"""Rollouts with given completions, and what they are worth: for trainers that sample elsewhere.

    completions ── in the order of the calls ──> writer ──> rollout ──> questions ──> reward

A writer is asked as in any rollout, but its answers are there already, so what a completion does to a memory and what
that is worth are the same here and there. Where completions end before the calls do, a model answers the rest; without
one the rest is empty, which no adapter can read, so that it costs what unreadable output costs.

The reward of a rollout is the mean of what its completions are rewarded by: R less the mean of their penalties (see
`reward`).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import dspy
from dspy import lm15

from ...engines.meter import Meter, MeteredLM
from ...errors import UserError
from ...memory.memory import Memory
from ...programs.gather import in_order
from ...programs.program import MemoryProgram
from ...records import History
from .reward import Metric, RewardSettings, answer, chosen, penalty, reward
from .rollout import Rollout, resumed, roll_out, single_attempt


@dataclass(frozen=True)
class Worth:
    """What a rollout is worth."""

    value: float
    """R: the mean score of the answers less what the memory's length costs."""
    score: float
    """Mean score of the answers."""
    penalties: tuple[float, ...]
    """Of each call, in order."""

    @property
    def reward(self) -> float:
        """Of the whole rollout: the mean of what its completions are rewarded by."""
        return self.value - (sum(self.penalties) / len(self.penalties) if self.penalties else 0.0)

    def of_call(self, number: int) -> float:
        """Of the completion of one call, counted from 0."""
        return self.value - self.penalties[number]


class GivenEngine:
    """An engine whose answers are given.

    Args:
        said: The answers, in the order of the calls.
        rest: Answers what comes after them; empty text without one.
    """

    supports_function_calling: ClassVar[bool] = False
    supports_reasoning: ClassVar[bool] = False
    supports_response_schema: ClassVar[bool] = False
    supported_params: ClassVar[tuple[str, ...]] = ("temperature", "max_tokens")

    def __init__(self, said: Sequence[str], rest: Any = None) -> None:
        self.said, self.rest = said, rest
        self._turn, self._lock = itertools.count(), threading.Lock()
        self.asked: list[list[dict[str, str]]] = []
        """The messages of every call."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Gives the next answer."""
        with self._lock:
            turn, messages = next(self._turn), _messages(request)
            self.asked.append(messages)
        text = self.said[turn] if turn < len(self.said) else self._after(messages)
        usage = lm15.Usage(input_tokens=0, output_tokens=0)
        return lm15.Response(None, request.model, lm15.Message.assistant(text), finish_reason="stop", usage=usage)

    def _after(self, messages: list[dict[str, str]]) -> str:
        if self.rest is None:
            return ""
        # Heard once: recordings listen to the call that this one answers.
        with dspy.context(callbacks=[]):
            output = self.rest(messages=messages)[0]
        return str(output.get("text") or "") if isinstance(output, dict) else str(output or "")

    def __deepcopy__(self, memo: object) -> GivenEngine:
        return self


@dataclass(frozen=True)
class Rewarded:
    """Writes with given completions and says what came of it.

    Args:
        program: Writes and answers.
        metric: Scores an answer.
        questions: What can be asked of a history after so many of its sessions.
        reader: Answers; tasks that answer by code ask none.
        settings: What a reward is made of.
        seed: Chooses the questions where there are too many.
    """

    program: MemoryProgram
    metric: Metric
    questions: Callable[[History, int], Sequence[dspy.Example]]
    reader: Any = None
    settings: RewardSettings = field(default_factory=RewardSettings)
    seed: int = 0

    def write(self, past: History, lm: Any) -> Rollout:
        """A history written by a model that samples.

        Args:
            past: Its sessions up to the horizon.
            lm: The model.
        """
        with self._context(lm):
            return roll_out(self.program.method.writer, past, "export")

    def written(self, past: History, said: Sequence[str]) -> Rollout:
        """A history written with given completions.

        Raises:
            UserError: There are more of them than calls: they are of another program or history.
        """
        engine = GivenEngine(said)
        return _fitting(self.write(past, _lm(engine)), engine)

    def continued(self, before: Memory, past: History, said: Sequence[str], rest: Any = None) -> Rollout:
        """The last session of a past written with given completions.

        Args:
            before: The memory that it is written into.
            past: The sessions up to and with it.
            said: The completions of its first calls.
            rest: The model that answers its other calls.

        Raises:
            UserError: As in `written`.
        """
        engine = GivenEngine(said, rest)
        with self._context(_lm(engine)):
            return _fitting(resumed(self.program.method.writer, before, past, "export"), engine)

    def worth(self, rollout: Rollout, whole: History, most: int | None = None) -> Worth:
        """What a rollout is worth.

        Args:
            rollout: The rollout.
            whole: The history that it is the beginning of.
            most: Most questions that are asked; those for whole trajectories if None.
        """
        sessions, settings = len(rollout.history), self.settings
        asked = chosen(
            self.questions(whole, sessions), most or settings.questions, f"{self.seed} {whole.id} {sessions} questions"
        )
        with self._context(self.reader):
            answered = answer(self.program, rollout.history, rollout.memory, asked, self.metric)
        costs = tuple(penalty(call, True, settings) for call in rollout.calls)
        return Worth(reward(answered, rollout, settings), answered.mean, costs)

    @contextmanager
    def _context(self, lm: Any) -> Iterator[None]:
        """DSPy's settings for calls of a model that come one after another."""
        settings = {"adapter": single_attempt(self.program), "trace": None, "disable_history": True}
        with in_order(), dspy.context(lm=lm, warn_on_type_mismatch=False, **settings):
            yield


def _lm(engine: GivenEngine) -> MeteredLM:
    return MeteredLM("given/completions", Meter(), engine=engine, cache=False, num_retries=0, temperature=0.0)


def _fitting(rollout: Rollout, engine: GivenEngine) -> Rollout:
    if len(engine.asked) < len(engine.said):
        raise UserError(
            f"{len(engine.said)} completions, but the writer of {rollout.history.id} asked {len(engine.asked)} times: "
            "they are of another program or history; export it anew"
        )
    return rollout


def _messages(request: lm15.Request) -> list[dict[str, str]]:
    system = request.system
    if system is not None and not isinstance(system, str):
        system = "".join(getattr(part, "text", None) or "" for part in system)
    found = [{"role": "system", "content": system}] if system else []
    return [*found, *({"role": message.role, "content": message.text or ""} for message in request.messages)]
