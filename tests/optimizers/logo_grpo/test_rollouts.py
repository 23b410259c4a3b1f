"""Rollouts: every session begins from the memory before it, and no rollout changes another.

In a rollout, the model that is trained (the policy) writes the sessions of a history into a memory.
A rerun writes one session of a rollout once more, from the same memory before it. A replay repeats
a rollout with given completions in place of the policy, to compute their reward.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler import History, Session, Turn
from mempiler.errors import UserError
from mempiler.optimizers.logo_grpo.completion_replay import ReplayScorer
from mempiler.optimizers.logo_grpo.reward import (
    RewardSettings,
    fault_penalty,
    rollout_reward,
    score_answers,
)
from mempiler.optimizers.logo_grpo.rollout import (
    Rollout,
    rerun_session,
    roll_out,
    run_parallel,
    single_attempt,
)

from ...scripted_engine import chat_fields
from .conftest import PolicyCall, World, diligent, names_the_colour


def as_bytes(memory: Any) -> bytes:
    """Return a memory as bytes, by which equal memories are recognized."""
    return memory.model_dump_json().encode()


def all_memories(rollout: Rollout) -> list[bytes]:
    """Return the memories before every session of a rollout, and the last one."""
    memories = [as_bytes(session.memory_before) for session in rollout.sessions]
    return [*memories, as_bytes(rollout.memory)]


def sampling(world: World) -> AbstractContextManager[Any]:
    """Return a context in which the policy is sampled as in a training."""
    return dspy.context(
        lm=world.lm.copy(temperature=1.0), adapter=single_attempt(world.program), trace=None
    )


def reckless(call: PolicyCall) -> str:
    """Insert, update, delete, name unknown ids, and now and then return something unreadable."""
    if call.kind != "operations":
        return diligent(call)

    rng = call.rng
    if rng.random() < 0.2:
        return ""
    if rng.random() < 0.2:
        return "[[ ## operations ## ]]\n[{"
    operations: list[dict[str, str]] = []
    for _ in range(rng.randint(0, 3)):
        operation = rng.choice(["INSERT", "UPDATE", "DELETE", "NONE"])
        memory_id = f"m{rng.randint(1, 6)}"
        content = f"thing {rng.randint(0, 99)}"
        operations.append({"op": operation, "memory_id": memory_id, "content": content})
    return chat_fields(operations=operations)


def roll_out_three(world: World, seed: int, threads: int) -> list[Rollout]:
    """Return three rollouts of one history, with the seeds SEED/0 to SEED/2, made by threads."""
    writer = world.program.method.writer
    calls = [
        partial(roll_out, writer, world.first_history, f"{seed}/{number}") for number in range(3)
    ]
    with sampling(world):
        return run_parallel(calls, threads)


def rerun_four_times(
    world: World, rollout: Rollout, session: int, seed: int, threads: int
) -> list[Rollout]:
    """Write one session of a rollout four times more."""
    writer = world.program.method.writer
    calls = [
        partial(rerun_session, writer, rollout, session, f"{seed}/local/{number}")
        for number in range(4)
    ]
    with sampling(world):
        return run_parallel(calls, threads)


@settings(max_examples=4)
@given(
    seed=st.integers(0, 10_000),
    session=st.integers(0, 2),
    threads=st.sampled_from([1, 4]),
)
def test_reruns_of_a_session_begin_with_the_memory_before_it_and_change_no_rollout(
    make_world, seed: int, session: int, threads: int
) -> None:
    """A rerun writes one session of a rollout once more, from the same memory and first prompt.

    The policy `reckless` inserts, changes and deletes at random.
    """
    world = make_world(reckless)
    rollouts = roll_out_three(world, seed, threads)
    memories_before = [all_memories(rollout) for rollout in rollouts]

    reruns = rerun_four_times(world, rollouts[0], session, seed, threads)

    memory_before = as_bytes(rollouts[0].sessions[session].memory_before)
    assert {as_bytes(rerun.sessions[0].memory_before) for rerun in reruns} == {memory_before}
    first_prompts = {json.dumps(rerun.calls[0].completions[0].messages) for rerun in reruns}
    assert len(first_prompts) == 1
    assert [all_memories(rollout) for rollout in rollouts] == memories_before


@settings(max_examples=4)
@given(seed=st.integers(0, 10_000), threads=st.sampled_from([1, 4]))
def test_a_rollout_among_others_writes_what_it_would_write_alone(
    make_world, seed: int, threads: int
) -> None:
    """In a rollout, the model that is trained (the policy) writes a history into a memory.

    The policy `reckless` inserts, changes and deletes at random, by the seed. The second of three
    rollouts has the seed SEED/1.
    """
    world = make_world(reckless)

    _, second, _ = roll_out_three(world, seed, threads)
    with sampling(world):
        alone = roll_out(world.program.method.writer, world.first_history, f"{seed}/1")

    assert as_bytes(alone.memory) == as_bytes(second.memory)


def test_every_session_of_a_rollout_begins_with_the_memory_of_the_session_before(
    make_world,
) -> None:
    """In a rollout, the model that is trained (the policy) writes the sessions of a history.

    The policy `reckless` inserts, changes and deletes at random.
    """
    world = make_world(reckless, sessions=3)

    with sampling(world):
        rollout = roll_out(world.program.method.writer, world.first_history, "a")

    first, second, third = rollout.sessions
    assert as_bytes(second.memory_before) == as_bytes(first.memory_after)
    assert as_bytes(third.memory_before) == as_bytes(second.memory_after)


def short_answers(call: PolicyCall) -> str:
    """Write a summary of two words, and nothing else."""
    if call.kind == "summary":
        return chat_fields(summary="a word")
    return chat_fields(**{call.kind: []})


@pytest.mark.parametrize("method", ["pgr", "recursive-summary", "turn-rag"])
def test_any_method_that_writes_by_sessions_can_be_rolled_out_and_rerun(
    make_world, method: str
) -> None:
    """A rollout writes the sessions D1 to D3 into a memory. A rerun writes D2 once more."""
    world = make_world(short_answers, method=method)
    writer = world.program.method.writer

    with sampling(world):
        rollout = roll_out(writer, world.first_history, "a")
        rerun = rerun_session(writer, rollout, 1, "b")

    assert [session.item.id for session in rollout.sessions] == ["D1", "D2", "D3"]
    assert [session.item.id for session in rerun.sessions] == ["D2"]
    # The history of a rerun ends with its session.
    assert [item.id for item in rerun.history] == ["D1", "D2"]
    memory_before_d2 = rollout.sessions[1].memory_before
    assert as_bytes(rerun.sessions[0].memory_before) == as_bytes(memory_before_d2)


@pytest.mark.parametrize("single_agent", [False, True])
def test_prompts_of_a_rollout_show_a_date_behind_words_like_last_friday(
    make_world, single_agent: bool
) -> None:
    """The session was on Monday, 30 January 2023, so "last Friday" was the 27th.

    With `single_agent`, Memory-R2 writes with one prompt, and else with two.
    """
    turn = Turn(id="D1:1", speaker="Ann", text="I sold my boat last Friday.")
    session = Session(id="D1", time=datetime(2023, 1, 30), turns=(turn,))
    history = History(id="ann", items=(session,))
    world = make_world(short_answers, single_agent=single_agent)

    with sampling(world):
        roll_out(world.program.method.writer, history, "a")

    assert len(world.engine.calls) > 0
    for call in world.engine.calls:
        assert "last Friday [27 January 2023]" in call.text


def test_a_rollout_does_not_ask_again_for_a_completion_that_cannot_be_read(make_world) -> None:
    """In a training the model has to learn from it. Elsewhere the model would be asked once more.

    The writer makes one call for each of three sessions.
    """
    world = make_world(lambda call: "unreadable", sessions=3, parts=1)

    with sampling(world):
        rollout = roll_out(world.program.method.writer, world.first_history, "a")

    assert len(rollout.calls) == 3
    for call in rollout.calls:
        assert len(call.completions) == 1
        assert call.error


def test_of_several_failures_in_parallel_work_the_first_one_is_raised() -> None:
    """Of three calls the last two fail."""

    def fail_unless_zero(number: int) -> int:
        if number > 0:
            raise ValueError(f"failure {number}")
        return number

    with pytest.raises(ValueError, match="failure 1"):
        run_parallel([partial(fail_unless_zero, number) for number in range(3)], threads=2)


def careless(call: PolicyCall) -> str:
    """Work diligently, but often return nothing readable or delete an unknown memory."""
    chance = call.rng.random()
    if chance < 0.25:
        return "I would rather not."
    if call.kind == "operations" and chance < 0.5:
        return chat_fields(operations=[{"op": "DELETE", "memory_id": "m99"}])
    return diligent(call)


def replay_scorer(world: World, **reward_settings: Any) -> ReplayScorer:
    """Return a scorer that asks all training questions about a history, however short it is."""

    def questions_of(history: History, sessions: int) -> Sequence[dspy.Example]:
        return [example for example in world.train if example.history.id == history.id]

    return ReplayScorer(
        world.program,
        names_the_colour,
        questions_of,
        settings=RewardSettings(**reward_settings),
    )


class SampledRollout(NamedTuple):
    """A rollout, with the completions of the policy in the order of the calls."""

    world: World
    rollout: Rollout
    completions: list[str]


@pytest.fixture
def sampled(make_world: Callable[..., World]) -> SampledRollout:
    """A rollout of a policy whose answers often cannot be read or delete unknown memories."""
    world = make_world(careless, sessions=4, people=1)
    rollout = replay_scorer(world).write(world.first_history, world.lm.copy(temperature=1.0))
    completions = list(world.engine.completions)
    assert len(completions) == len(rollout.calls) > 8
    return SampledRollout(world, rollout, completions)


def prompts_of(rollout: Rollout) -> list[Any]:
    """Return the messages of every call of a rollout."""
    return [completion.messages for call in rollout.calls for completion in call.completions]


def test_a_replay_writes_the_same_memory_from_the_same_prompts(sampled: SampledRollout) -> None:
    """A replay repeats a rollout with given completions, and asks no model."""
    rollout = sampled.rollout
    scorer = replay_scorer(sampled.world)

    replayed = scorer.replay(sampled.world.first_history, sampled.completions)

    assert len(rollout.memory.entries()) > 0
    assert replayed.memory == rollout.memory
    assert all_memories(replayed) == all_memories(rollout)
    assert prompts_of(replayed) == prompts_of(rollout)
    predictions = [call.prediction for call in rollout.calls]
    assert [call.prediction for call in replayed.calls] == predictions


def test_the_reward_of_a_replay_is_that_of_its_rollout_less_the_mean_penalty(
    sampled: SampledRollout,
) -> None:
    """A replay repeats a rollout with given completions, and asks no model.

    Each call has a penalty: 0.5 if it could not be read, 0.2 for unknown memories, or none.
    """
    world = sampled.world
    rollout = sampled.rollout
    history = world.first_history
    scorer = replay_scorer(world, format_penalty=0.5, unknown_id_penalty=0.2)
    with sampling(world):
        scores = score_answers(
            world.program, history, rollout.memory, world.train, names_the_colour
        )
    reward_of_rollout = rollout_reward(scores, rollout, scorer.settings)
    penalties = [fault_penalty(call, True, scorer.settings) for call in rollout.calls]
    assert set(penalties) == {0.0, 0.2, 0.5}

    reward = scorer.score(scorer.replay(history, sampled.completions), history)

    assert reward.value == reward_of_rollout
    mean_penalty = sum(penalties) / len(penalties)
    assert reward.reward == pytest.approx(reward_of_rollout - mean_penalty)


def test_completions_that_a_replay_lacks_count_as_unreadable(sampled: SampledRollout) -> None:
    """A replay repeats a rollout with given completions. Here none are given."""
    scorer = replay_scorer(sampled.world)

    replayed = scorer.replay(sampled.world.first_history, completions=[])

    assert len(replayed.calls) > 0
    for call in replayed.calls:
        assert call.failed
    assert not replayed.memory.entries()


def test_a_replay_refuses_more_completions_than_it_has_calls(sampled: SampledRollout) -> None:
    """A replay repeats a rollout with given completions. Here one too many is given."""
    scorer = replay_scorer(sampled.world)
    one_too_many = [*sampled.completions, "one more"]

    with pytest.raises(UserError, match=r"completions, but the writer of user0 asked \d+ times"):
        scorer.replay(sampled.world.first_history, one_too_many)
