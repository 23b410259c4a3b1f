"""The loss of reinforcement (GRPO), against numbers worked out by hand.

A model gives several completions for one prompt, a group, and each gets a reward. Its advantage
says how much better than the others of the group it was. The ratio of a token says how much
likelier the token has become since it was sampled. Training makes the loss smaller, and so makes
the tokens of good completions likelier. A clip bounds what a ratio can gain.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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
    """Scaling is the default. The rewards 1 and 0 have the mean 0.5 and the deviation 0.7071."""
    assert advantages([1.0, 0.0], Reinforcement()) == pytest.approx([0.7071, -0.7071], abs=1e-4)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_finite_number_is_refused(reward: float) -> None:
    """The mean of a group would be no number either, and so would every weight of the model."""
    with pytest.raises(UserError, match="finite"):
        advantages([0.0, reward])


# Faults. A fault of a completion is a defect that its reward does not count, such as text that
# cannot be read. A list of faults has a number for each completion of a group: 1 with the fault, 0
# without it.


def test_a_fault_lowers_the_advantage_of_its_completion() -> None:
    """Faults are compared like rewards: less their mean, divided by their deviation.

    The faults 0 and 1 have the mean 0.5 and the deviation 0.7071 (with n - 1).
    """
    all_advantages = subtract_faults(
        [0.0, 0.0], faults={"unreadable": [0.0, 1.0]}, weights={"unreadable": 1.0}
    )

    assert all_advantages == pytest.approx([0.7071, -0.7071], abs=1e-4)


def test_a_fault_counts_with_its_weight() -> None:
    all_advantages = subtract_faults(
        [0.0, 0.0], faults={"unreadable": [0.0, 1.0]}, weights={"unreadable": 0.1}
    )

    assert all_advantages == pytest.approx([0.07071, -0.07071], abs=1e-5)


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


# The loss of some completions. The term of a token is minus its ratio times the advantage of its
# completion, and the loss is a mean of the terms.


class Completion(NamedTuple):
    """A completion on which a model is trained."""

    advantage: float
    ratios: list[float]
    """How much likelier each token has become since it was sampled."""
    reference_ratios: list[float] | None = None
    """How much likelier the model before the training finds each token; None: equally likely."""


PLAIN_SETTINGS: dict[str, Any] = {
    "loss_type": "dapo",
    "clip_low": 0.2,
    "clip_high": 0.28,
    "ratio": "token",
    "dual_clip": 0.0,
    "log_ratio_clip": 0.0,
}
"""A mean over all tokens, of ratios that are clipped to .8 and 1.28; the bounds of 0 are off."""


def padded(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    """Return rows of numbers, filled up with zeros to the length of the longest."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def loss_of(*completions: Completion, size: BatchSize | None = None, **settings: Any) -> float:
    """Return the loss of some completions.

    Args:
        *completions: The completions.
        size: That of the batch of which they are a part; None if they are the whole batch.
        **settings: Changes of `PLAIN_SETTINGS`.
    """
    log_ratios = padded([[math.log(ratio) for ratio in row.ratios] for row in completions])
    log_reference_ratios = padded(
        [
            [math.log(ratio) for ratio in row.reference_ratios or [1.0] * len(row.ratios)]
            for row in completions
        ]
    )
    old_logprobs = torch.full_like(log_ratios, -1.0)  # any numbers: only the ratios matter
    logprobs = old_logprobs + log_ratios
    loss = grpo_loss(
        logprobs,
        old_logprobs,
        row_advantages=torch.tensor([row.advantage for row in completions]),
        mask=padded([[1.0] * len(row.ratios) for row in completions]),
        reference_logprobs=logprobs + log_reference_ratios,
        settings=Reinforcement(**{"beta": 0.0, **PLAIN_SETTINGS, **settings}),
        size=size,
    )
    return float(loss)


def test_the_loss_is_a_mean_over_tokens() -> None:
    """A token whose ratio is 1 adds minus the advantage of its completion."""
    good_one = Completion(advantage=1.0, ratios=[1.0, 1.0])
    bad_one = Completion(advantage=-4.0, ratios=[1.0])

    loss = loss_of(good_one, bad_one)

    assert loss == pytest.approx((-1 - 1 + 4) / 3, abs=1e-6)


