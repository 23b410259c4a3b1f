r"""Group-relative advantages and the clipped policy loss, as pure functions.

    advantage    A_i = (r_i - mean(r)) / (std(r) + eps), std with n - 1; A_i = r_i - mean(r) without scaling;
                 A_i = r_i - mean of the others' rewards, leaving one out;
                 less w (f_i - mean(f)) / (std(f) + eps) for each kind of fault f of weight w, in the same form as r
    ratio        rho_t = exp(d_t), d_t = log pi(o_t) - log pi_old(o_t), at most log_ratio_clip;
                 "turn": d_t is the mean over the completion, the same for all of its tokens
    policy       L_t = -min(rho_t A, clip(rho_t, 1 - clip_low, 1 + clip_high) A); at most dual_clip |A| where A < 0
    reference    k3_t = exp(log pi_ref - log pi) - (log pi_ref - log pi) - 1        (>= 0, an estimate of KL(pi, ref)),
                 at most divergence_clip: a token that has become unlikely would outweigh its whole batch
    loss         dapo:     mean of L_t over all tokens of the batch
                 grpo:     mean over rows of the mean of L_t over each row's tokens
                 both:     plus beta times the mean of k3_t over all tokens of the batch

The defaults are those of Memory-R2's released training: a row is one turn of a role, the ratio and the mean are the
turn's, but the KL term is a mean over tokens. Sources: GRPO: DeepSeekMath, equations 1-4; DAPO: section 3.1
(clip-higher) and 3.3 (token-level loss); Memory-R2's released code, whose numbers are held by tests.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import UserError
from .settings import Reinforcement

if TYPE_CHECKING:
    from torch import Tensor

RELEASED = Reinforcement()
FAR = 20.0
"""Log-ratios beyond this are alike to a divergence that is clipped, as in verl, which Memory-R2 is trained with."""


@dataclass(frozen=True)
class BatchSize:
    """What the sums over a batch are divided by."""

    rows: int
    tokens: int


def advantages(rewards: Sequence[float], settings: Reinforcement = RELEASED) -> list[float]:
    """Rewards of one group relative to one another; zeros for a group of one, and where all rewards are equal.

    Raises:
        UserError: A reward is no finite number.
    """
    if any(reward - reward != 0 for reward in rewards):
        raise UserError(f"rewards have to be finite numbers, not {list(rewards)}")
    if len(rewards) < 2 or len(set(rewards)) == 1:
        return [0.0] * len(rewards)
    mean = statistics.fmean(rewards)
    if settings.leave_one_out:
        return [(reward - mean) * len(rewards) / (len(rewards) - 1) for reward in rewards]
    by = statistics.stdev(rewards) + settings.eps if settings.scale_rewards else 1.0
    return [(reward - mean) / by for reward in rewards]


def less_faults(
    shares: Sequence[float],
    faults: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    settings: Reinforcement = RELEASED,
) -> list[float]:
    """Subtract from the advantages of one group a term for each kind of fault, normalised within the group as they are.

    A fault of one member moves the others by a small amount, whatever their rewards: of 16 members with one fault of
    weight .5 that one loses 1.9 and the others gain .1.

    Args:
        shares: The members' advantages.
        faults: By kind how much of the fault each member has: 1 or 0.
        weights: What each kind costs, in standard deviations where rewards are scaled.
        settings: How rewards are normalised.
    """
    totals = list(shares)
    for kind, weight in weights.items():
        for member, share in enumerate(advantages(faults[kind], settings)):
            totals[member] -= weight * share
    return totals


def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    reference: Tensor | None = None,
    settings: Reinforcement = RELEASED,
    size: BatchSize | None = None,
) -> Tensor:
    """The loss of a batch of completions, to be minimised.

    Args:
        logprobs: Of each token under the weights that learn, (rows, tokens).
        old_logprobs: Under the weights that sampled, (rows, tokens).
        advantages: Of each row.
        mask: 1 where there is a token, 0 elsewhere.
        reference: Log-probabilities under the frozen reference; None where there is no KL term.
        settings: The clips, the ratio, the weight of the KL term, how tokens are averaged.
        size: Rows and tokens of the whole batch, where this is a part of it; the parts' losses then add up to the
            batch's. None: this is all of it.

    Returns:
        A scalar; 0 where no token is there.
    """
    import torch

    rho, gain = ratios(logprobs, old_logprobs, mask, settings), advantages.unsqueeze(-1)
    policy = -torch.minimum(rho * gain, rho.clamp(1 - settings.clip_low, 1 + settings.clip_high) * gain)
    if settings.dual_clip:
        policy = torch.where(gain < 0, torch.minimum(policy, -settings.dual_clip * gain), policy)
    policy = _within(mask, policy)

    rows = mask.shape[0] if size is None else size.rows
    tokens = float(mask.sum()) if size is None else size.tokens
    if settings.loss_type == "grpo":
        row_means = policy / mask.sum(-1, keepdim=True).clamp(min=1)
        loss = row_means.sum() / max(1, rows)
    else:
        loss = policy.sum() / max(1, tokens)

    if reference is not None:
        kl = _within(mask, divergence(logprobs, reference, settings.divergence_clip))
        loss = loss + settings.beta * kl.sum() / max(1, tokens)
    return loss


def _within(mask: Tensor, values: Tensor) -> Tensor:
    """Return the values where there is a token, and 0 elsewhere: values in the padding may be infinite."""
    import torch

    return torch.where(mask > 0, values, torch.zeros_like(values))


def ratios(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, settings: Reinforcement) -> Tensor:
    """How much likelier than under the old policy each token is, or, the same for all tokens, its turn."""
    gap = _within(mask, logprobs - old_logprobs)
    if settings.ratio == "turn":
        gap = (gap.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)).expand_as(gap)
    # Only from above: a token that has become unlikely has a ratio near 0, which explodes nothing.
    return (gap.clamp(max=settings.log_ratio_clip) if settings.log_ratio_clip else gap).exp()


def divergence(logprobs: Tensor, reference: Tensor, most: float = 0.0) -> Tensor:
    """The k3 estimate of the KL divergence from the reference, of each token; at most `most`, unless that is 0."""
    gap = reference - logprobs
    if not most:
        return gap.exp() - gap - 1
    # The exponential of a larger gap could be infinite, and its gradient no number, although it does not count.
    gap = gap.clamp(-FAR, FAR)
    return (gap.exp() - gap - 1).clamp(max=most)
