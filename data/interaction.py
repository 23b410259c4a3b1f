"""The contract of a simulated conversation: `Interaction`.

Most benchmarks ask a program one question. A benchmark whose answers are conversations sets
`interaction`: a user that a language model plays talks with the program under test, and with a
rival beside it. An optimizer runs a program on one example at a time, so nothing can be compiled on
such a benchmark.

    class SmallTalk(Interaction):
        against = "no-memory"
        replies = 1.0

        def __init__(self, user: SimulatedUser | None = None, rival: Program | None = None) -> None:
            self.user = user
            self.rival = rival

        def with_simulated_user(self, lm, adapter, rival):
            return SmallTalk(SimulatedUser(lm, adapter), rival)

        def converse(self, program, example):
            if self.user is None or self.rival is None:
                raise UserError("run this benchmark with mempiler evaluate")
            greeting = self.user(example)
            own_reply = program(history=example.history, question=greeting).answer
            rival_reply = self.rival(history=example.history, question=greeting).answer
            return dspy.Prediction(answer=own_reply, rival=rival_reply)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, Self

import dspy


class Program(Protocol):
    """What a benchmark asks, with the inputs of an example by name, e.g. a `MemoryProgram`."""

    def __call__(self, **inputs: Any) -> dspy.Prediction: ...


class Interaction(ABC):
    """Conversations between a simulated user and two assistants: the program, and a rival."""

    against: str
    """The method that the rival is built from."""
    replies: ClassVar[float]
    """Replies of each side in an average conversation, for plans."""

    @abstractmethod
    def with_simulated_user(
        self, lm: dspy.BaseLM, adapter: dspy.Adapter | None, rival: Program
    ) -> Self:
        """Return a copy with a user that a language model plays, and a rival."""

    @abstractmethod
    def converse(self, program: Program, example: dspy.Example) -> dspy.Prediction:
        """Let the user talk with the program and with the rival.

        Raises:
            UserError: There is no simulated user, or no rival.
        """
