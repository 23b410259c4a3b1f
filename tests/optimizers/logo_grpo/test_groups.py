"""Groups of completions: who is compared with whom, and that nothing malformed is lost.

In a rollout, the policy (the model that is trained) writes the sessions of a history into a memory.
A training compares completions by their rewards, within a group. A global group has the completions
of a session in several rollouts. A local group has completions of several reruns, which write the
session again from the same memory. A role is a prompt that writes: `extract_facts` or `manage`.
The objective "grpo" has only global groups, and "local" has only local ones.
"""

from collections import Counter
from typing import Any

import dspy
import pytest
from mempiler.data.dataset import questions_after
from mempiler.errors import UserError
from mempiler.optimizers.logo_grpo.collect import Batch, Collector
from mempiler.optimizers.logo_grpo.groups import Group, GroupKey, Member
from mempiler.optimizers.logo_grpo.policy import questions_by_history
from mempiler.optimizers.logo_grpo.reward import Faults, RewardSettings
from mempiler.optimizers.logo_grpo.rollout import single_attempt
from mempiler.optimizers.logo_grpo.settings import Curriculum, TrainingSettings
from mempiler.programs.call_recorder import Completion
from mempiler.records import History

from ...scripted_engine import chat_fields
from .conftest import PolicyCall, World, diligent


def exact_match(example: dspy.Example, prediction: dspy.Prediction) -> float:
    """Return whether the answer is the gold answer."""
    return float(example.answer == prediction.answer)


def collect_batch(
    world: World,
    num_rollouts: int = 4,
    local_n: int = 3,
    horizon: int = 3,
    metric: Any = exact_match,
    **settings: Any,
) -> Batch:
    """Collect the groups of one training step.

    Args:
        world: The policy, and questions about people.
        num_rollouts: How often the history is written.
        local_n: How often each session of it is rerun.
        horizon: How many sessions of the history are written.
        metric: Scores the answers.
        **settings: Other settings of the training.
    """
    questions = questions_by_history(world.train)

    def questions_of(history: History, sessions: int) -> Any:
        return questions_after(questions[history], history, sessions)

    settings = {
        "num_rollouts": num_rollouts,
        "local_n": local_n,
        "local_fraction": 1.0,
        "histories": 1,
        "threads": 4,
        **settings,
    }
    collector = Collector(
        world.program, list(questions), questions_of, metric, TrainingSettings(**settings)
    )
    with dspy.context(adapter=single_attempt(world.program), trace=None):
        return collector.collect(1, horizon, world.lm.copy(temperature=1.0), world.lm)


def test_every_role_has_global_and_local_groups_for_every_session(make_world) -> None:
    """A role is a prompt that writes: one extracts facts, and one manages the memory."""
    batch = collect_batch(make_world(people=1), horizon=3)

    keys = [group.key for group in batch.groups]
    assert {key.kind for key in keys} == {"global", "local"}
    assert {key.role for key in keys} == {"extract_facts", "manage"}
    assert {key.session for key in keys} == {"D1", "D2", "D3"}


def test_a_group_has_a_member_for_every_rollout_or_rerun(make_world) -> None:
    """Global groups are of rollouts, and local ones of reruns."""
    batch = collect_batch(make_world(people=1), num_rollouts=4, local_n=3)

    sizes = {(group.key.kind, len(group.members)) for group in batch.groups}
    assert sizes == {("global", 4), ("local", 3)}


def test_the_members_of_a_group_have_the_same_system_message(make_world) -> None:
    """They are completions of one prompt that writes."""
    batch = collect_batch(make_world(people=1))

    assert len(batch.groups) > 0
    for group in batch.groups:
        system_messages = {member.completion.messages[0]["content"] for member in group.members}
        assert len(system_messages) == 1


@pytest.mark.parametrize(("objective", "kind"), [("grpo", "global"), ("local", "local")])
def test_an_objective_has_only_groups_of_its_kind(make_world, objective: str, kind: str) -> None:
    batch = collect_batch(make_world(people=1), objective=objective)

    assert {group.key.kind for group in batch.groups} == {kind}


