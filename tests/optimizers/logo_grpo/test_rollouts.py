"""Rollouts: the memory before every session is the snapshot, and nothing leaks from one rollout into another."""

import json
import random
from datetime import datetime
from typing import Any

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
    rerun_session,
    roll_out,
    run_parallel,
    single_attempt,
)

from tests.optimizers.logo_grpo.conftest import diligent, fields, names_the_colour


def as_bytes(memory: Any) -> bytes:
    return memory.model_dump_json().encode()


def reckless(kind: str, text: str, rng: random.Random) -> str:
    """Inserts, updates, deletes, asks for ids that are not there, or says something unreadable."""
    if kind != "operations":
        return diligent(kind, text, rng)
    kinds = ("INSERT", "UPDATE", "DELETE", "NONE")
    operations = [
        {
            "op": rng.choice(kinds),
            "memory_id": f"m{rng.randint(1, 6)}",
            "content": f"thing {rng.randint(0, 99)}",
        }
        for _ in range(rng.randint(0, 3))
    ]
    return rng.choice([fields(operations=operations)] * 4 + ["", "[[ ## operations ## ]]\n[{"])


@settings(max_examples=4)
@given(seed=st.integers(0, 10_000), session=st.integers(0, 2), threads=st.sampled_from([1, 4]))
def test_no_rollout_changes_the_memory_of_another(
    world: Any, seed: int, session: int, threads: int
) -> None:
    made = world(reckless)
    writer, history = made.program.method.writer, made.train[0].history
    with dspy.context(
        lm=made.lm.copy(temperature=1.0), adapter=single_attempt(made.program), trace=None
    ):
        taken = run_parallel(
            [lambda n=n: roll_out(writer, history, f"{seed}/{n}") for n in range(3)], threads
        )
        before = [
            [as_bytes(run.memory_before) for run in each.sessions] + [as_bytes(each.memory)]
            for each in taken
        ]
        again = run_parallel(
            [
                lambda n=n: rerun_session(writer, taken[0], session, f"{seed}/local/{n}")
                for n in range(4)
            ],
            threads,
        )
        alone = roll_out(writer, history, f"{seed}/1")
    after = [
        [as_bytes(run.memory_before) for run in each.sessions] + [as_bytes(each.memory)]
        for each in taken
    ]
    assert after == before
    # The members of a local group start from the same bytes, so their first prompts are the same bytes.
    assert {as_bytes(each.sessions[0].memory_before) for each in again} == {
        as_bytes(taken[0].sessions[session].memory_before)
    }
    assert len({json.dumps(each.calls[0].completions[0].messages) for each in again}) == 1
    # What one rollout wrote does not depend on whether others ran beside it.
    assert as_bytes(alone.memory) == as_bytes(taken[1].memory)
    for each in taken:
        ends = [as_bytes(run.memory_after) for run in each.sessions[:-1]]
        assert [as_bytes(run.memory_before) for run in each.sessions[1:]] == ends


@pytest.mark.parametrize("method", ["pgr", "recursive-summary", "turn-rag"])
def test_any_method_that_writes_by_sessions_can_be_rolled_out_and_rerun(
    world: Any, method: str
) -> None:
    def reply(kind: str, text: str, rng: random.Random) -> str:
        return fields(**{kind: "a word" if kind == "summary" else []})

    made = world(reply, method=method)
    history = made.train[0].history
    with dspy.context(
        lm=made.lm.copy(temperature=1.0), adapter=single_attempt(made.program), trace=None
    ):
        taken = roll_out(made.program.method.writer, history, "a")
        again = rerun_session(made.program.method.writer, taken, 1, "b")
    assert [run.item.id for run in taken.sessions] == ["D1", "D2", "D3"]
    assert [run.item.id for run in again.sessions] == ["D2"]
    assert len(again.history) == 2
    assert as_bytes(again.sessions[0].memory_before) == as_bytes(taken.sessions[1].memory_before)


