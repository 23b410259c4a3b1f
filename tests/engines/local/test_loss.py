"""The loss against numbers worked by hand."""

import math

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


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([1.0, 0.0], [0.5, -0.5]), ([0.3] * 3, [0.0] * 3), ([5.0], [0.0]), ([], [])],
)
def test_advantages_are_rewards_less_their_mean(rewards, expected):
    assert advantages(rewards, Reinforcement(scale_rewards=False)) == expected


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_refused(reward):
    with pytest.raises(UserError, match="finite"):
        advantages([0.0, reward])


def test_one_unreadable_member_leaves_the_others_their_advantages():
    # Four of sixteen members are good. With a penalty in its reward, one bad member would raise the deviation of all.
    rewards, unreadable = [1.0] * 4 + [0.9] * 12, [0.0] * 15 + [1.0]
    alone = advantages(rewards)
    together = subtract_faults(alone, {"unreadable": unreadable}, {"unreadable": 0.5})
    # Mean 1/16 and deviation 1/4 (n - 1): 3.75 for the bad member, -.25 for the others, times .5
    assert [round(after - before, 4) for after, before in zip(together, alone, strict=True)] == [
        0.125
    ] * 15 + [-1.875]
    assert alone[0] == pytest.approx(1.677, abs=1e-3)
    in_the_reward = advantages([*rewards[:15], rewards[15] - 0.5])
    assert in_the_reward[0] == pytest.approx(0.765, abs=1e-3)


def test_faults_that_all_members_have_and_kinds_without_a_weight_change_nothing():
    shares, faults = [1.0, -1.0], {"unreadable": [1.0, 1.0], "refused": [1.0, 0.0]}
    assert subtract_faults(shares, faults, {"unreadable": 0.5}) == shares


# Two completions, of 2 and 1 tokens. Ratios: 1.5 and 0.5 (advantage 1), 0.5 (advantage -1); clip range 0.8 to 1.28.
#   -min(1.5, 1.28) = -1.28     -min(0.5, 0.8) = -0.5     -min(-0.5, -0.8) = 0.8      sum -0.98
OLD = [[-1.0, -2.0], [-0.5, 0.0]]
RATIOS = [[1.5, 0.5], [0.5, 1.0]]
MASK = [[1.0, 1.0], [1.0, 0.0]]


DAPO = {
    "loss_type": "dapo",
    "clip_high": 0.28,
    "ratio": "token",
    "dual_clip": 0.0,
    "log_ratio_clip": 0.0,
}


def case(**settings):
    old, mask = torch.tensor(OLD), torch.tensor(MASK)
    new = old + torch.tensor(RATIOS).log()
    size, gap = settings.pop("size", None), settings.pop("reference", None)
    reference, how = None if gap is None else new + gap, Reinforcement(**{**DAPO, **settings})
    return float(grpo_loss(new, old, torch.tensor([1.0, -1.0]), mask, reference, how, size))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"loss_type": "grpo"}, ((-1.28 - 0.5) / 2 + 0.8) / 2),
        ({"size": BatchSize(rows=4, tokens=6)}, -0.98 / 6),
        ({"loss_type": "grpo", "size": BatchSize(rows=4, tokens=6)}, ((-1.28 - 0.5) / 2 + 0.8) / 4),
        ({"clip_low": 0.6}, (-1.28 - 0.5 + 0.5) / 3),
        # log(ref / new) = log 2 everywhere: k3 = 2 - log 2 - 1
        ({"beta": 0.1, "reference": math.log(2)}, (-0.98 + 3 * 0.1 * (1 - math.log(2))) / 3),
        # log(ref / new) is log 2 at the first row's two tokens, 0 at the second's one: a mean over three tokens,
        # where the policy's loss is a mean over two rows
        (
            {
                "loss_type": "grpo",
                "beta": 0.1,
                "reference": torch.tensor([[math.log(2)] * 2, [0.0] * 2]),
            },
            ((-1.28 - 0.5) / 2 + 0.8) / 2 + 0.1 * 2 * (1 - math.log(2)) / 3,
        ),
    ],
)
def test_the_loss_is_the_one_worked_out_by_hand(settings, expected):
    assert case(**settings) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("gap", "ratio"),
    [
        (5.0, math.exp(3.0)),
        # A turn that has become unlikely keeps its small ratio; bounded at -3, it would have counted e^2 times as much.
        (-5.0, math.exp(-5.0)),
    ],
)
def test_the_log_ratio_is_bounded_from_above_only(gap, ratio):
    found = ratios(
        torch.full((1, 2), gap - 1.0), torch.full((1, 2), -1.0), torch.ones(1, 2), Reinforcement()
    )
    assert found.tolist() == [pytest.approx([ratio, ratio])]


@pytest.mark.parametrize(
    ("gap", "most", "expected"),
    [
        # exp(3) - 3 - 1 = 16.0855, of which 10 count
        (3.0, 0.0, math.exp(3) - 4),
        (3.0, 10.0, 10.0),
        (2.0, 10.0, math.exp(2) - 3),
        (-30.0, 100.0, math.exp(-20) + 20 - 1),
    ],
)
def test_the_divergence_of_one_token_counts_so_much_at_most(gap, most, expected):
    found = divergence(torch.tensor([-1.0 - gap]), torch.tensor([-1.0]), most)
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_a_token_that_has_become_very_unlikely_leaves_the_batch_its_gradient():
    # The second token's log-ratio of 200 has no finite exponential; the first one's k3 has the gradient 1 - exp(gap).
    new = torch.tensor([[-1.0, -201.0]], requires_grad=True)
    reference = torch.tensor([[-0.5, -1.0]])
    settings = Reinforcement(**DAPO, beta=1.0)
    grpo_loss(new, new.detach(), torch.zeros(1), torch.ones(1, 2), reference, settings).backward()
    assert new.grad is not None
    assert new.grad[0].tolist() == pytest.approx([(1 - math.exp(0.5)) / 2, 0.0])


def test_a_turn_is_clipped_as_a_whole_and_has_a_gradient_at_every_token():
    # Log-ratios .1 and -.1: each token is within the range, the turn's ratio is 1; .4 and 0: the turn's is e^.2 > 1.2
    old = torch.full((2, 2), -1.0)
    new = (old + torch.tensor([[0.1, -0.1], [0.4, 0.0]])).requires_grad_()
    loss = grpo_loss(new, old, torch.tensor([1.0, 1.0]), torch.ones(2, 2))
    assert float(loss.detach()) == pytest.approx(-(1.0 + 1.2) / 2)
    loss.backward()
    assert new.grad is not None
    assert new.grad.flatten().tolist() == pytest.approx([-0.25, -0.25, 0.0, 0.0])
