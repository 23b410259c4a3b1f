"""The curriculum: horizons that grow from stage to stage (Memory-R2: 8, 16, 32 sessions).

Training conversations are cut to the stage's horizon; validation always sees whole ones, so that scores of different
stages compare and the best checkpoint of one stage can begin the next. A stage ends after its steps, or once it has
used its share of a budget of generated tokens.

Example:
    >>> from mempiler.optimizers.logo_grpo.curriculum import Curriculum
    >>> Curriculum((8, 16), steps=10).stages(longest=12)
    (8, 12)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UserError


@dataclass(frozen=True)
class Curriculum:
    """Stages and when each ends."""

    horizons: tuple[int, ...] = (8, 16, 32)
    steps: int | None = 10
    """Steps of a stage; None: the budget alone ends it."""
    tokens: int | None = None
    """Generated tokens of all stages together, an equal share for each."""

    def __post_init__(self) -> None:
        """Refuses what cannot be trained.

        Raises:
            UserError: Horizons are missing or do not grow, or nothing ends a stage.
        """
        if not self.horizons or min(self.horizons) < 1 or list(self.horizons) != sorted(set(self.horizons)):
            raise UserError(f"horizons = {self.horizons}: give growing numbers of sessions, e.g. 8,16,32")
        if self.steps is None and self.tokens is None:
            raise UserError("nothing ends the training; give steps, tokens or both")
        if self.steps is not None and self.steps < 1:
            raise UserError(f"steps = {self.steps}: at least 1")
        if self.tokens is not None and self.tokens < 1:
            raise UserError(f"tokens = {self.tokens}: at least 1")

    def stages(self, longest: int) -> tuple[int, ...]:
        """The horizons, those beyond the longest training conversation cut to its length and not repeated.

        Args:
            longest: Sessions of the longest training conversation.
        """
        return tuple(dict.fromkeys(min(horizon, longest) for horizon in self.horizons))

    def ended(self, stage: int, stages: int, steps: int, tokens: int) -> bool:
        """Whether a stage has ended.

        Args:
            stage: Its index.
            stages: How many there are.
            steps: Steps it has had.
            tokens: Tokens generated so far, in all stages.
        """
        if self.steps is not None and steps >= self.steps:
            return True
        return self.tokens is not None and tokens >= self.tokens * (stage + 1) / stages
