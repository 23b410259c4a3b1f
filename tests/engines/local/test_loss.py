"""The loss, against numbers worked out by hand."""

import math
from typing import Any

import pytest
import torch
from mempiler.engines.local.loss import (
    BatchSize,
    advantages,
    divergence,
    grpo_loss,
    ratios,
    subtract_faults,
)
from mempiler.engines.local.settings import Reinforcement
from mempiler.errors import UserError

# Advantages.


@pytest.mark.parametrize(
    ("rewards", "expected_advantages"),
    [([1.0, 0.0], [0.5, -0.5]), ([0.3] * 3, [0.0] * 3), ([5.0], [0.0]), ([], [])],
)
def test_advantages_are_rewards_less_their_mean(
    rewards: list[float], expected_advantages: list[float]
) -> None:
    assert advantages(rewards, Reinforcement(scale_rewards=False)) == expected_advantages


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_finite_number_is_refused(reward: float) -> None:
    with pytest.raises(UserError, match="finite"):
        advantages([0.0, reward])


# Four of sixteen members of a group are good.
REWARDS = [1.0] * 4 + [0.9] * 12


def test_the_fault_of_one_member_hardly_changes_the_advantages_of_the_others() -> None:
    last_one_is_unreadable = [0.0] * 15 + [1.0]
    reward_advantages = advantages(REWARDS)

    all_advantages = subtract_faults(
        reward_advantages, {"unreadable": last_one_is_unreadable}, {"unreadable": 0.5}
    )

    changes = [
        after - before for before, after in zip(reward_advantages, all_advantages, strict=True)
    ]
    # The faults have the mean 1/16 and the deviation 1/4 (with n - 1). So the unreadable member is
    # 3.75 deviations above the mean and the others .25 below it, each with the weight .5.
    assert changes[:15] == pytest.approx([0.125] * 15, abs=1e-5)
    assert changes[15] == pytest.approx(-1.875, abs=1e-5)


def test_a_fault_within_the_reward_would_halve_the_advantages_of_the_good_members() -> None:
    """It raises the deviation of all rewards. This is why faults are subtracted afterwards."""
    rewards_with_fault = [*REWARDS[:15], REWARDS[15] - 0.5]
    assert advantages(REWARDS)[0] == pytest.approx(1.677, abs=1e-3)
    assert advantages(rewards_with_fault)[0] == pytest.approx(0.765, abs=1e-3)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param({"unreadable": [1.0, 1.0]}, id="a fault that all members have"),
        pytest.param(
            {"unreadable": [0.0, 0.0], "refused": [1.0, 0.0]}, id="a fault without a weight"
        ),
    ],
)
def test_faults_that_change_no_advantage(faults: dict[str, list[float]]) -> None:
    assert subtract_faults([1.0, -1.0], faults, {"unreadable": 0.5}) == [1.0, -1.0]


# The loss of two completions, of 2 tokens and of 1. The range of the clip is .8 to 1.28.
#
#   advantage     ratio     min(ratio * advantage, clipped ratio * advantage)
#           1       1.5     1.28
#           1        .5      .5
#          -1        .5     -.8
#
# The terms of the loss are these numbers with the other sign; their sum is -.98.

OLD_LOGPROBS = torch.tensor([[-1.0, -2.0], [-0.5, 0.0]])
RATIOS = torch.tensor([[1.5, 0.5], [0.5, 1.0]])
MASK = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
ADVANTAGES = torch.tensor([1.0, -1.0])

PLAIN_SETTINGS: dict[str, Any] = {
    "loss_type": "dapo",
    "clip_high": 0.28,
    "ratio": "token",
    "dual_clip": 0.0,
    "log_ratio_clip": 0.0,
}
"""A mean over all tokens, of token ratios that are clipped as above."""

MEAN_OVER_TOKENS = -0.98 / 3
MEAN_OVER_ROWS = ((-1.28 - 0.5) / 2 + 0.8) / 2


def loss_of_two_completions(
    size: BatchSize | None = None,
    log_ratio_of_reference: float | torch.Tensor | None = None,
    **settings: Any,
) -> float:
    """Return the loss of the two completions.

    Args:
        size: That of the batch of which they are a part; None if they are the whole batch.
        log_ratio_of_reference: log(reference / new); None without a reference.
        **settings: Changes of `PLAIN_SETTINGS`.
    """
    logprobs = OLD_LOGPROBS + RATIOS.log()
    reference_logprobs = None
    if log_ratio_of_reference is not None:
        reference_logprobs = logprobs + log_ratio_of_reference
    all_settings = Reinforcement(**{**PLAIN_SETTINGS, **settings})
    loss = grpo_loss(
        logprobs, OLD_LOGPROBS, ADVANTAGES, MASK, reference_logprobs, all_settings, size
    )
    return float(loss)


def test_the_loss_is_a_mean_over_tokens() -> None:
    assert loss_of_two_completions() == pytest.approx(MEAN_OVER_TOKENS, abs=1e-6)


def test_the_loss_of_grpo_is_a_mean_over_rows() -> None:
    assert loss_of_two_completions(loss_type="grpo") == pytest.approx(MEAN_OVER_ROWS, abs=1e-6)


