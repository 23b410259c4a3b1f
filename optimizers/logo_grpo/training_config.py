"""The configuration of a training: its objective and its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any

from pydantic import PositiveFloat, PositiveInt, ValidationError
from pydantic.dataclasses import dataclass

from ...engines.local.settings import Reinforcement
from ...errors import UnknownNameError, UserError
from ...validation import validation_message
from .reward import RewardSettings, SessionReward
from .settings import Curriculum, Objective, TrainingSettings

TINY = "local:tiny"
"""The model that a training creates and warms up itself."""

OBJECTIVES: dict[str, tuple[Objective, SessionReward | None]] = {
    "grpo": ("grpo", "trajectory"),
    "grpo-session": ("grpo", "session"),
    "grpo-cumulative": ("grpo", "cumulative"),
    "local": ("local", None),
    "logo-grpo": ("logo", None),
}
"""What `--optimizer` takes: GRPO rewarded by whole trajectories, as in the paper, and by sessions, in two ways; local
groups alone; both kinds of groups. With each the reward of global groups; None leaves it to the settings."""


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained."""

    objective: str = "logo-grpo"
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    """Objective and seed in it are overwritten, the session reward too where the objective has one."""
    train_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the trainer that differ from the defaults, see `trainer_settings`."""
    lora: PositiveInt | None = None
    """Rank of an adapter to train, with twice that as `lora_alpha`; None trains all weights."""
    dtype: str | None = None
    """Of the weights; None: float32 on the CPU, bfloat16 on a GPU."""
    answer_tokens: PositiveInt = 2048
    """Most tokens of one completion, as released."""
    answer_lm: str | None = None
    """Answers the questions that rewards come from; the model itself if None."""
    answer_api_base: str | None = None
    """Address of its server."""
    usd_per_hour: PositiveFloat | None = None
    """Of the machine that trains, for plans."""
    train_gpus: PositiveInt | None = None
    """GPUs that train, one for each process of torchrun; a training with another number of processes is refused."""
    sampling_gpus: PositiveInt | None = None
    """GPUs of the vLLM server that samples, for plans; each has the whole model."""
    reader_gpus: PositiveInt | None = None
    """GPUs over which the server of `answer_lm` spreads its model, for plans."""
    gpu_memory: PositiveFloat | None = None
    """Gigabytes of one GPU, for plans."""

    @classmethod
    def for_model(cls, lm: str) -> TrainingConfig:
        """The defaults for a model: those of the paper, or for `local:tiny` what fits two cores and a few minutes."""
        return TINY_COURSE if lm == TINY else cls()

    @property
    def trainer_settings(self) -> dict[str, Any]:
        """The trainer's settings: the released numbers, some of ours for an adapter, and `train_kwargs` before both."""
        defaults = RELEASED if self.lora is None else {**RELEASED, **ADAPTER}
        return {**defaults, **self.train_kwargs}

    def changed(self, settings: Mapping[str, Any]) -> TrainingConfig:
        """The course with other numbers: its own, its training's, curriculum's or reward's; others are the trainer's.

        Raises:
            UnknownNameError: There is no such setting.
            UserError: One is of the wrong kind or does not fit.
        """
        _refuse_unknown(settings)
        given = dict(settings)
        own, training, stages, rewards = (
            {name: given.pop(name) for name in [*given] if name in {each.name for each in fields(kind)}}
            for kind in (TrainingConfig, TrainingSettings, Curriculum, RewardSettings)
        )
        try:
            parts = {"curriculum": replace(self.settings.curriculum, **stages)}
            shaped = replace(self.settings, **parts, reward=replace(self.settings.reward, **rewards), **training)
            changed = replace(self, settings=shaped, train_kwargs={**self.train_kwargs, **given}, **own)
        except ValidationError as error:
            raise UserError(f"a setting of the training: {validation_message(error)}") from error
        # The trainer itself would refuse them only after the warm-up.
        Reinforcement.parse(changed.trainer_settings)
        return changed

    def training(self, seed: int) -> TrainingSettings:
        """The settings of its objective.

        Raises:
            UserError: The objective is unknown.
        """
        if self.objective not in OBJECTIVES:
            raise UserError(f"--optimizer {self.objective!r}: choose one of {', '.join(OBJECTIVES)}")
        objective, reward = OBJECTIVES[self.objective]
        own = {"objective": objective, "session_reward": reward or self.settings.session_reward}
        return replace(self.settings, seed=seed, **own)


def _refuse_unknown(settings: Mapping[str, Any]) -> None:
    """Refuse names that neither the training nor its trainer knows: the trainer would tell only after the warm-up."""
    known = set(Reinforcement.model_fields)
    for kind in (TrainingConfig, TrainingSettings, Curriculum, RewardSettings):
        known.update(each.name for each in fields(kind))
    for name in settings:
        if name not in known:
            raise UnknownNameError("setting of the training", name, known)


RELEASED = {
    "learning_rate": 2e-6,
    "epochs": 2,
    "batch_size": 2048,
    "beta": 0.001,
    "weight_decay": 0.01,
    "old_logprobs": "recomputed",
}
"""The released scripts' numbers, for all weights. A mini-batch is 16, doubled by the trainer, times 16 rollouts: 512
rows of up to four turns, which are completions here."""

ADAPTER = {"learning_rate": 1e-5, "epochs": 1}
"""Ours, for an adapter: it has few weights, which begin at nothing, and takes a larger step."""

DAPO = {
    "loss_type": "dapo",
    "ratio": "token",
    "clip_high": 0.28,
    "dual_clip": 0.0,
    "log_ratio_clip": 0.0,
    "eps": 1e-4,
}
"""The loss of DAPO, in the place of Memory-R2's."""

TINY_COURSE = TrainingConfig(
    settings=TrainingSettings(
        num_rollouts=4,
        local_n=12,
        local_fraction=1.0,
        histories=2,
        session_reward="trajectory",
        threads=96,
        validate_every=12,
        reward=RewardSettings(format_penalty=0.5, unknown_id_penalty=0.2),
        curriculum=Curriculum((8,), steps=None, tokens=350_000),
    ),
    train_kwargs={
        "learning_rate": 2e-4,
        "epochs": 2,
        "batch_size": 48,
        "beta": 0.02,
        "weight_decay": 0.0,
        "old_logprobs": "sampled",
        **DAPO,
    },
    answer_tokens=96,
)
"""Stable for a model of half a million weights; at lr 5e-4 without KL, plain GRPO collapsed on one seed of four. Whole
histories from the first step on. Two of them a step: with one, as many tokens gave a seed of LoGo-GRPO no more than an
early checkpoint. How the rest came about: docs/training.md."""
