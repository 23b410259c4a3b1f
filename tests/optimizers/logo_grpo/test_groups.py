"""Groups: who is compared with whom, what is dropped, and that nothing malformed is lost."""

import random
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

from tests.optimizers.logo_grpo.conftest import diligent, fields


def collect(made: Any, horizon: int = 3, metric: Any = None, **settings: Any) -> Batch:
    given = {"num_rollouts": 4, "local_n": 3, "local_fraction": 1.0, "histories": 1, "threads": 4}
    asked = questions_by_history(made.train)

    def exact(example: dspy.Example, prediction: dspy.Prediction) -> float:
        return float(example.answer == prediction.answer)

    collector = Collector(
        made.program,
        list(asked),
        lambda history, sessions: questions_after(asked[history], history, sessions),
        metric or exact,
        TrainingSettings(**{**given, **settings}),
    )
    with dspy.context(adapter=single_attempt(made.program), trace=None):
        return collector.collect(1, horizon, made.lm.copy(temperature=1.0), made.lm)


def test_roles_and_sessions_have_global_and_local_groups_of_their_own(world: Any) -> None:
    batch = collect(world(people=1))
    keys = [group.key for group in batch.groups]
    assert {key.kind for key in keys} == {"global", "local"}
    assert {key.role for key in keys} == {"extract_facts", "manage"}
    assert {key.session for key in keys} == {"D1", "D2", "D3"}
    for group in batch.groups:
        assert len(group.members) == (4 if group.key.kind == "global" else 3)
        # A role sees one form of prompt: the same system message for all members.
        assert len({member.completion.messages[0]["content"] for member in group.members}) == 1


@pytest.mark.parametrize(("objective", "kind"), [("grpo", "global"), ("local", "local")])
def test_objectives_are_switches_of_the_same_class(world: Any, objective: str, kind: str) -> None:
    assert {group.key.kind for group in collect(world(people=1), objective=objective).groups} == {
        kind
    }


def test_local_rewards_come_right_after_the_session(world: Any) -> None:
    asked: list[tuple[str, ...]] = []

    def metric(example: dspy.Example, prediction: dspy.Prediction) -> float:
        asked.append(example.evidence_ids)
        return float(example.answer == prediction.answer)

    collect(world(people=1), metric=metric, objective="local", num_rollouts=1, threads=1)
    # One trajectory with three questions, then three reruns each of sessions 1, 2 and 3: 1, 2 and 3 questions.
    assert len(asked) == 3 + 3 * (1 + 2 + 3)
    assert {evidence_ids[0] for evidence_ids in asked[3:6]} == {"D1:1"}


def test_all_members_get_the_same_questions_and_no_more_than_asked_for(world: Any) -> None:
    made, asked = world(people=1, sessions=6), []

    def metric(example: dspy.Example, prediction: dspy.Prediction) -> float:
        asked.append(example.id)
        return 0.0

    collect(made, 6, metric, objective="grpo", threads=1, reward=RewardSettings(questions=2))
    assert sorted(asked) == sorted([*dict.fromkeys(asked)] * 4)
    assert len(asked) == 8


def test_groups_without_variance_are_dropped_and_counted(world: Any) -> None:
    batch = collect(world(lambda kind, text, rng: "unreadable", people=1, parts=1))
    assert batch.groups == ()
    assert batch.statistics.no_variance_global == 3
    assert batch.statistics.no_variance_local == 3
    assert batch.statistics.format_failures == 1.0


KEY = GroupKey("local", "user0", "D1", "manage", call=1, start=0)


def test_equal_rewards_are_no_variance_and_unequal_ones_are() -> None:
    def group(*values: float) -> Group:
        return Group(KEY, tuple(Member(Completion((), ""), value) for value in values))

    made = [group(1.0, 1.0), group(0.0, 1e-3), group(0.3, 0.1 + 0.2)]
    assert [each.varies for each in made] == [False, True, False]


@pytest.mark.parametrize(
    ("weights", "varies"), [({}, False), ({"refused": 0.2}, False), ({"unreadable": 0.5}, True)]
)
def test_a_group_of_equal_rewards_varies_by_a_fault_that_costs_something(
    weights: dict[str, float], varies: bool
) -> None:
    members = (
        Member(Completion((), ""), 0.3),
        Member(Completion((), ""), 0.3, Faults(unreadable=True)),
    )
    assert Group(KEY, members, weights).varies == varies


FAULTS = {
    "a partial parse": ('[[ ## operations ## ]]\n[{"op": "INS', "unreadable"),
    "half an operation": ('[[ ## operations ## ]]\n[{"op": "INSERT", "content"', "unreadable"),
    "an operation on an id that was not shown": (
        fields(operations=[{"op": "DELETE", "memory_id": "m99"}]),
        "refused",
    ),
    "an empty completion": ("", "unreadable"),
}


@pytest.mark.parametrize(("said", "fault"), FAULTS.values(), ids=FAULTS)
def test_output_that_cannot_be_read_is_trained_on_and_its_fault_is_no_part_of_its_reward(
    world: Any, said: str, fault: str
) -> None:
    def reply(kind: str, text: str, rng: random.Random) -> str:
        return (
            said
            if kind == "operations" and rng.random() < 0.5
            else diligent(kind, text, random.Random(0))
        )

    settings = RewardSettings(format_penalty=0.5, unknown_id_penalty=0.2, compression=0.0)
    batch = collect(world(reply, people=1), objective="grpo", num_rollouts=8, reward=settings)
    groups = [group for group in batch.groups if group.key.role == "manage"]
    assert groups
    for group in groups:
        assert group.to_training_data(3)["fault_weights"] == {"unreadable": 0.5, "refused": 0.2}
        bad = [member for member in group.members if member.completion.text == said]
        assert 0 < len(bad) < len(group.members)
        for member in group.members:
            assert 0.0 <= member.reward <= 1.0
            assert [
                name for name, present in member.to_training_data()["faults"].items() if present
            ] == [fault] * (member in bad)
        assert all(
            member.to_training_data()["completion"] == {"role": "assistant", "content": said}
            for member in bad
        )


@pytest.mark.parametrize(("longest", "stages"), [(40, (8, 16, 32)), (12, (8, 12)), (3, (3,))])
def test_horizons_are_cut_to_the_longest_conversation(
    longest: int, stages: tuple[int, ...]
) -> None:
    assert Curriculum().stages(longest) == stages


def test_a_stage_ends_by_its_steps_or_its_share_of_the_tokens() -> None:
    by_steps, by_tokens = Curriculum((1, 2), steps=3), Curriculum((1, 2), steps=None, tokens=100)
    assert [by_steps.stage_has_ended(0, 2, n, 0) for n in (2, 3)] == [False, True]
    assert [by_tokens.stage_has_ended(0, 2, 9, n) for n in (49, 50)] == [False, True]
    assert [by_tokens.stage_has_ended(1, 2, 9, n) for n in (99, 100)] == [False, True]


def test_steps_are_one_number_or_one_for_each_stage() -> None:
    assert [Curriculum(steps=(10, 5, 4)).steps_of(stage) for stage in range(4)] == [10, 5, 4, 4]
    assert [Curriculum(steps=7).steps_of(stage) for stage in range(2)] == [7, 7]
    with pytest.raises(
        UserError, match=r"steps = \[\]: give one number of steps, or one for each stage"
    ):
        Curriculum(steps=())
