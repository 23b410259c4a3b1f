r"""Advantages of a group of completions, and the clipped policy loss, as pure functions.

A row is one completion o of T tokens: in Memory-R2, one turn of a role. A group is the rows whose
rewards are compared. LoGo-GRPO's global and local groups are both plain groups here. pi is the
model that learns, pi_old the one that sampled the rows, pi_ref the frozen reference.

    advantage     A_i = (r_i - mean(r)) / (std(r) + eps)                           GRPO, 4.1.2
                  eps, and std with n - 1                                          released
                  A_i = r_i - mean(r)                     without scale_rewards    Dr. GRPO
                  A_i = r_i - mean of the other rewards   with leave_one_out       RLOO
    faults        A_i = A_i - w_f (f_i - mean(f)) / (std(f) + eps)                 ours
                  for each kind of fault f of weight w_f, normalised like r

    log-ratio     d_t = log pi(o_t) - log pi_old(o_t), at most log_ratio_clip      released
                  d_t = mean of d over the row            with ratio "turn"        released
    ratio         rho_t = exp(d_t)                                                 PPO
    policy loss   L_t = -min(rho_t A, clip(rho_t, 1 - clip_low, 1 + clip_high) A)  GRPO (3)
                  at most dual_clip |A|                   where A < 0              dual-clip PPO (5)
    KL            g_t = log pi_ref(o_t) - log pi(o_t)
                  k_t = exp(g_t) - g_t - 1, at most divergence_clip                GRPO (4)

    loss          mean over rows of the row's mean of L   with loss_type "grpo"    GRPO (3)
                  mean of L over all tokens               with loss_type "dapo"    DAPO, 3.3
                  plus beta times the mean of k over all tokens, in both           released

Sources: GRPO is DeepSeekMath (arXiv 2402.03300). DAPO (2503.14476) has two clips, too, in 3.1.
Dr. GRPO is 2503.20783, RLOO 2402.14740, dual-clip PPO 1912.09729. "Released" is the training code
of Memory-R2 (github.com/ahmedehabb/Memory-R2, a fork of verl): its settings are the defaults, and
tests/conformance/test_memory_r2.py compares this loss with its numbers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import UserError
from .settings import Reinforcement

if TYPE_CHECKING:
    from torch import Tensor

RELEASED = Reinforcement()
"""The settings of Memory-R2's released training."""
MAX_LOG_RATIO = 20.0
"""Bound of the log-ratios in a clipped KL term, on both sides, as in verl."""


@dataclass(frozen=True)
class BatchSize:
    """The numbers that sums over a batch are divided by."""

    rows: int
    tokens: int
    """Tokens of all completions; those of prompts do not count."""


def advantages(rewards: Sequence[float], settings: Reinforcement = RELEASED) -> list[float]:
    """Compare the rewards of one group with one another.

    A group of one and a group of equal rewards have advantages of 0.

    Raises:
        UserError: A reward is not a finite number.
    """
    if not all(math.isfinite(reward) for reward in rewards):
        raise UserError(f"rewards have to be finite numbers, not {list(rewards)}")
    count = len(rewards)
    if count < 2 or len(set(rewards)) == 1:
        return [0.0] * count

    mean = statistics.fmean(rewards)
    if settings.leave_one_out:
        # r_i less the mean of the others is n / (n - 1) times r_i less the mean of all.
        return [(reward - mean) * count / (count - 1) for reward in rewards]
    if not settings.scale_rewards:
        return [reward - mean for reward in rewards]
    deviation = statistics.stdev(rewards) + settings.eps
    return [(reward - mean) / deviation for reward in rewards]


def subtract_faults(
    group_advantages: Sequence[float],
    faults: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    settings: Reinforcement = RELEASED,
) -> list[float]:
    """Subtract from the advantages of one group a term for each kind of fault.

    Faults are normalised within the group as rewards are, but apart from them. A penalty in the
    reward would raise the deviation of all rewards, and so shrink what the good members gain. With
    16 members, one fault of weight 0.5 costs its member 1.9, and the others gain 0.1.

    Args:
        group_advantages: The advantage of each member.
        faults: For each kind of fault, a number for each member: 1 with the fault, 0 without it.
        weights: The weight of each kind that counts, in standard deviations if rewards are scaled.
        settings: How rewards are normalised.
    """
    remaining = list(group_advantages)
    for kind, weight in weights.items():
        fault_terms = advantages(faults[kind], settings)
        for member, term in enumerate(fault_terms):
            remaining[member] -= weight * term
    return remaining


