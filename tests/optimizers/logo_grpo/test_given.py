"""Rollouts with given completions are those of the model that gave them: prompts, memory and reward."""

from typing import Any

import dspy
import pytest
from mempiler.errors import UserError
from mempiler.optimizers.logo_grpo.given_completions import Rewarded
from mempiler.optimizers.logo_grpo.reward import RewardSettings, answer, penalty, reward
from mempiler.optimizers.logo_grpo.rollout import single_attempt

from tests.optimizers.logo_grpo.conftest import diligent, fields, names_the_colour


def careless(kind: str, text: str, rng: Any) -> str:
    """Answers as a diligent policy, but every fourth time nothing readable, and now and then about an unknown id."""
    chance = rng.random()
    if chance < 0.25:
        return "I would rather not."
    if kind == "operations" and chance < 0.5:
        return fields(operations=[{"op": "DELETE", "memory_id": "m99"}])
    return diligent(kind, text, rng)


def rewarded(made: Any, **settings: Any) -> Rewarded:
    questions = {
        each.history.id: [other for other in made.train if other.history == each.history] for each in made.train
    }
    return Rewarded(
        made.program, names_the_colour, lambda history, n: questions[history.id], None, RewardSettings(**settings)
    )


@pytest.fixture
def sampled(world: Any) -> Any:
    """A world, a rollout of a careless policy in it, and its completions in the order of the calls."""
    made = world(careless, sessions=4, people=1)
    heard: list[str] = []
    complete = made.engine.complete

    def listening(request: Any) -> Any:
        response = complete(request)
        heard.append(response.message.text)
        return response

    made.engine.complete = listening
    lm = made.lm.copy(temperature=1.0)
    return made, rewarded(made).write(made.train[0].history, lm), heard


def test_given_completions_write_the_same_memory_from_the_same_prompts(sampled: Any) -> None:
    made, rollout, said = sampled
    again = rewarded(made).written(made.train[0].history, said)
    assert len(said) == len(rollout.calls) > 8
    assert again.memory == rollout.memory
    assert again.memory.entries()
    assert [run.before for run in again.sessions] == [run.before for run in rollout.sessions]
    assert [[each.messages for each in call.completions] for call in again.calls] == [
        [each.messages for each in call.completions] for call in rollout.calls
    ]
    assert [call.prediction for call in again.calls] == [call.prediction for call in rollout.calls]


def test_their_reward_is_that_of_the_rollout_less_the_mean_penalty(sampled: Any) -> None:
    made, rollout, said = sampled
    own, history = rewarded(made), made.train[0].history
    with dspy.context(adapter=single_attempt(made.program)):
        value = reward(
            answer(made.program, history, rollout.memory, made.train, names_the_colour), rollout, own.settings
        )
    costs = [penalty(call, True, own.settings) for call in rollout.calls]
    assert {0.0, 0.2, 0.5} == set(costs)
    found = own.worth(own.written(history, said), history)
    assert found.value == value
    assert found.reward == pytest.approx(value - sum(costs) / len(costs))


def test_completions_that_end_early_are_unreadable_and_too_many_are_refused(sampled: Any) -> None:
    made, _, said = sampled
    found = rewarded(made).written(made.train[0].history, [])
    assert len(found.calls) > 0
    assert all(call.lost for call in found.calls)
    assert not found.memory.entries()
    with pytest.raises(UserError, match=r"completions, but the writer of user0 asked \d+ times"):
        rewarded(made).written(made.train[0].history, [*said, "one more"])
