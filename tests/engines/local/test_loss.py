"""The loss of reinforcement (GRPO), against numbers worked out by hand.

A model gives several completions for one prompt, a group, and each gets a reward. Its advantage
says how much better than the others of the group it was. The ratio of a token says how much
likelier the token has become since it was sampled. Training makes the loss smaller, and so makes
the tokens of good completions likelier. A clip bounds what a ratio can gain.
"""

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
    [
        pytest.param([1.0, 0.0], [0.5, -0.5], id="two"),
        pytest.param([0.3, 0.3, 0.3], [0.0, 0.0, 0.0], id="equal ones"),
        pytest.param([5.0], [0.0], id="one"),
        pytest.param([], [], id="none"),
    ],
)
def test_advantages_are_rewards_less_their_mean(
    rewards: list[float], expected_advantages: list[float]
) -> None:
    settings = Reinforcement(scale_rewards=False)
    assert advantages(rewards, settings) == expected_advantages


def test_scaled_advantages_are_divided_by_the_deviation_of_the_rewards() -> None:
    """This is the default. The deviation of 1 and 0 is .7071 (with n - 1)."""
    assert advantages([1.0, 0.0], Reinforcement()) == pytest.approx([0.7071, -0.7071], abs=1e-4)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_finite_number_is_refused(reward: float) -> None:
    """The mean of a group would be no number either, and so would every weight of the model."""
    with pytest.raises(UserError, match="finite"):
        advantages([0.0, reward])


# Faults. A fault of a completion is a defect that its reward does not count, such as text that
# cannot be read. A list of faults has a number for each completion of a group: 1 with the fault, 0
# without it.


def test_the_fault_of_one_completion_hardly_changes_the_advantages_of_the_others() -> None:
    # A group of sixteen completions: four good ones, eleven worse ones, and one with a fault.
    reward_advantages = advantages([1.0] * 4 + [0.9] * 12)
    last_one_is_unreadable = [0.0] * 15 + [1.0]
    weight = 0.5

    all_advantages = subtract_faults(
        reward_advantages,
        faults={"unreadable": last_one_is_unreadable},
        weights={"unreadable": weight},
    )

    changes = [
        after - before for before, after in zip(reward_advantages, all_advantages, strict=True)
    ]
    # The sixteen faults have the mean 1/16 and the deviation 1/4 (with n - 1). So the 1 of the last
    # completion is 3.75 deviations above the mean, and each 0 of the others is .25 below it.
    assert changes[:15] == pytest.approx([weight * 0.25] * 15, abs=1e-5)
    assert changes[15] == pytest.approx(-weight * 3.75, abs=1e-5)


def test_a_fault_within_a_reward_would_halve_the_advantages_of_good_completions() -> None:
    """It raises the deviation of all rewards. This is why faults are subtracted afterwards."""
    penalty = 0.5
    rewards = [1.0] * 4 + [0.9] * 12
    rewards_with_penalty = [1.0] * 4 + [0.9] * 11 + [0.9 - penalty]

    advantage_of_first_one = advantages(rewards)[0]
    advantage_beside_a_fault = advantages(rewards_with_penalty)[0]

    # A reward less the mean of all, divided by their deviation: .075 / .0447 and .106 / .139.
    assert advantage_of_first_one == pytest.approx(1.677, abs=1e-3)
    assert advantage_beside_a_fault == pytest.approx(0.765, abs=1e-3)


def test_a_fault_that_all_completions_of_a_group_have_changes_no_advantage() -> None:
    """An advantage compares the completions of a group, and in this they do not differ."""
    advantages_of_two = [1.0, -1.0]
    both_are_unreadable = [1.0, 1.0]

    all_advantages = subtract_faults(
        advantages_of_two,
        faults={"unreadable": both_are_unreadable},
        weights={"unreadable": 0.5},
    )

    assert all_advantages == advantages_of_two


def test_a_kind_of_fault_without_a_weight_changes_no_advantage() -> None:
    """The weights say which kinds of faults count. Here only "unreadable" does, and nobody has it.

    A completion is "refused" if it asks for a change of the memory that is impossible.
    """
    advantages_of_two = [1.0, -1.0]
    none_is_unreadable = [0.0, 0.0]
    first_one_is_refused = [1.0, 0.0]

    all_advantages = subtract_faults(
        advantages_of_two,
        faults={"unreadable": none_is_unreadable, "refused": first_one_is_refused},
        weights={"unreadable": 0.5},
    )

    assert all_advantages == advantages_of_two


