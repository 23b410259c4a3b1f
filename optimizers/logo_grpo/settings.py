"""The settings of LoGo-GRPO, with the defaults of the released code of Memory-R2.

docs/coverage.md has the source of each number. The ablations are objectives of one class:

    "logo"     global and local groups
    "grpo"     only global groups
    "local"    only local groups; the rollouts just provide the memories that reruns start from
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
    """The stages of a training: how many sessions are written in each, and when it ends.

    A stage ends after its number of steps, or when it has used its share of the budget of generated
    tokens. Training conversations are cut to the horizon of the stage; validation always sees whole
    ones. The best checkpoint of a stage begins the next one, and that of the last stage is kept.

    Example:
        >>> from mempiler.optimizers.logo_grpo.settings import Curriculum
        >>> Curriculum((8, 16), steps=10).stages(longest=12)
        (8, 12)
        >>> [Curriculum(steps=(10, 5)).steps_of(stage) for stage in range(3)]
        [10, 5, 5]
    """

    horizons: tuple[PositiveInt, ...] = (8, 16, 32)
    """The sessions of each stage (paper, abstract: 8, 16 and 32)."""
    steps: PositiveInt | tuple[PositiveInt, ...] | None = (10, 5)
    """The steps of each stage: one number, or one for each stage.

    The last number holds for all further stages. None: only the budget of tokens ends a stage.
    """
    tokens: PositiveInt | None = None
    """The budget of generated tokens for all stages together; each stage has an equal share."""

    def __post_init__(self) -> None:
        if not self.horizons or list(self.horizons) != sorted(set(self.horizons)):
            raise UserError(
                f"horizons = {self.horizons}: give growing numbers of sessions, e.g. 8,16,32"
            )
        if self.steps == ():
            raise UserError(
                "steps = []: give one number of steps, or one for each stage, e.g. 10,5,5"
            )
        if self.steps is None and self.tokens is None:
            raise UserError("nothing ends the training; give steps, tokens or both")

    def stages(self, longest: int) -> tuple[int, ...]:
        """Return the horizon of each stage.

        Args:
            longest: The sessions of the longest training conversation. Longer horizons are cut to
                it, and would then all be the same stage, which is trained once.
        """
        horizons: list[int] = []
        for horizon in self.horizons:
            horizon_in_data = min(horizon, longest)
            if horizon_in_data not in horizons:
                horizons.append(horizon_in_data)
        return tuple(horizons)

    def steps_of(self, stage: int) -> int | None:
        """Return the steps of a stage, counted from 0; None where only the budget ends it."""
        if isinstance(self.steps, tuple):
            return self.steps[min(stage, len(self.steps) - 1)]
        return self.steps

    def stage_has_ended(
        self, stage: int, stage_count: int, steps: int, generated_tokens: int
    ) -> bool:
        """Return whether a stage has used its steps, or its share of the budget of tokens.

        Args:
            stage: The stage, counted from 0.
            stage_count: How many stages there are; they share the budget equally.
            steps: The steps of this stage so far.
            generated_tokens: The tokens generated so far, in all stages together.
        """
        step_limit = self.steps_of(stage)
        if step_limit is not None and steps >= step_limit:
            return True
        if self.tokens is None:
            return False
        # What this stage and those before it may use together.
        token_limit = self.tokens * (stage + 1) / stage_count
        return generated_tokens >= token_limit


@dataclass(frozen=True, config={"extra": "forbid"})
class TrainingSettings:
    """The settings of a training."""

    objective: Objective = "logo"
    num_rollouts: PositiveInt = 16
    """Rollouts of each conversation: the members of a global group."""
    local_n: PositiveInt = 4
    """Reruns of a session: the members of a local group."""
    local_fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The chance of each session that local groups are made for it."""
    session_reward: SessionReward = "session"
    """The reward of a session's completions in global groups: see `reward.session_rewards`."""
    histories: PositiveInt = 1
    """Training conversations of one step."""
    temperature: PositiveFloat = 1.0
    """The temperature of rollouts; at 0 they would all be the same."""
    validate_every: PositiveInt = 5
    """Steps between two validations. This number and those of the next four fields are ours."""
    samples: PositiveInt = 2
    """How often each validation history is sampled; the mean score chooses the checkpoint."""
    max_format_failures: float = 0.1
    """The share of unreadable completions that ends a training.

    It only ends if that is also more than twice the share of the first step.
    """
    window: PositiveInt = 3
    """Steps over which the share of unreadable completions is averaged."""
    threads: PositiveInt = 32
    """Rollouts at the same time.

    With 1, the batches of an engine, and so its rounding, do not depend on timing.
    """
    seed: int = 0
    curriculum: Curriculum = field(default_factory=Curriculum)
    reward: RewardSettings = field(default_factory=RewardSettings)

    def __post_init__(self) -> None:
        if self.objective != "local" and self.num_rollouts < 2:
            raise UserError(_group_size_message("num_rollouts", self.num_rollouts))
        if self.objective != "grpo" and self.local_n < 2:
            raise UserError(_group_size_message("local_n", self.local_n))


def _group_size_message(setting: str, size: int) -> str:
    return f"{setting} = {size}: a group needs at least two members"