def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    row_advantages: Tensor,
    mask: Tensor,
    reference_logprobs: Tensor | None = None,
    settings: Reinforcement = RELEASED,
    size: BatchSize | None = None,
) -> Tensor:
    """Return the loss of B rows, padded to T tokens; training makes it smaller.

    Args:
        logprobs: log pi of every token, (B, T).
        old_logprobs: log pi_old of every token, (B, T).
        row_advantages: A of every row, (B,).
        mask: 1 where a token is, 0 in the padding, (B, T).
        reference_logprobs: log pi_ref of every token, (B, T); None leaves the KL term out.
        settings: The clips, the kind of ratio, beta and the kind of mean.
        size: The size of the whole batch if these rows are a part of it; the losses of the parts
            then add up to the loss of the batch. None: these rows are the batch.

    Returns:
        A scalar; 0 if there is no token.
    """
    if size is None:
        size = BatchSize(rows=mask.shape[0], tokens=int(mask.sum()))
    token_count = max(1, size.tokens)

    rho = ratios(logprobs, old_logprobs, mask, settings)  # (B, T)
    policy_loss = clipped_policy_loss(rho, row_advantages.unsqueeze(-1), settings)  # (B, T)
    policy_loss = _zero_padding(policy_loss, mask)

    if settings.loss_type == "grpo":
        shares_of_row_means = policy_loss / _row_lengths(mask)  # (B, T)
        loss = shares_of_row_means.sum() / max(1, size.rows)
    else:
        loss = policy_loss.sum() / token_count

    if reference_logprobs is not None:
        kl = divergence(logprobs, reference_logprobs, settings.divergence_clip)  # (B, T)
        loss = loss + settings.beta * _zero_padding(kl, mask).sum() / token_count
    return loss


def ratios(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, settings: Reinforcement) -> Tensor:
    """Return rho, which says how much likelier than under pi_old the tokens have become, (B, T).

    With ratio "turn" all tokens of a row have the ratio of their row: its geometric mean.
    """
    log_ratio = _zero_padding(logprobs - old_logprobs, mask)
    if settings.ratio == "turn":
        row_means = log_ratio.sum(-1, keepdim=True) / _row_lengths(mask)  # (B, 1)
        log_ratio = row_means.expand_as(log_ratio)
    if settings.log_ratio_clip:
        # From above only: for tokens that have become unlikely the ratio goes to 0.
        log_ratio = log_ratio.clamp(max=settings.log_ratio_clip)
    return log_ratio.exp()


def clipped_policy_loss(rho: Tensor, advantage: Tensor, settings: Reinforcement) -> Tensor:
    """Return L of every token, (B, T), of the ratios (B, T) and the advantages (B, 1)."""
    import torch

    clipped_rho = rho.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    policy_loss = -torch.minimum(rho * advantage, clipped_rho * advantage)
    if settings.dual_clip:
        # Where A < 0, the loss of a token that has become likelier would grow without end.
        bounded_loss = torch.minimum(policy_loss, -settings.dual_clip * advantage)
        policy_loss = torch.where(advantage < 0, bounded_loss, policy_loss)
    return policy_loss


def divergence(logprobs: Tensor, reference_logprobs: Tensor, clip: float = 0.0) -> Tensor:
    """Return k of every token, an estimate of KL(pi, pi_ref) that is never negative.

    Args:
        logprobs: log pi of every token, in any shape.
        reference_logprobs: log pi_ref of every token, in the same shape.
        clip: The most that one token counts: a token that has become unlikely would outweigh its
            whole batch. 0 for no bound.
    """
    log_ratio = reference_logprobs - logprobs
    if not clip:
        return log_ratio.exp() - log_ratio - 1
    # If exp() overflowed, the gradient would be NaN although the clip hides the value.
    log_ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (log_ratio.exp() - log_ratio - 1).clamp(max=clip)


def _zero_padding(values: Tensor, mask: Tensor) -> Tensor:
    """Return the values (B, T) with 0 in the padding."""
    import torch

    # Not values * mask: the padding may hold infinities, and inf * 0 is NaN.
    return torch.where(mask > 0, values, torch.zeros_like(values))


def _row_lengths(mask: Tensor) -> Tensor:
    """Return the tokens of every row, (B, 1): 1 instead of 0, as means are divided by them."""
    return mask.sum(-1, keepdim=True).clamp(min=1)
