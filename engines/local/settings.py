"""The settings of trainings, as DSPy's `train_kwargs` give them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from ...errors import UserError
from .trl_settings import check_trl_settings


class Training(BaseModel):
    """The settings that both kinds of training share."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    learning_rate: NonNegativeFloat = 1e-5
    """The learning rate of AdamW.

    1e-5 suits LoRA, 1e-6 a whole model of billions of weights, 2e-4 and more a tiny model.
    """
    epochs: PositiveInt = 1
    """Passes over the data."""
    batch_size: PositiveInt = 48
    """Completions of a step of the optimizer."""
    micro_batch_size: PositiveInt = 8
    """The most completions of a forward pass; where memory runs out, it is halved.

    The gradient of a batch is accumulated over its passes.
    """
    gradient_checkpointing: bool = False
    """Whether the backward pass computes layers again, instead of keeping their activations.

    That is a third more work, and takes a fraction of the memory.
    """
    max_grad_norm: NonNegativeFloat = 1.0
    """The largest norm of a gradient; larger gradients are scaled down to it.

    0 clips no gradient, as in transformers and TRL.
    """
    weight_decay: NonNegativeFloat = 0.0
    """The weight decay of AdamW."""
    seed: NonNegativeInt = 0
    """Decides the order of the completions."""
    output_dir: str | None = None
    """The folder for models and checkpoints."""

    @property
    def longest_gradient(self) -> float:
        """The largest norm of a gradient, infinite if gradients are not clipped.

        Functions of torch that clip gradients would scale each of them to nothing at 0.
        """
        return self.max_grad_norm if self.max_grad_norm > 0 else math.inf

    @classmethod
    def parse(cls, train_kwargs: Mapping[str, Any] | None) -> Self:
        """Read settings.

        Raises:
            UserError: A setting is unknown, or its value is of the wrong kind or size.
        """
        values = dict(train_kwargs or {})
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            name = str(error.errors()[0]["loc"][0])

        if name not in cls.model_fields:
            known = ", ".join(cls.model_fields)
            raise UserError(f"the local engine has no training setting {name!r}; it has: {known}")
        default = cls.model_fields[name].default
        raise UserError(
            f"training setting {name} = {values[name]!r} does not fit; its default is {default!r}"
        )


class Finetuning(Training):
    """The settings of supervised fine-tuning."""

    epochs: PositiveInt = 3
    batch_size: PositiveInt = 8
    steps: PositiveInt | None = None
    """Steps of the optimizer, instead of `epochs`."""
    lora: PositiveInt | None = None
    """The rank of a new adapter; None trains all weights, or the adapter that the model has."""
    cosine: bool = True
    """Whether the learning rate falls to 0 along a cosine."""


class Reinforcement(Training):
    """The settings of group-relative policy optimization; `loss` has the equations.

    The defaults of the clips, the ratio and the mean are those of Memory-R2's released code.
    """

    beta: NonNegativeFloat = 0.0
    """The weight of the KL term. Above 0 a copy of the trained weights is kept as reference."""
    clip_low: NonNegativeFloat = 0.2
    """How far below 1 a ratio counts."""
    clip_high: NonNegativeFloat = 0.2
    """How far above 1 a ratio counts."""
    dual_clip: NonNegativeFloat = 3.0
    """Where an advantage is negative, the loss is at most this many times its size.

    0 sets no bound.
    """
    log_ratio_clip: NonNegativeFloat = 3.0
    """The largest log-ratio; 0 sets no bound. As released, there is none from below."""
    old_logprobs: Literal["sampled", "recomputed"] = "sampled"
    """The log-probabilities that ratios compare with.

    "sampled" takes those that came with the completions. "recomputed" computes them with the
    trained model before the first update of a step, as the released training does: that costs a
    forward pass, and removes the differences between a sampler such as vLLM and the trained model.
    """
    divergence_clip: NonNegativeFloat = 10.0
    """The largest KL term of a token, before it is multiplied by `beta`; 0 sets no bound."""
    ratio: Literal["turn", "token"] = "turn"
    """What is compared with the old policy and clipped: a completion as a whole, or each token."""
    loss_type: Literal["dapo", "grpo"] = "grpo"
    """How the loss of the policy is averaged.

    With "grpo" every completion, which is one turn of a role, weighs the same; with "dapo" every
    token does. The KL term is averaged over tokens in both.
    """
    scale_rewards: bool = True
    """Whether advantages are divided by the standard deviation of their group."""
    eps: NonNegativeFloat = 1e-6
    """A small number that is added to that deviation."""
    leave_one_out: bool = False
    """Whether a reward is compared with the mean of the others of its group, unscaled (RLOO).

    Otherwise it is compared with the mean of all rewards of its group.
    """
    temperature: NonNegativeFloat = 1.0
    """The temperature at which completions were sampled; they are scored at the same."""
    num_generations: PositiveInt | None = None
    """The completions of a group, as a trainer announces it; other sizes are trained as well."""
    trainer: Literal["local", "trl"] = "local"
    """The trainer: ours, or TRL's, which can shard weights and let vLLM sample."""
    trl: Mapping[str, Any] = {}
    """Further arguments of `trl.GRPOConfig`; `trl_settings.EFFECTIVE` lists the permitted ones."""

    @classmethod
    def parse(cls, train_kwargs: Mapping[str, Any] | None) -> Self:
        """Read settings, and refuse settings of TRL that would have no effect.

        Raises:
            UserError: A setting is unknown, its value does not fit, or it has no effect.
        """
        settings = super().parse(train_kwargs)
        if settings.trl and settings.trainer != "trl":
            raise UserError("settings of trl are for trainer = trl")
        check_trl_settings(settings.trl)
        return settings
