"""Settings of LoGo-GRPO, with the defaults of Memory-R2's paper and released code (docs/coverage.md has the sources).

Objectives are switches of one class: "logo" has both kinds of groups, "grpo" global ones alone, and "local" local ones
alone (its trajectories then only provide the memories to start from).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from ...errors import UserError
from .reward import RewardSettings, SessionReward

Objective = Literal["logo", "grpo", "local"]


@dataclass(frozen=True)
class Curriculum:
    """Stages and when each ends: after its steps, or once it has used its share of a budget of generated tokens.

    Training conversations are cut to the stage's horizon; validation always sees whole ones, so that scores of
    different stages compare and the best checkpoint of one stage can begin the next.

    Example:
        >>> from mempiler.optimizers.logo_grpo.settings import Curriculum
        >>> Curriculum((8, 16), steps=10).stages(longest=12)
        (8, 12)
    """

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
        for name in ("steps", "tokens"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UserError(f"{name} = {getattr(self, name)}: at least 1")

    def stages(self, longest: int) -> tuple[int, ...]:
        """The horizons, those beyond the sessions of the longest training conversation cut to it and not repeated."""
        return tuple(dict.fromkeys(min(horizon, longest) for horizon in self.horizons))

    def ended(self, stage: int, stages: int, steps: int, tokens: int) -> bool:
        """Whether one of the stages has ended after so many steps of its own, and tokens in all stages."""
        if self.steps is not None and steps >= self.steps:
            return True
        return self.tokens is not None and tokens >= self.tokens * (stage + 1) / stages


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training."""

    objective: Objective = "logo"
    num_rollouts: int = 16
    local_n: int = 4
    local_fraction: float = 0.5
    """Chance of each session that a local group is made for it."""
    session_reward: SessionReward = "session"
    """What the calls of a session are rewarded by in global groups: see `reward.session_rewards`."""
    histories: int = 2
    """Training conversations of one step."""
    temperature: float = 1.0
    validate_every: int = 5
    """Steps between two validations; like those below of our own choice."""
    samples: int = 2
    """Times each validation history is sampled; the mean score chooses the checkpoint."""
    max_format_failures: float = 0.1
    """A training stops when more completions than that, and than twice as many as at the start, cannot be read."""
    window: int = 3
    """Steps over which format failures are averaged."""
    threads: int = 32
    """Rollouts at the same time; 1 makes the arithmetic of an engine that batches independent of timing."""
    seed: int = 0
    curriculum: Curriculum = field(default_factory=Curriculum)
    reward: RewardSettings = field(default_factory=RewardSettings)

    def __post_init__(self) -> None:
        """Refuses settings that cannot be trained with.

        Raises:
            UserError: The message names the setting and the fix.
        """
        for name, known in (("objective", get_args(Objective)), ("session_reward", get_args(SessionReward))):
            if getattr(self, name) not in known:
                raise UserError(f"{name} = {getattr(self, name)!r}; choose one of: {', '.join(known)}")
        if self.num_rollouts < (1 if self.objective == "local" else 2):
            raise UserError(f"num_rollouts = {self.num_rollouts}: a group needs at least two members")
        if self.objective != "grpo" and self.local_n < 2:
            raise UserError(f"local_n = {self.local_n}: a group needs at least two members")
        if self.objective != "grpo" and not 0 < self.local_fraction <= 1:
            raise UserError(f"local_fraction = {self.local_fraction}: above 0 and at most 1; or objective grpo")
        if self.temperature <= 0:
            raise UserError(f"temperature = {self.temperature}: rollouts at 0 are all the same; use 1.0")
        for name in ("histories", "validate_every", "samples", "window", "threads"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} = {getattr(self, name)}: at least 1")