def test_the_loss_of_grpo_is_a_mean_over_completions() -> None:
    """The first completion adds -1, the mean of its two tokens, and the second one adds 4."""
    good_one = Completion(advantage=1.0, ratios=[1.0, 1.0])
    bad_one = Completion(advantage=-4.0, ratios=[1.0])

    loss = loss_of(good_one, bad_one, loss_type="grpo")

    assert loss == pytest.approx((-1 + 4) / 2, abs=1e-6)


def test_the_loss_of_a_part_of_a_batch_is_divided_by_the_tokens_of_the_whole_batch() -> None:
    """The part has three tokens of six. The losses of all parts add up to that of the batch."""
    good_one = Completion(advantage=1.0, ratios=[1.0, 1.0])
    bad_one = Completion(advantage=-4.0, ratios=[1.0])

    loss = loss_of(good_one, bad_one, size=BatchSize(rows=4, tokens=6))

    assert loss == pytest.approx((-1 - 1 + 4) / 6, abs=1e-6)


def test_the_loss_of_grpo_of_a_part_of_a_batch_is_divided_by_the_rows_of_the_whole_batch() -> None:
    """The part has two rows of four. The losses of all parts add up to that of the batch."""
    good_one = Completion(advantage=1.0, ratios=[1.0, 1.0])
    bad_one = Completion(advantage=-4.0, ratios=[1.0])

    loss = loss_of(good_one, bad_one, size=BatchSize(rows=4, tokens=6), loss_type="grpo")

    assert loss == pytest.approx((-1 + 4) / 4, abs=1e-6)


@pytest.mark.parametrize(
    ("advantage", "ratio", "expected_loss"),
    [
        pytest.param(1.0, 1.5, -1.28, id="a good token gains no more beyond 1.28"),
        pytest.param(1.0, 0.5, -0.5, id="a good token that became unlikely is not clipped"),
        pytest.param(-1.0, 0.5, 0.8, id="a bad token gains no more below 0.8"),
        pytest.param(-1.0, 1.5, 1.5, id="a bad token that became likelier is not clipped"),
    ],
)
def test_a_ratio_is_clipped_to_the_range_from_08_to_128_where_it_would_gain(
    advantage: float, ratio: float, expected_loss: float
) -> None:
    loss = loss_of(Completion(advantage, ratios=[ratio]), clip_low=0.2, clip_high=0.28)

    assert loss == pytest.approx(expected_loss, abs=1e-6)


def test_a_wider_clip_leaves_more_ratios_as_they_are() -> None:
    """The range begins at 1 - 0.6 = 0.4, so the ratio 0.5 lies in it."""
    loss = loss_of(Completion(advantage=-1.0, ratios=[0.5]), clip_low=0.6)

    assert loss == pytest.approx(0.5, abs=1e-6)


# The reference is the model before the training. The loss also keeps the trained model near to it:
# k3, the estimate of how far it has come, is r - log(r) - 1 for r = reference / new.


def test_the_divergence_from_the_reference_is_added_with_the_weight_beta() -> None:
    """The divergence of a token is r - log(r) - 1, where r is the ratio of reference and model."""
    completion = Completion(advantage=1.0, ratios=[1.0], reference_ratios=[2.0])

    loss = loss_of(completion, beta=0.1)

    loss_without_reference = -1.0
    divergence_of_the_token = 2 - math.log(2) - 1
    assert loss == pytest.approx(loss_without_reference + 0.1 * divergence_of_the_token, abs=1e-6)


def test_the_divergence_is_a_mean_over_tokens_even_in_grpo() -> None:
    """The divergence of a token is r - log(r) - 1, where r is the ratio of reference and model.

    The advantages are 0, so the loss is nothing but the divergence.
    """
    far_from_reference = Completion(0.0, ratios=[1.0, 1.0], reference_ratios=[2.0, 2.0])
    like_reference = Completion(0.0, ratios=[1.0], reference_ratios=[1.0])

    loss = loss_of(far_from_reference, like_reference, beta=1.0, loss_type="grpo")

    divergence_at_2 = 2 - math.log(2) - 1
    assert loss == pytest.approx((divergence_at_2 + divergence_at_2 + 0.0) / 3, abs=1e-6)


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
    """The reference finds the second token e^200 times as likely, which is no finite number."""
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
    """The ratio of a turn is the exponential of the mean of the log-ratios of its tokens."""
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
