"""Settings of training in `train_kwargs`: names and defaults; unknown ones are refused.

Example:
    >>> from mempiler.engines.local.settings import Reinforcement
    >>> Reinforcement.parse({"learning_rate": 2e-4, "beta": 0.02}).batch_size
    48
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from ...errors import UserError
from .loss import KINDS, LEVELS, LossKind, RatioLevel

S = TypeVar("S", bound="Training")


@dataclass(frozen=True)
class Training:
    """What both kinds of training share."""

    learning_rate: float = 1e-5
    """Of AdamW; 1e-5 suits LoRA, 1e-6 a whole model of billions, 2e-4 and more a tiny one."""
    epochs: int = 1
    batch_size: int = 48
    """Completions per step of the optimizer."""
    micro_batch_size: int = 8
    """Most completions of a forward pass: gradients of a batch are accumulated over these; halved where memory ends."""
    gradient_checkpointing: bool = False
    """Whether layers are computed again in the backward pass: a third more work, a fraction of the memory."""
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    seed: int = 0
    """Decides the order of batches."""
    output_dir: str | None = None
    """Where models and checkpoints are written."""

    @classmethod
    def parse(cls: type[S], given: Mapping[str, Any] | None) -> S:
        """Reads `train_kwargs`.

        Raises:
            UserError: A setting is unknown, or its value is of the wrong kind or size.
        """
        known = {field.name: field.default for field in fields(cls)}
        for name, value in (given or {}).items():
            if name not in known:
                raise UserError(f"the local engine has no training setting {name!r}; it has: {', '.join(known)}")
            _check(name, value, known[name])
        return cls(**dict(given or {}))


@dataclass(frozen=True)
class Finetuning(Training):
    """Supervised fine-tuning."""

    epochs: int = 3
    batch_size: int = 8
    steps: int | None = None
    """Steps of the optimizer; None: as many as the epochs take."""
    lora: int | None = None
    """Rank of a new adapter to train; None trains all weights, or the adapter that the model has."""
    cosine: bool = True
    """Whether the learning rate falls to 0 along a cosine."""


@dataclass(frozen=True)
class Reinforcement(Training):
    """Group-relative policy optimization; the clips, the ratio and the mean are those of Memory-R2's released code."""

    beta: float = 0.0
    """Weight of the KL term; above 0, training all weights keeps a copy of the model as reference."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float = 3.0
    """The loss of a completion with a negative advantage counts up to so many times that; 0: without end."""
    log_ratio_clip: float = 3.0
    """Largest distance of a log-ratio from 0; 0: none."""
    divergence_clip: float = 10.0
    """Most that one token's KL term counts, before `beta`; 0: without end."""
    ratio: RatioLevel = "turn"
    """What is compared with the old policy and clipped: each token, or a completion as a whole."""
    loss_type: LossKind = "grpo"
    """How tokens are averaged; "grpo": every completion, which is a turn of a role, weighs the same."""
    scale_rewards: bool = True
    """Whether advantages are divided by the standard deviation of their group."""
    eps: float = 1e-6
    """Added to that deviation."""
    leave_one_out: bool = False
    """Whether a reward is compared with the mean of the others, unscaled (RLOO), instead of with that of all."""
    temperature: float = 1.0
    """At which completions were sampled: they are scored under the same."""
    num_generations: int | None = None
    """Completions of a group, as DSPy announces it; groups of other sizes are trained as well."""
    groups_per_step: int = 1
    """How many groups DSPy's GRPO may send per step."""


def _check(name: str, value: Any, default: Any) -> None:
    named = {"loss_type": KINDS, "ratio": LEVELS}
    if name in named:
        fits = value in named[name]
    elif name == "output_dir":
        fits = value is None or isinstance(value, str)
    elif isinstance(default, bool):
        fits = isinstance(value, bool)
    elif isinstance(default, float):
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
    else:
        least = 0 if name == "seed" else 1
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
        fits = whole or (default is None and value is None)
    if not fits:
        raise UserError(f"training setting {name} = {value!r} does not fit; its default is {default!r}")
