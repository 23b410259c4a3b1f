"""Rewards by hand, and which questions can be asked when."""

from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from mempiler.optimizers.logo_grpo.reward import Answered, RewardSettings, chosen, penalty, reward, session_rewards
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.programs.recording import Call


def test_the_reward_is_the_mean_score_minus_lambda_times_the_excess(make_history: Any) -> None:
    history = make_history(1, turns=1)  # "I saw Oslo with 1 friends": 6 words
    memory = FactMemory().apply([Edit("INSERT", content="one two three four five six seven eight")])
    rollout: Any = SimpleNamespace(history=history, memory=memory)
    answered = Answered((dspy.Example(), dspy.Example()), (1.0, 0.5))
    # 0.75 - .3 (8 - .7 * 6) / 6
    assert reward(answered, rollout, RewardSettings()) == pytest.approx(0.75 - 0.3 * 3.8 / 6)
    assert reward(answered, rollout, RewardSettings(compression=0.0)) == 0.75
    assert reward(Answered((), ()), rollout, RewardSettings(compression=0.0)) == 0.0


@pytest.mark.parametrize(
    ("kind", "credited"), [("session", [1.0, 0.25]), ("cumulative", [0.625, 0.25]), ("trajectory", [0.5, 0.5])]
)
def test_a_session_is_credited_with_its_questions_with_later_ones_too_or_with_all(make_history, kind, credited) -> None:
    history = make_history(2, turns=1)
    sessions = [SimpleNamespace(item=item) for item in history.items]
    rollout: Any = SimpleNamespace(history=history, memory=FactMemory(), sessions=sessions)
    # A question without evidence is about the last session.
    examples = tuple(dspy.Example(focus=focus) for focus in (("D1:1",), ("D2:1",), ()))
    answered = Answered(examples, (1.0, 0.0, 0.5))
    assert session_rewards(answered, rollout, RewardSettings(), kind) == pytest.approx(credited)


@pytest.mark.parametrize(
    ("error", "refused", "last", "cost"),
    [(None, 0, True, 0.0), ("bad", 0, True, 0.5), (None, 3, True, 0.2), (None, 3, False, 0.5), ("bad", 1, True, 0.7)],
)
def test_penalties_by_completion(error: str | None, refused: int, last: bool, cost: float) -> None:
    call = Call(object(), {}, error=error, refused=refused)
    assert penalty(call, last, RewardSettings()) == pytest.approx(cost)


def test_the_same_seed_chooses_the_same_questions() -> None:
    examples = [dspy.Example(id=n) for n in range(40)]
    one, same, other = (chosen(examples, 5, seed) for seed in ("a", "a", "b"))
    assert one == same != other
    assert len(one) == 5
    assert [example.id for example in one] == sorted(example.id for example in one)
    assert chosen(examples, 40, "a") == examples