# The loss of two completions: the first one has two tokens, the second one has one token. The range
# of the clip is .8 to 1.28.
#
#   completion   advantage     ratio     min(ratio * advantage, clipped ratio * advantage)
#            1           1       1.5     1.28
#            1           1        .5      .5
#            2          -1        .5     -.8
#
# The terms of the loss are these numbers with the other sign: -1.28, -.5 and .8.

RATIOS = torch.tensor([[1.5, 0.5], [0.5, 1.0]])
ADVANTAGES = torch.tensor([1.0, -1.0])
MASK = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
"""0 where a row has no token: the second completion is padded to the length of the first one."""
OLD_LOGPROBS = torch.tensor([[-1.0, -2.0], [-0.5, 0.0]])
"""Any numbers: the loss depends on the ratios."""

PLAIN_SETTINGS: dict[str, Any] = {
    "loss_type": "dapo",
    "clip_high": 0.28,
    "ratio": "token",
    "dual_clip": 0.0,
    "log_ratio_clip": 0.0,
}
"""A mean over all tokens, of token ratios that are clipped as above; the bounds of 0 are off."""


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
        logprobs,
        OLD_LOGPROBS,
        row_advantages=ADVANTAGES,
        mask=MASK,
        reference_logprobs=reference_logprobs,
        settings=all_settings,
        size=size,
    )
    return float(loss)


def test_the_loss_is_a_mean_over_tokens() -> None:
    """The first completion has the terms -1.28 and -.5, one for each token, the second one .8."""
    loss = loss_of_two_completions()

    mean_over_tokens = (-1.28 - 0.5 + 0.8) / 3
    assert loss == pytest.approx(mean_over_tokens, abs=1e-6)


def test_the_loss_of_grpo_is_a_mean_over_rows() -> None:
    """The first completion has the terms -1.28 and -.5, one for each token, the second one .8."""
    loss = loss_of_two_completions(loss_type="grpo")

    mean_of_first_completion = (-1.28 - 0.5) / 2
    mean_over_rows = (mean_of_first_completion + 0.8) / 2
    assert loss == pytest.approx(mean_over_rows, abs=1e-6)


def test_the_loss_of_a_part_of_a_batch_is_divided_by_the_tokens_of_the_whole_batch() -> None:
    """So the losses of the parts add up to that of the batch. The terms are -1.28, -.5 and .8."""
    loss = loss_of_two_completions(BatchSize(rows=4, tokens=6))

    assert loss == pytest.approx((-1.28 - 0.5 + 0.8) / 6, abs=1e-6)


def test_the_loss_of_grpo_of_a_part_of_a_batch_is_divided_by_the_rows_of_the_whole_batch() -> None:
    """The first completion has the terms -1.28 and -.5, one for each token, the second one .8."""
    loss = loss_of_two_completions(BatchSize(rows=4, tokens=6), loss_type="grpo")

    mean_of_first_completion = (-1.28 - 0.5) / 2
    assert loss == pytest.approx((mean_of_first_completion + 0.8) / 4, abs=1e-6)


def test_a_wider_clip_leaves_more_ratios_as_they_are() -> None:
    """The ratio of the second completion is .5. A clip that begins at .8 raises it to .8.

    This one begins at 1 - .6 = .4, so the last of the terms -1.28, -.5 and .8 becomes .5.
    """
    loss = loss_of_two_completions(clip_low=0.6)

    assert loss == pytest.approx((-1.28 - 0.5 + 0.5) / 3, abs=1e-6)


# The reference is the model before the training. The loss also keeps the trained model near to it:
# k3, the estimate of how far it has come, is r - log(r) - 1 for r = reference / new.


def test_the_divergence_from_the_reference_is_added_with_the_weight_beta() -> None:
    """The divergence of a token is r - log(r) - 1, where r is the ratio of reference and model.

    Here r is 2 at each token.
    """
    loss = loss_of_two_completions(log_ratio_of_reference=math.log(2), beta=0.1)

    divergence_of_each_token = 2 - math.log(2) - 1
    loss_without_reference = (-1.28 - 0.5 + 0.8) / 3
    expected_loss = loss_without_reference + 0.1 * divergence_of_each_token
    assert loss == pytest.approx(expected_loss, abs=1e-6)


