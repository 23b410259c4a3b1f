"""Benchmarks that are conversations: a simulated user talks with the program, and with a rival beside it.

    runner ── set_user(lm), set_rival(program), set_judge(lm) ──> benchmark
    runner ── benchmark.answer(program, example) ──> the whole conversation

The program under test and the rival are callables: a benchmark knows nothing of programs.

Honest limits: an optimizer runs a program on one example at a time, not through a conversation, so nothing can be
compiled on such a benchmark.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import dspy

from ..errors import UserError
from .benchmark import Benchmark

Program = Callable[..., dspy.Prediction]


class SimulatedBenchmark(Benchmark):
    """A benchmark whose answers are conversations with a simulated user."""

    against: str
    """The method that the rival is built from."""
    rival: Program | None = None
    replies: ClassVar[float]
    """Replies of each side in an average conversation, for plans."""

    @abstractmethod
    def set_user(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        """Makes the simulated user."""

    def set_rival(self, program: Program) -> None:
        """Names who the program is compared with."""
        self.rival = program

    def opponent(self) -> Program:
        """The rival.

        Raises:
            UserError: None is set.
        """
        if self.rival is None:
            raise UserError(f"{self.name} compares two assistants, and none to compare with is set; call set_rival")
        return self.rival
