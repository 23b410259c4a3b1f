r"""Group-relative advantages and the clipped policy loss, as pure functions.

    advantage    A_i = (r_i - mean(r)) / (std(r) + eps), std with n - 1; A_i = r_i - mean(r) without scaling
    ratio        rho_t = exp(log pi(o_t) - log pi_old(o_t))
    policy       L_t = -min(rho_t A, clip(rho_t, 1 - clip_low, 1 + clip_high) A)
    reference    k3_t = exp(log pi_ref - log pi) - (log pi_ref - log pi) - 1        (>= 0, an estimate of KL(pi, ref))
    loss         dapo:     sum over all tokens of (L_t + beta k3_t) / tokens of the batch
                 dr_grpo:  the same sum / (rows x the longest completion allowed): no bias to long or short answers
                 grpo:     the mean over rows of the mean over each row's tokens

Sources: GRPO: DeepSeekMath, equations 1-4; DAPO: section 3.1 (clip-higher) and 3.3 (token-level loss);
Dr. GRPO: "Understanding R1-Zero-like training", section 3.2. The same numbers as TRL's trainer, see the tests.

Example:
    >>> from mempiler.engines.local.loss import advantages
    >>> advantages([1.0, 0.0], scale=False)
    [0.5, -0.5]
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ...errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

LossKind = Literal["dapo", "dr_grpo", "grpo"]
KINDS: tuple[LossKind, ...] = ("dapo", "dr_grpo", "grpo")


def advantages(rewards: Sequence[float], scale: bool = True, eps: float = 1e-4) -> list[float]:
    """Rewards of one group relative to one another.

    Args:
        rewards: Of the completions of a group.
        scale: Whether they are divided by their standard deviation (Dr. GRPO leaves that out).
        eps: Added to the standard deviation.

    Returns:
        One advantage per reward; zeros for a group of one, and where all rewards are equal.

    Raises:
        UserError: A reward is no finite number.
    """
    if any(reward - reward != 0 for reward in rewards):
        raise UserError(f"rewards have to be finite numbers, not {list(rewards)}")
    if len(rewards) < 2 or len(set(rewards)) == 1:
        return [0.0] * len(rewards)
    mean = statistics.fmean(rewards)
    by = statistics.stdev(rewards) + eps if scale else 1.0
    return [(reward - mean) / by for reward in rewards]


def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    reference: Tensor | None = None,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    beta: float = 0.0,
    kind: LossKind = "dapo",
    total: float | None = None,
    longest: int | None = None,
) -> Tensor:
    """The loss of a batch of completions, to be minimised.

    Args:
        logprobs: Of each token under the weights that learn, (rows, tokens).
        old_logprobs: Under the weights that sampled, (rows, tokens).
        advantages: Of each row, or of each token.
        mask: 1 where there is a token, 0 elsewhere.
        reference: Log-probabilities under the frozen reference; needed if `beta` > 0.
        clip_low: How far below 1 a ratio still counts.
        clip_high: How far above.
        beta: Weight of the KL term.
        kind: How tokens are averaged.
        total: What the sum is divided by, where this is a part of a larger batch (`denominator` of that batch); the
            parts' losses then add up to the batch's.
        longest: For dr_grpo, the most tokens a completion may have; the width of the batch if None.

    Returns:
        A scalar; 0 where no token is there.

    Raises:
        UserError: `beta` needs a reference, or `kind` is unknown.
    """
    import torch

    ratio = (logprobs - old_logprobs).exp()
    gain = advantages.unsqueeze(-1) if advantages.dim() == 1 else advantages
    each = -torch.minimum(ratio * gain, ratio.clamp(1 - clip_low, 1 + clip_high) * gain)
    if beta > 0:
        if reference is None:
            raise UserError("beta > 0 needs the log-probabilities of a reference")
        each = each + beta * divergence(logprobs, reference)
    # Not a product: values in the padding may be infinite.
    each = torch.where(mask > 0, each, torch.zeros_like(each))
    if kind == "grpo":
        each = each / mask.sum(-1, keepdim=True).clamp(min=1)
    return each.sum() / (denominator(mask, kind, longest) if total is None else total)


def divergence(logprobs: Tensor, reference: Tensor) -> Tensor:
    """The k3 estimate of the KL divergence from the reference, of each token."""
    gap = reference - logprobs
    return gap.exp() - gap - 1


def denominator(mask: Tensor, kind: LossKind, longest: int | None = None) -> float:
    """What the summed loss of a batch is divided by: tokens, rows times the longest completion, or rows.

    Raises:
        UserError: `kind` is unknown.
    """
    if kind == "dapo":
        return max(1.0, float(mask.sum()))
    if kind == "dr_grpo":
        return float(max(1, mask.shape[0] * (mask.shape[1] if longest is None else longest)))
    if kind == "grpo":
        return float(max(1, mask.shape[0]))
    raise UserError(f"loss kind {kind!r} is unknown; choose one of: {', '.join(KINDS)}")
