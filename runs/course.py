"""How a model is trained: which objectives, from how many seeds, with which numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..errors import UserError
from ..optimizers.logo_grpo.reward import RewardSettings, SessionReward
from ..optimizers.logo_grpo.settings import Curriculum, Objective, TrainingSettings

TINY = "local:tiny"
"""The model that a training creates and warms up itself."""

BASELINE = "grpo"
"""What the other objectives are compared with."""
ASKED = "logo-grpo"


OBJECTIVES: dict[str, tuple[Objective, SessionReward | None]] = {
    BASELINE: ("grpo", "trajectory"),
    "grpo-session": ("grpo", "session"),
    "grpo-cumulative": ("grpo", "cumulative"),
    "local": ("local", None),
    ASKED: ("logo", None),
}
"""What `--with` takes: GRPO rewarded by whole trajectories, as in the paper, and by sessions, in two ways; local groups
alone; both kinds of groups. With each the reward of global groups; None leaves it to the settings."""
COMPARED = (BASELINE, "grpo-session", "local")
"""What `logo-grpo` is compared with on memory-env."""


@dataclass(frozen=True)
class Course:
    """How a model is trained."""

    objective: str = ASKED
    compared: tuple[str, ...] = ()
    """Further objectives trained from the same start on as many tokens."""
    seeds: int = 1
    session_reward: SessionReward | None = None
    """For the asked objective, in the place of what it has."""
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    """Objective and seed in it are overwritten, the session reward too where the objective has one."""
    train_kwargs: Mapping[str, Any] = field(default_factory=dict)
    lora: int | None = None
    """Rank of an adapter to train, with twice that as `lora_alpha`; None trains all weights."""
    dtype: str | None = None
    """Of the weights; None: float32 on the CPU, bfloat16 on a GPU."""
    answer_tokens: int = 2048
    """Most tokens of one completion, as released."""
    answer_lm: str | None = None
    """Answers the questions that rewards come from; the model itself if None."""
    answer_api_base: str | None = None
    """Address of its server."""
    quick: bool = False
    """Whether it is cut to a few minutes: tables say so."""

    def __post_init__(self) -> None:
        for name in ("seeds", "lora", "answer_tokens"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 1) and (name, value) != ("lora", None):
                raise UserError(f"{name} = {value!r}: give a whole number, at least 1")

    @classmethod
    def for_model(cls, lm: str) -> Course:
        """The defaults for a model: those of the paper, or for `local:tiny` what fits two cores and a few minutes."""
        return TINY_COURSE if lm == TINY else cls(train_kwargs=dict(RELEASED))

    def comparing(self) -> Course:
        """The course with further objectives and three seeds, global groups rewarded by whole trajectories."""
        settings = replace(self.settings, session_reward="trajectory")
        return replace(self, compared=COMPARED, seeds=3, settings=settings)

    def shortened(self) -> Course:
        """The course in a few minutes, too short to tell objectives apart.

        Raises:
            UserError: It has no budget of tokens to shorten.
        """
        curriculum = self.settings.curriculum
        if curriculum.tokens is None:
            raise UserError("--quick shortens the training of local:tiny; for other models set steps or tokens")
        fewer = replace(curriculum, tokens=curriculum.tokens // 16)
        settings = replace(self.settings, validate_every=2, curriculum=fewer)
        return replace(self, quick=True, seeds=1, settings=settings)

    def changed(self, settings: Mapping[str, Any]) -> Course:
        """The course with other numbers: its own, its training's, curriculum's or reward's; others are the trainer's.

        Raises:
            UserError: One is of the wrong kind or does not fit.
        """
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
        own, training, stages, rewards = (
            {name: given.pop(name) for name in [*given] if name in {each.name for each in fields(kind)}}
            for kind in (Course, TrainingSettings, Curriculum, RewardSettings)
        )
        try:
            parts = {"curriculum": replace(self.settings.curriculum, **stages)}
            shaped = replace(self.settings, **parts, reward=replace(self.settings.reward, **rewards), **training)
        except TypeError as error:
            raise UserError(f"a setting of the training is of the wrong kind: {error}") from error
        return replace(self, settings=shaped, train_kwargs={**self.train_kwargs, **given}, **own)

    def names(self) -> list[str]:
        """The objectives in the order of training.

        Raises:
            UserError: One is unknown, or its settings do not fit.
        """
        for name in (self.objective, *self.compared):
            if name not in OBJECTIVES:
                raise UserError(f"--with {name!r}: choose one of {', '.join(OBJECTIVES)}")
            self.shaped(name, 0)
        return [*dict.fromkeys((*self.compared, self.objective))]

    def shaped(self, name: str, seed: int) -> TrainingSettings:
        """The settings of one objective: groups of a kind that is not trained cost no tokens.

        GRPO gets as many trajectories as LoGo has members of both kinds; "local" keeps two, to start reruns from.
        """
        given = self.settings
        both = given.num_rollouts + round(given.local_n * given.local_fraction)
        objective, reward = OBJECTIVES[name]
        counts: dict[Objective, dict[str, int]] = {
            "logo": {},
            "grpo": {"num_rollouts": both},
            "local": {"num_rollouts": min(2, given.num_rollouts), "local_n": max(2, both - 2)},
        }
        own = self.session_reward if name == self.objective else None
        return replace(
            given,
            objective=objective,
            session_reward=own or reward or given.session_reward,
            seed=seed,
            **(counts[objective] if self.compared else {}),
        )


RELEASED = {"learning_rate": 1e-5, "beta": 0.001, "batch_size": 1024, "weight_decay": 0.01}
"""The released code's numbers: a mini-batch of 256 rows of up to four turns, which are completions here; the learning
rate is ours, for an adapter."""

DAPO = {
    "loss_type": "dapo",
    "ratio": "token",
    "clip_high": 0.28,
    "dual_clip": 0.0,
    "log_ratio_clip": 0.0,
    "eps": 1e-4,
}
"""The loss of DAPO, in the place of Memory-R2's."""

TINY_COURSE = Course(
    settings=TrainingSettings(
        num_rollouts=4,
        local_n=12,
        local_fraction=1.0,
        histories=2,
        session_reward="trajectory",
        threads=96,
        validate_every=12,
        curriculum=Curriculum((8,), steps=None, tokens=350_000),
    ),
    train_kwargs={"learning_rate": 2e-4, "beta": 0.02, "epochs": 2, "batch_size": 48, "weight_decay": 0.0, **DAPO},
    answer_tokens=96,
)
"""Stable for a model of half a million weights; at lr 5e-4 without KL, plain GRPO collapsed on one seed of four. Whole
histories from the first step on. Two of them a step: with one, as many tokens gave a seed of LoGo-GRPO no more than an
early checkpoint. How the rest came about: docs/training.md."""
