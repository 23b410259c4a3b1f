"""Interactions: a simulated user talks with the program, and with a rival beside it.

The program under test and the rival are callables: a benchmark does not depend on programs. An optimizer runs a program
on one example at a time, not through a conversation, so nothing can be compiled on such a benchmark.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import dspy

from ..errors import UserError

Program = Callable[..., dspy.Prediction]


class Interaction(ABC):
    """Conversations between a simulated user and two assistants."""

    against: str
    """The method that the rival is built from."""
    replies: ClassVar[float]
    """Replies of each side in an average conversation, for plans."""
    user: Any = None
    """Who plays the user."""
    rival: Program | None = None

    @abstractmethod
    def hold(self, program: Program, example: dspy.Example) -> dspy.Prediction:
        """Lets the user talk with the program and with the rival.

        Raises:
            UserError: There is no simulated user, or no rival.
        """

    @abstractmethod
    def played_by(self, lm: Any, adapter: dspy.Adapter | None) -> Any:
        """A user that a language model plays."""

    def bound(self, lm: Any, adapter: dspy.Adapter | None, rival: Program) -> Self:
        """A copy with someone to play the user and someone to compare with."""
        new = copy.copy(self)
        new.user, new.rival = self.played_by(lm, adapter), rival
        return new

    def company(self) -> tuple[Any, Program]:
        """The user and the rival.

        Raises:
            UserError: One of them is missing.
        """
        if self.user is None:
            raise UserError("this benchmark needs someone to play the user; run it with mempiler evaluate")
        if self.rival is None:
            raise UserError("this benchmark compares two assistants, and none to compare with is set")
        return self.user, self.rival