def test_local_rewards_ask_the_questions_of_a_rerun_right_after_its_session(make_world) -> None:
    """There is one question about each of the three sessions D1, D2 and D3.

    After the one rollout all three are asked. Then each session is rerun three times, and after
    session n there are n questions to ask.
    """
    asked_evidence: list[str] = []

    def note_and_score(example: dspy.Example, prediction: dspy.Prediction) -> float:
        asked_evidence.append(example.evidence_ids[0])
        return exact_match(example, prediction)

    collect_batch(
        make_world(people=1),
        metric=note_and_score,
        objective="local",
        num_rollouts=1,
        local_n=3,
        threads=1,
    )

    assert len(asked_evidence) == 3 + 3 * (1 + 2 + 3)
    assert asked_evidence[3:6] == ["D1:1", "D1:1", "D1:1"]


def test_all_members_are_asked_the_same_questions_and_no_more_than_are_set(make_world) -> None:
    """There are six questions, of which two may be asked after each of the four rollouts."""
    asked_ids: list[str] = []

    def note_question(example: dspy.Example, prediction: dspy.Prediction) -> float:
        asked_ids.append(example.id)
        return 0.0

    collect_batch(
        make_world(people=1, sessions=6),
        num_rollouts=4,
        horizon=6,
        metric=note_question,
        objective="grpo",
        threads=1,
        reward=RewardSettings(questions=2),
    )

    counts_by_question = Counter(asked_ids)
    assert list(counts_by_question.values()) == [4, 4]


def test_groups_without_variance_are_dropped_and_counted(make_world) -> None:
    """All completions are unreadable, so all rewards are equal, and nothing can be learned.

    There is one group of each kind for each of three sessions.
    """
    world = make_world(lambda call: "unreadable", people=1, parts=1)

    batch = collect_batch(world, horizon=3)

    assert batch.groups == ()
    assert batch.statistics.no_variance_global == 3
    assert batch.statistics.no_variance_local == 3
    assert batch.statistics.format_failures == 1.0


KEY = GroupKey("local", "user0", "D1", "manage", call=1, start=0)
NO_COMPLETION = Completion((), "")


@pytest.mark.parametrize(
    ("rewards", "varies"),
    [
        ([1.0, 1.0], False),
        ([0.0, 1e-3], True),
        # Rounding errors are no differences.
        ([0.3, 0.1 + 0.2], False),
    ],
)
def test_a_group_varies_if_its_rewards_differ(rewards: list[float], varies: bool) -> None:
    """Only a group that varies can be learned from."""
    members = tuple(Member(NO_COMPLETION, reward) for reward in rewards)

    assert Group(KEY, members).varies is varies


@pytest.mark.parametrize(
    ("fault_weights", "varies"),
    [({}, False), ({"refused": 0.2}, False), ({"unreadable": 0.5}, True)],
)
def test_equal_rewards_vary_if_a_member_has_a_fault_that_costs_something(
    fault_weights: dict[str, float], varies: bool
) -> None:
    """The second completion could not be read, but its operations were not refused."""
    members = (
        Member(NO_COMPLETION, 0.3),
        Member(NO_COMPLETION, 0.3, Faults(unreadable=True)),
    )

    assert Group(KEY, members, fault_weights).varies is varies


def managing_groups(make_world: Any, bad_completion: str) -> list[Group]:
    """Return groups of the prompt `manage`, of which about half the completions are this one."""

    def bad_half_of_the_time(call: PolicyCall) -> str:
        if call.kind == "operations" and call.rng.random() < 0.5:
            return bad_completion
        return diligent(call, share=1.0)

    batch = collect_batch(
        make_world(bad_half_of_the_time, people=1),
        objective="grpo",
        num_rollouts=8,
        reward=RewardSettings(format_penalty=0.5, unknown_id_penalty=0.2, compression=0.0),
    )
    groups = [group for group in batch.groups if group.key.role == "manage"]
    assert len(groups) > 0
    return groups


