"""Settings of training in `train_kwargs`: names and defaults; unknown ones are refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError

from ...errors import UserError
from .trl_settings import check_trl_settings


class Training(BaseModel):
    """What both kinds of training share."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    learning_rate: NonNegativeFloat = 1e-5
    """Of AdamW; 1e-5 suits LoRA, 1e-6 a whole model of billions, 2e-4 and more a tiny one."""
    epochs: PositiveInt = 1
    batch_size: PositiveInt = 48
    """Completions per step of the optimizer."""
    micro_batch_size: PositiveInt = 8
    """Most completions of a forward pass: gradients of a batch are accumulated over these; halved where memory ends."""
    gradient_checkpointing: bool = False
    """Whether layers are computed again in the backward pass: a third more work, a fraction of the memory."""
    max_grad_norm: NonNegativeFloat = 1.0
    """Longest gradient of a step; longer ones are scaled down to it. 0 clips none, as in transformers and TRL."""
    weight_decay: NonNegativeFloat = 0.0
    seed: NonNegativeInt = 0
    """Decides the order of batches."""
    output_dir: str | None = None
    """Where models and checkpoints are written."""

    @property
    def longest_gradient(self) -> float:
        """`max_grad_norm` for functions that scale a gradient to it, where 0 would leave nothing of any gradient."""
        return self.max_grad_norm if self.max_grad_norm > 0 else math.inf

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> Self:
        """Reads `train_kwargs`.

        Raises:
            UserError: A setting is unknown, or its value is of the wrong kind or size.
        """
        try:
            return cls.model_validate(dict(given or {}))
        except ValidationError as error:
            name = str(error.errors()[0]["loc"][0])
        if name not in cls.model_fields:
            raise UserError(f"the local engine has no training setting {name!r}; it has: {', '.join(cls.model_fields)}")
        default, value = cls.model_fields[name].default, dict(given or {})[name]
        raise UserError(f"training setting {name} = {value!r} does not fit; its default is {default!r}")


class Finetuning(Training):
    """Supervised fine-tuning."""

    epochs: PositiveInt = 3
    batch_size: PositiveInt = 8
    steps: PositiveInt | None = None
    """Steps of the optimizer; None: as many as the epochs take."""
    lora: PositiveInt | None = None
    """Rank of a new adapter to train; None trains all weights, or the adapter that the model has."""
    cosine: bool = True
    """Whether the learning rate falls to 0 along a cosine."""


class Reinforcement(Training):
    """Group-relative policy optimization; the clips, the ratio and the mean are those of Memory-R2's released code."""

    beta: NonNegativeFloat = 0.0
    """Weight of the KL term; above 0 a copy of the weights that are trained is kept as reference."""
    clip_low: NonNegativeFloat = 0.2
    clip_high: NonNegativeFloat = 0.2
    dual_clip: NonNegativeFloat = 3.0
    """The loss of a completion with a negative advantage counts up to so many times that; 0: without end."""
    log_ratio_clip: NonNegativeFloat = 3.0
    """Largest log-ratio; 0: no bound. It has none from below, as released."""
    old_logprobs: Literal["sampled", "recomputed"] = "sampled"
    """What ratios are taken against: the log-probabilities that came with the completions, or those of the weights that
    are trained, computed anew before the first update of a step. The latter costs a forward pass, and removes the
    differences between a sampler such as vLLM and the trained model; the released training does so."""
    divergence_clip: NonNegativeFloat = 10.0
    """Most that one token's KL term counts, before `beta`; 0: without end."""
    ratio: Literal["turn", "token"] = "turn"
    """What is compared with the old policy and clipped: each token, or a completion as a whole."""
    loss_type: Literal["dapo", "grpo"] = "grpo"
    """How the policy's loss is averaged: "grpo": every completion, which is a turn of a role, weighs the same; "dapo":
    every token does. The KL term is averaged over tokens in both."""
    scale_rewards: bool = True
    """Whether advantages are divided by the standard deviation of their group."""
    eps: NonNegativeFloat = 1e-6
    """Added to that deviation."""
    leave_one_out: bool = False
    """Whether a reward is compared with the mean of the others, unscaled (RLOO), instead of with that of all."""
    temperature: NonNegativeFloat = 1.0
    """At which completions were sampled: they are scored under the same."""
    num_generations: PositiveInt | None = None
    """Completions of a group, as a trainer announces it; groups of other sizes are trained as well."""
    trainer: Literal["local", "trl"] = "local"
    """Our own, or TRL's, which shards weights and has vLLM sample."""
    trl: Mapping[str, Any] = {}
    """What `trl.GRPOConfig` takes besides; `trl_settings.EFFECTIVE` lists what has an effect."""

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> Self:
        """Read `train_kwargs`, and refuse settings of TRL that would change nothing.

        Raises:
            UserError: A setting is unknown, its value does not fit, or it has no effect.
        """
        settings = super().parse(given)
        if settings.trl and settings.trainer != "trl":
            raise UserError("settings of trl are for trainer = trl")
        check_trl_settings(settings.trl)
        return settings