def test_a_rollout_shows_the_writer_the_lines_that_any_other_memory_is_written_from(
    world: Any,
) -> None:
    turn = Turn(id="D1:1", speaker="Ann", text="I sold my boat last Friday.")
    history = History(
        id="ann", items=(Session(id="D1", time=datetime(2023, 1, 30), turns=(turn,)),)
    )
    for single_agent in (False, True):
        made = world(lambda kind, text, rng: fields(**{kind: []}), single_agent=single_agent)
        with dspy.context(lm=made.lm, adapter=single_attempt(made.program), trace=None):
            roll_out(made.program.method.writer, history, "a")
        prompts = [text for _, text, _ in made.engine.asked]
        assert prompts
        assert all("last Friday [27 January 2023]" in text for text in prompts)


def test_a_rollout_never_asks_a_second_time(world: Any) -> None:
    made = world(lambda kind, text, rng: "unreadable", parts=1)
    with dspy.context(lm=made.lm, adapter=single_attempt(made.program), trace=None):
        taken = roll_out(made.program.method.writer, made.train[0].history, "a")
    assert [len(call.completions) for call in taken.calls] == [1, 1, 1]
    assert all(call.error for call in taken.calls)


def test_the_first_failure_of_work_done_together_is_raised() -> None:
    def fail(n: int) -> int:
        if n:
            raise ValueError(str(n))
        return n

    with pytest.raises(ValueError, match="1"):
        run_parallel([lambda n=n: fail(n) for n in range(3)], threads=2)


def careless(kind: str, text: str, rng: Any) -> str:
    """Answers as a diligent policy, but every fourth time nothing readable, and now and then about an unknown id."""
    chance = rng.random()
    if chance < 0.25:
        return "I would rather not."
    if kind == "operations" and chance < 0.5:
        return fields(operations=[{"op": "DELETE", "memory_id": "m99"}])
    return diligent(kind, text, rng)


def rewarded(made: Any, **settings: Any) -> ReplayScorer:
    questions = {
        each.history.id: [other for other in made.train if other.history == each.history]
        for each in made.train
    }
    return ReplayScorer(
        made.program,
        names_the_colour,
        lambda history, n: questions[history.id],
        None,
        RewardSettings(**settings),
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
    again = rewarded(made).replay(made.train[0].history, said)
    assert len(said) == len(rollout.calls) > 8
    assert again.memory == rollout.memory
    assert again.memory.entries()
    assert [run.memory_before for run in again.sessions] == [
        run.memory_before for run in rollout.sessions
    ]
    assert [[each.messages for each in call.completions] for call in again.calls] == [
        [each.messages for each in call.completions] for call in rollout.calls
    ]
    assert [call.prediction for call in again.calls] == [call.prediction for call in rollout.calls]


def test_their_reward_is_that_of_the_rollout_less_the_mean_penalty(sampled: Any) -> None:
    made, rollout, said = sampled
    own, history = rewarded(made, format_penalty=0.5, unknown_id_penalty=0.2), made.train[0].history
    with dspy.context(adapter=single_attempt(made.program)):
        value = rollout_reward(
            score_answers(made.program, history, rollout.memory, made.train, names_the_colour),
            rollout,
            own.settings,
        )
    costs = [fault_penalty(call, True, own.settings) for call in rollout.calls]
    assert {0.0, 0.2, 0.5} == set(costs)
    found = own.score(own.replay(history, said), history)
    assert found.value == value
    assert found.reward == pytest.approx(value - sum(costs) / len(costs))


def test_completions_that_end_early_are_unreadable_and_too_many_are_refused(sampled: Any) -> None:
    made, _, said = sampled
    found = rewarded(made).replay(made.train[0].history, [])
    assert len(found.calls) > 0
    assert all(call.failed for call in found.calls)
    assert not found.memory.entries()
    with pytest.raises(UserError, match=r"completions, but the writer of user0 asked \d+ times"):
        rewarded(made).replay(made.train[0].history, [*said, "one more"])