UNREADABLE = {"unreadable": 1.0, "refused": 0.0}
REFUSED = {"unreadable": 0.0, "refused": 1.0}
WITHOUT_FAULT = {"unreadable": 0.0, "refused": 0.0}


@pytest.mark.parametrize(
    ("bad_completion", "expected_faults"),
    [
        pytest.param('[[ ## operations ## ]]\n[{"op": "INS', UNREADABLE, id="half a word"),
        pytest.param(
            '[[ ## operations ## ]]\n[{"op": "INSERT", "content"',
            UNREADABLE,
            id="half an operation",
        ),
        pytest.param(
            chat_fields(operations=[{"op": "DELETE", "memory_id": "m99"}]),
            REFUSED,
            id="an operation on an id that was not shown",
        ),
        pytest.param("", UNREADABLE, id="an empty completion"),
    ],
)
def test_a_bad_completion_is_trained_on_with_its_fault_beside_its_reward(
    make_world, bad_completion: str, expected_faults: dict[str, float]
) -> None:
    """The trainer subtracts the penalties for faults itself, so a reward is between 0 and 1.

    The settings give 0.5 for what cannot be read, and 0.2 for unknown ids.
    """
    for group in managing_groups(make_world, bad_completion):
        training_data = group.to_training_data(3)
        assert training_data["fault_weights"] == {"unreadable": 0.5, "refused": 0.2}

        bad_members = 0
        for member in training_data["group"]:
            assert 0.0 <= member["reward"] <= 1.0
            assert member["completion"]["role"] == "assistant"
            is_bad = member["completion"]["content"] == bad_completion
            assert member["faults"] == (expected_faults if is_bad else WITHOUT_FAULT)
            bad_members += is_bad
        assert 0 < bad_members < len(group.members)


@pytest.mark.parametrize(("longest", "stages"), [(40, (8, 16, 32)), (12, (8, 12)), (3, (3,))])
def test_horizons_are_cut_to_the_longest_conversation(
    longest: int, stages: tuple[int, ...]
) -> None:
    """A training has stages, which write 8, 16 and 32 sessions of a conversation by default."""
    assert Curriculum().stages(longest) == stages


def test_a_stage_ends_after_its_steps() -> None:
    curriculum = Curriculum((1, 2), steps=3)

    assert not curriculum.stage_has_ended(0, 2, steps=2, generated_tokens=0)
    assert curriculum.stage_has_ended(0, 2, steps=3, generated_tokens=0)


def test_a_stage_ends_when_its_share_of_the_tokens_is_used() -> None:
    """Two stages share 100 tokens, and the tokens of both are counted together."""
    curriculum = Curriculum((1, 2), steps=None, tokens=100)

    def has_ended(stage: int, tokens: int) -> bool:
        return curriculum.stage_has_ended(stage, 2, steps=9, generated_tokens=tokens)

    assert not has_ended(stage=0, tokens=49)
    assert has_ended(stage=0, tokens=50)
    assert not has_ended(stage=1, tokens=99)
    assert has_ended(stage=1, tokens=100)


@pytest.mark.parametrize(
    ("steps", "steps_of_stages"),
    [
        # One number for each stage; the last holds for further ones.
        ((10, 5, 4), [10, 5, 4, 4]),
        # One number for all.
        (7, [7, 7, 7, 7]),
    ],
)
def test_steps_are_one_number_or_one_for_each_stage(steps: Any, steps_of_stages: list[int]) -> None:
    """A training has stages, and each stage has a number of steps."""
    curriculum = Curriculum(steps=steps)

    assert [curriculum.steps_of(stage) for stage in range(4)] == steps_of_stages


def test_an_empty_list_of_steps_is_refused() -> None:
    """A training has stages, and each stage has a number of steps."""
    with pytest.raises(UserError, match=r"steps = \[\]: give one number of steps"):
        Curriculum(steps=())