def test_the_divergence_is_a_mean_over_tokens_even_in_grpo() -> None:
    """The divergence of a token is r - log(r) - 1, where r is the ratio of reference and model.

    Here r is 2 at the two tokens of the first completion, and 1 at that of the second one.
    """
    log_ratio = torch.tensor([[math.log(2), math.log(2)], [0.0, 0.0]])

    loss = loss_of_two_completions(log_ratio_of_reference=log_ratio, beta=0.1, loss_type="grpo")

    mean_of_first_completion = (-1.28 - 0.5) / 2
    loss_without_reference = (mean_of_first_completion + 0.8) / 2
    divergence_at_two = 2 - math.log(2) - 1
    mean_divergence = (divergence_at_two + divergence_at_two + 0.0) / 3
    assert loss == pytest.approx(loss_without_reference + 0.1 * mean_divergence, abs=1e-6)


# Extreme ratios.


@pytest.mark.parametrize(
    ("log_ratio", "expected_log_ratio"),
    [
        pytest.param(5.0, 3.0, id="bounded from above"),
        # With a bound at -3, a turn that has become unlikely would count e^2 times as much.
        pytest.param(-5.0, -5.0, id="not bounded from below"),
    ],
)
def test_the_log_ratio_is_bounded_by_3_from_above_only(
    log_ratio: float, expected_log_ratio: float
) -> None:
    old_logprobs = torch.tensor([[-1.0]])  # one completion of one token

    (token_ratio,) = ratios(
        logprobs=old_logprobs + log_ratio,
        old_logprobs=old_logprobs,
        mask=torch.tensor([[1.0]]),
        settings=Reinforcement(),
    )

    assert token_ratio.tolist() == pytest.approx([math.exp(expected_log_ratio)])


@pytest.mark.parametrize(
    ("log_ratio", "bound", "expected_divergence"),
    [
        pytest.param(3.0, 0.0, math.exp(3) - 3 - 1, id="no bound"),
        pytest.param(3.0, 10.0, 10.0, id="bounded: it would be 16.09"),
        pytest.param(2.0, 10.0, math.exp(2) - 2 - 1, id="below the bound"),
        pytest.param(-30.0, 100.0, math.exp(-20) + 20 - 1, id="log ratios are bounded at 20"),
    ],
)
def test_the_divergence_of_one_token_is_bounded(
    log_ratio: float, bound: float, expected_divergence: float
) -> None:
    """`log_ratio` is log(reference / new); the divergence is exp(log_ratio) - log_ratio - 1."""
    new_logprobs = torch.tensor([-1.0 - log_ratio])
    reference_logprobs = torch.tensor([-1.0])
    token_divergence = divergence(new_logprobs, reference_logprobs, clip=bound)
    assert float(token_divergence) == pytest.approx(expected_divergence, rel=1e-5)


def test_a_token_that_has_become_very_unlikely_does_not_spoil_the_gradient_of_the_others() -> None:
    # log(reference / new) is .5 and 200; the exponential of 200 is no finite number.
    logprobs = torch.tensor([[-1.0, -201.0]], requires_grad=True)
    reference_logprobs = torch.tensor([[-0.5, -1.0]])

    loss = grpo_loss(
        logprobs,
        old_logprobs=logprobs.detach(),
        row_advantages=torch.zeros(1),  # so the divergence is all of the loss
        mask=torch.ones(1, 2),
        reference_logprobs=reference_logprobs,
        settings=Reinforcement(**PLAIN_SETTINGS, beta=1.0),
    )
    loss.backward()

    # The gradient of k3 is 1 - reference / new; the loss is a mean over two tokens.
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

    loss = grpo_loss(
        logprobs, old_logprobs, row_advantages=torch.tensor([1.0, 1.0]), mask=torch.ones(2, 2)
    )
    loss.backward()

    # The mean over two turns, of which the second one is clipped, and so has no gradient. Each of
    # the two tokens of the first turn has half of its gradient, which is a half of a whole turn's.
    assert float(loss.detach()) == pytest.approx(-(1.0 + 1.2) / 2)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [
        pytest.approx([-0.25, -0.25]),
        pytest.approx([0.0, 0.0]),
    ]