def test_the_loss_of_a_part_is_its_share_of_the_mean_over_the_batch() -> None:
    batch_size = BatchSize(rows=4, tokens=6)
    assert loss_of_two_completions(batch_size) == pytest.approx(-0.98 / 6, abs=1e-6)
    expected_loss = ((-1.28 - 0.5) / 2 + 0.8) / 4
    assert loss_of_two_completions(batch_size, loss_type="grpo") == pytest.approx(
        expected_loss, abs=1e-6
    )


def test_a_wider_clip_leaves_more_ratios_as_they_are() -> None:
    # The ratio .5 of the second completion is within the range from .4 on.
    expected_loss = (-1.28 - 0.5 + 0.5) / 3
    assert loss_of_two_completions(clip_low=0.6) == pytest.approx(expected_loss, abs=1e-6)


# k3, the estimate of the divergence from the reference, is r - log(r) - 1 for r = reference / new.
K3_OF_TWO = 2 - math.log(2) - 1


def test_the_divergence_from_the_reference_is_added_with_the_weight_beta() -> None:
    loss = loss_of_two_completions(log_ratio_of_reference=math.log(2), beta=0.1)
    assert loss == pytest.approx((-0.98 + 3 * 0.1 * K3_OF_TWO) / 3, abs=1e-6)


def test_the_divergence_is_a_mean_over_tokens_even_in_grpo() -> None:
    # log 2 at the two tokens of the first completion, and 0 at the token of the second one.
    log_ratio = torch.tensor([[math.log(2), math.log(2)], [0.0, 0.0]])
    loss = loss_of_two_completions(log_ratio_of_reference=log_ratio, beta=0.1, loss_type="grpo")
    mean_divergence = 2 * K3_OF_TWO / 3
    assert loss == pytest.approx(MEAN_OVER_ROWS + 0.1 * mean_divergence, abs=1e-6)


# Extreme ratios.


@pytest.mark.parametrize(
    ("log_ratio", "expected_ratio"),
    [
        pytest.param(5.0, math.exp(3.0), id="from above"),
        # With a bound at -3, a turn that has become unlikely would count e^2 times as much.
        pytest.param(-5.0, math.exp(-5.0), id="not from below"),
    ],
)
def test_the_log_ratio_is_bounded_from_above_only(log_ratio: float, expected_ratio: float) -> None:
    old_logprobs = torch.full((1, 2), -1.0)
    bounded_ratios = ratios(
        old_logprobs + log_ratio, old_logprobs, torch.ones(1, 2), Reinforcement()
    )
    assert bounded_ratios.tolist() == [pytest.approx([expected_ratio, expected_ratio])]


@pytest.mark.parametrize(
    ("log_ratio", "most", "expected_divergence"),
    [
        pytest.param(3.0, 0.0, math.exp(3) - 4, id="no bound"),
        pytest.param(3.0, 10.0, 10.0, id="bounded: it would be 16.09"),
        pytest.param(2.0, 10.0, math.exp(2) - 3, id="below the bound"),
        pytest.param(-30.0, 100.0, math.exp(-20) + 20 - 1, id="log ratios are bounded at 20"),
    ],
)
def test_the_divergence_of_one_token_is_bounded(
    log_ratio: float, most: float, expected_divergence: float
) -> None:
    """`log_ratio` is log(reference / new)."""
    new_logprobs = torch.tensor([-1.0 - log_ratio])
    reference_logprobs = torch.tensor([-1.0])
    token_divergence = divergence(new_logprobs, reference_logprobs, most)
    assert float(token_divergence) == pytest.approx(expected_divergence, rel=1e-5)


def test_a_token_that_has_become_very_unlikely_does_not_spoil_the_gradient_of_the_others() -> None:
    # log(reference / new) is .5 and 200; the exponential of 200 is no finite number.
    logprobs = torch.tensor([[-1.0, -201.0]], requires_grad=True)
    reference_logprobs = torch.tensor([[-0.5, -1.0]])

    loss = grpo_loss(
        logprobs,
        logprobs.detach(),
        torch.zeros(1),
        torch.ones(1, 2),
        reference_logprobs,
        Reinforcement(**PLAIN_SETTINGS, beta=1.0),
    )
    loss.backward()

    # The gradient of k3 is 1 - reference / new.
    gradient_of_first_token = (1 - math.exp(0.5)) / 2
    assert logprobs.grad is not None
    assert logprobs.grad[0].tolist() == pytest.approx([gradient_of_first_token, 0.0])


def test_a_turn_is_clipped_as_a_whole_and_has_a_gradient_at_every_token() -> None:
    old_logprobs = torch.full((2, 2), -1.0)
    log_ratios = torch.tensor(
        [
            [0.1, -0.1],  # their mean is 0, so the ratio of the turn is 1
            [0.4, 0.0],  # their mean is .2; e^.2 is above 1.2, where the clip begins
        ]
    )
    logprobs = (old_logprobs + log_ratios).requires_grad_()

    loss = grpo_loss(logprobs, old_logprobs, torch.tensor([1.0, 1.0]), torch.ones(2, 2))
    loss.backward()

    assert float(loss.detach()) == pytest.approx(-(1.0 + 1.2) / 2)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [
        pytest.approx([-0.25, -0.25]),
        pytest.approx([0.0, 0.0]),
    ]
