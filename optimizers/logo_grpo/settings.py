"""Settings of LoGo-GRPO, with the defaults of Memory-R2's paper and released code (docs/coverage.md has the sources).

Objectives are switches of one class: "logo" has both kinds of groups, "grpo" global ones alone, and "local" local ones
alone (its trajectories then only provide the memories to start from).
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from ...errors import UserError
from .reward import RewardSettings, SessionReward

Objective = Literal["logo", "grpo", "local"]


@dataclass(frozen=True, config={"extra": "forbid"})
class Curriculum:
    """Stages and when each ends: after its steps, or once it has used its share of a budget of generated tokens.

    Training conversations are cut to the stage's horizon; validation always sees whole ones. The best checkpoint of a
    stage begins the next one, and that of the last stage is kept.

    Example:
        >>> from mempiler.optimizers.logo_grpo.settings import Curriculum
        >>> Curriculum((8, 16), steps=10).stages(longest=12)
        (8, 12)
        >>> [Curriculum(steps=(10, 5)).steps_of(stage) for stage in range(3)]
        [10, 5, 5]
    """

    horizons: tuple[PositiveInt, ...] = (8, 16, 32)
    steps: PositiveInt | tuple[PositiveInt, ...] | None = (10, 5)
    """Steps of each stage: one number, or one for each; the last number holds for all further stages. None: the budget
    alone ends a stage."""
    tokens: PositiveInt | None = None
    """Generated tokens of all stages together, an equal share for each."""

    def __post_init__(self) -> None:
        if not self.horizons or list(self.horizons) != sorted(set(self.horizons)):
            raise UserError(f"horizons = {self.horizons}: give growing numbers of sessions, e.g. 8,16,32")
        if self.steps == ():
            raise UserError("steps = []: give one number of steps, or one for each stage, e.g. 10,5,5")
        if self.steps is None and self.tokens is None:
            raise UserError("nothing ends the training; give steps, tokens or both")

    def stages(self, longest: int) -> tuple[int, ...]:
        """The horizons, those beyond the sessions of the longest training conversation cut to it and not repeated."""
        return tuple(dict.fromkeys(min(horizon, longest) for horizon in self.horizons))

    def steps_of(self, stage: int) -> int | None:
        """Return the steps of a stage, counted from 0; None where the budget alone ends it."""
        if isinstance(self.steps, tuple):
            return self.steps[min(stage, len(self.steps) - 1)]
        return self.steps

    def ended(self, stage: int, stages: int, steps: int, tokens: int) -> bool:
        """Whether one of the stages has ended after so many steps of its own, and tokens in all stages."""
        most_steps = self.steps_of(stage)
        if most_steps is not None and steps >= most_steps:
            return True
        return self.tokens is not None and tokens >= self.tokens * (stage + 1) / stages


@dataclass(frozen=True, config={"extra": "forbid"})
class TrainingSettings:
    """Settings of a training."""

    objective: Objective = "logo"
    num_rollouts: PositiveInt = 16
    local_n: PositiveInt = 4
    local_fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Chance of each session that a local group is made for it."""
    session_reward: SessionReward = "session"
    """What the calls of a session are rewarded by in global groups: see `reward.session_rewards`."""
    histories: PositiveInt = 1
    """Training conversations of one step."""
    temperature: PositiveFloat = 1.0
    """Rollouts at 0 would all be the same."""
    validate_every: PositiveInt = 5
    """Steps between two validations; like those below of our own choice."""
    samples: PositiveInt = 2
    """Times each validation history is sampled; the mean score chooses the checkpoint."""
    max_format_failures: float = 0.1
    """A training stops when more completions than that, and than twice as many as at the start, cannot be read."""
    window: PositiveInt = 3
    """Steps over which format failures are averaged."""
    threads: PositiveInt = 32
    """Rollouts at the same time; 1 makes the arithmetic of an engine that batches independent of timing."""
    seed: int = 0
    curriculum: Curriculum = field(default_factory=Curriculum)
    reward: RewardSettings = field(default_factory=RewardSettings)

    def __post_init__(self) -> None:
        for name, made in (("num_rollouts", self.objective != "local"), ("local_n", self.objective != "grpo")):
            if made and getattr(self, name) < 2:
                raise UserError(f"{name} = {getattr(self, name)}: a group needs at least two members")
