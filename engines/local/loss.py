r"""Group-relative advantages and the clipped policy loss, as pure functions.

    advantage    A_i = (r_i - mean(r)) / (std(r) + eps), std with n - 1; A_i = r_i - mean(r) without scaling;
                 A_i = r_i - mean of the others' rewards, leaving one out
    ratio        rho_t = exp(d_t), d_t = log pi(o_t) - log pi_old(o_t), kept within -+ log_ratio_clip;
                 "turn": d_t is the mean over the completion, the same for all of its tokens
    policy       L_t = -min(rho_t A, clip(rho_t, 1 - clip_low, 1 + clip_high) A); at most dual_clip |A| where A < 0
    reference    k3_t = exp(log pi_ref - log pi) - (log pi_ref - log pi) - 1        (>= 0, an estimate of KL(pi, ref)),
                 at most divergence_clip: a token that has become unlikely would outweigh its whole batch
    loss         dapo:     sum over all tokens of (L_t + beta k3_t) / tokens of the batch
                 grpo:     the mean over rows of the mean over each row's tokens

The defaults are those of Memory-R2's released training: a row is one turn of a role, the ratio and the mean are the
turn's. Sources: GRPO: DeepSeekMath, equations 1-4; DAPO: section 3.1 (clip-higher) and 3.3 (token-level loss);
Memory-R2's released code, whose numbers are held by tests.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ...errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

LossKind = Literal["dapo", "grpo"]
RatioLevel = Literal["turn", "token"]

FAR = 20.0
"""Log-ratios beyond this are alike to a divergence that is clipped, as in verl, which Memory-R2 is trained with."""


def advantages(
    rewards: Sequence[float], scale: bool = True, eps: float = 1e-6, leave_one_out: bool = False
) -> list[float]:
    """Rewards of one group relative to one another.

    Args:
        rewards: Of the completions of a group.
        scale: Whether they are divided by their standard deviation.
        eps: Added to the standard deviation.
        leave_one_out: Whether each reward is compared with the mean of the others (RLOO); nothing is scaled then.

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
    if leave_one_out:
        return [(reward - mean) * len(rewards) / (len(rewards) - 1) for reward in rewards]
    by = statistics.stdev(rewards) + eps if scale else 1.0
    return [(reward - mean) / by for reward in rewards]


def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    reference: Tensor | None = None,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 0.0,
    kind: LossKind = "grpo",
    total: float | None = None,
    ratio: RatioLevel = "turn",
    dual_clip: float = 3.0,
    log_ratio_clip: float = 3.0,
    divergence_clip: float = 10.0,
) -> Tensor:
    """The loss of a batch of completions, to be minimised.

    Args:
        logprobs: Of each token under the weights that learn, (rows, tokens).
        old_logprobs: Under the weights that sampled, (rows, tokens).
        advantages: Of each row, or of each token.
        mask: 1 where there is a token, 0 elsewhere.
        reference: Log-probabilities under the frozen reference; None where there is no KL term.
        clip_low: How far below 1 a ratio still counts.
        clip_high: How far above.
        beta: Weight of the KL term.
        kind: How tokens are averaged.
        total: What the sum is divided by, where this is a part of a larger batch (`denominator` of that batch); the
            parts' losses then add up to the batch's.
        ratio: What is compared with the old policy: each token, or the turn as a whole.
        dual_clip: A loss of a bad completion counts up to so many times its advantage; 0: without end.
        log_ratio_clip: Largest distance of a log-ratio from 0; 0: none.
        divergence_clip: Most that the divergence of one token counts; 0: without end.

    Returns:
        A scalar; 0 where no token is there.
    """
    import torch

    rho = ratios(logprobs, old_logprobs, mask, ratio, log_ratio_clip)
    gain = advantages.unsqueeze(-1) if advantages.dim() == 1 else advantages
    each = -torch.minimum(rho * gain, rho.clamp(1 - clip_low, 1 + clip_high) * gain)
    if dual_clip:
        each = torch.where(gain < 0, torch.minimum(each, -dual_clip * gain), each)
    if reference is not None:
        each = each + beta * divergence(logprobs, reference, divergence_clip)
    # Not a product: values in the padding may be infinite.
    each = torch.where(mask > 0, each, torch.zeros_like(each))
    if kind == "grpo":
        each = each / mask.sum(-1, keepdim=True).clamp(min=1)
    return each.sum() / (denominator(mask, kind) if total is None else total)


def ratios(
    logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, level: RatioLevel = "turn", log_ratio_clip: float = 3.0
) -> Tensor:
    """How much likelier than under the old policy each token is, or, the same for all tokens, its turn."""
    import torch

    # Values in the padding may be infinite.
    gap = torch.where(mask > 0, logprobs - old_logprobs, torch.zeros_like(logprobs))
    if level == "turn":
        gap = (gap.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)).expand_as(gap)
    return (gap.clamp(-log_ratio_clip, log_ratio_clip) if log_ratio_clip else gap).exp()


def divergence(logprobs: Tensor, reference: Tensor, most: float = 0.0) -> Tensor:
    """The k3 estimate of the KL divergence from the reference, of each token; at most `most`, unless that is 0."""
    gap = reference - logprobs
    if not most:
        return gap.exp() - gap - 1
    # The exponential of a larger gap could be infinite, and its gradient no number, although it does not count.
    gap = gap.clamp(-FAR, FAR)
    return (gap.exp() - gap - 1).clamp(max=most)


def denominator(mask: Tensor, kind: LossKind) -> float:
    """What the summed loss of a batch is divided by: tokens, or rows."""
    return max(1.0, float(mask.sum())) if kind == "dapo" else float(max(1, mask.shape[0]))
