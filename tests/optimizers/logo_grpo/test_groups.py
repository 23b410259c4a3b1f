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


class RecordingMetric:
    """A metric that keeps the question of each answer that it scores; the score is always 0."""

    def __init__(self) -> None:
        self.scored: list[dspy.Example] = []

    def __call__(self, example: dspy.Example, prediction: dspy.Prediction) -> float:
        self.scored.append(example)
        return 0.0


def collect_batch(
    world: World,
    num_rollouts: int = 4,
    local_n: int = 3,
    horizon: int = 3,
    metric: Any = exact_match,
    **settings: Any,
) -> Batch:
    """Collect the groups of one training step, as a trainer gets them.

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


def test_there_are_groups_for_each_prompt_that_writes_and_for_each_session(make_world) -> None:
    """A global group compares all rollouts of a history, and a local one all reruns of a session.

    The prompt `extract_facts` finds facts in a session, and `manage` decides what to store.
    """
    batch = collect_batch(make_world(people=1), horizon=3, num_rollouts=4, local_n=3)

    keys = [group.key for group in batch.groups]
    assert {key.role for key in keys} == {"extract_facts", "manage"}
    assert {key.session for key in keys} == {"D1", "D2", "D3"}
    sizes = {(group.key.kind, len(group.members)) for group in batch.groups}
    assert sizes == {("global", 4), ("local", 3)}


def test_a_group_compares_completions_of_the_same_prompt(make_world) -> None:
    """The system message of a prompt says what is to be done."""
    batch = collect_batch(make_world(people=1))

    assert len(batch.groups) > 0
    for group in batch.groups:
        system_messages = {member.completion.messages[0]["content"] for member in group.members}
        assert len(system_messages) == 1


@pytest.mark.parametrize(("objective", "kind"), [("grpo", "global"), ("local", "local")])
def test_the_objectives_grpo_and_local_have_groups_of_one_kind_only(
    make_world, objective: str, kind: str
) -> None:
    """A global group compares rollouts of a whole history, and a local one reruns of one session.

    By default, the objective has groups of both kinds.
    """
    batch = collect_batch(make_world(people=1), objective=objective)

    assert {group.key.kind for group in batch.groups} == {kind}


def test_a_rerun_is_rewarded_by_the_questions_about_its_session_and_those_before(
    make_world,
) -> None:
    """A rollout writes a whole history, and a rerun writes one of its sessions once more.

    There is one question about each of the three sessions D1, D2 and D3. After the one rollout all
    three are asked. Then each session is rerun three times: after D1 one question is asked, after
    D2 two are, and after D3 three.
    """
    metric = RecordingMetric()

    collect_batch(
        make_world(people=1),
        metric=metric,
        objective="local",
        num_rollouts=1,
        local_n=3,
        threads=1,
    )

    sessions = [example.evidence_ids[0].partition(":")[0] for example in metric.scored]
    after_rollout = ["D1", "D2", "D3"]
    after_reruns = ["D1"] * 3 + ["D1", "D2"] * 3 + ["D1", "D2", "D3"] * 3
    assert Counter(sessions) == Counter(after_rollout + after_reruns)
    assert sessions[3:6] == ["D1", "D1", "D1"]


def test_all_rollouts_are_rewarded_by_the_same_questions(make_world) -> None:
    """A history is written four times, in four rollouts. There are six questions about it.

    After each rollout, two of them may be asked.
    """
    metric = RecordingMetric()

    collect_batch(
        make_world(people=1, sessions=6),
        num_rollouts=4,
        horizon=6,
        metric=metric,
        objective="grpo",
        threads=1,
        reward=RewardSettings(questions=2),
    )

    times_asked = Counter(example.id for example in metric.scored)
    assert list(times_asked.values()) == [4, 4]


def test_groups_whose_rewards_are_all_equal_are_dropped_and_counted(make_world) -> None:
    """A training learns from differences between the rewards of a group. Here nothing is readable.

    There would be one global and one local group for each of three sessions.
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
        pytest.param([1.0, 1.0], False, id="equal"),
        pytest.param([0.0, 0.001], True, id="different"),
        pytest.param([0.3, 0.1 + 0.2], False, id="different by a rounding error"),
    ],
)
def test_a_group_varies_if_its_rewards_differ(rewards: list[float], varies: bool) -> None:
    """A training can only learn from a group that varies."""
    members = tuple(Member(NO_COMPLETION, reward) for reward in rewards)

    assert Group(KEY, members).varies is varies


@pytest.mark.parametrize(
    ("fault_weights", "varies"),
    [
        pytest.param({}, False, id="no penalties"),
        pytest.param({"refused": 0.2}, False, id="a penalty for another fault"),
        pytest.param({"unreadable": 0.5}, True, id="a penalty for this fault"),
    ],
)
def test_a_group_with_equal_rewards_varies_if_one_member_has_a_fault_with_a_penalty(
    fault_weights: dict[str, float], varies: bool
) -> None:
    """The second completion could not be read."""
    members = (
        Member(NO_COMPLETION, 0.3),
        Member(NO_COMPLETION, 0.3, Faults(unreadable=True)),
    )

    assert Group(KEY, members, fault_weights).varies is varies


def training_data_with(bad_completion: str, make_world: Any) -> list[dict[str, Any]]:
    """Return what a trainer gets of the prompt `manage`, if half of its completions are bad.

    The penalties are 0.5 for a completion that cannot be read, and 0.2 for unknown ids.
    """

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
    return [group.to_training_data(3) for group in groups]


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
            id="an operation on an unknown id",
        ),
        pytest.param("", UNREADABLE, id="an empty completion"),
    ],
)
def test_a_bad_completion_is_trained_on_with_its_fault_beside_its_reward(
    make_world, bad_completion: str, expected_faults: dict[str, float]
) -> None:
    """About half of the completions of the model that is trained are bad.

    The trainer subtracts the penalty for a fault itself, so a reward stays between 0 and 1.
    """
    for group in training_data_with(bad_completion, make_world):
        assert group["fault_weights"] == {"unreadable": 0.5, "refused": 0.2}

        bad_members = 0
        for member in group["group"]:
            assert 0.0 <= member["reward"] <= 1.0
            assert member["completion"]["role"] == "assistant"
            is_bad = member["completion"]["content"] == bad_completion
            assert member["faults"] == (expected_faults if is_bad else WITHOUT_FAULT)
            bad_members += is_bad
        assert 0 < bad_members < len(group["group"])


@pytest.mark.parametrize(
    ("longest_conversation", "stages"), [(40, (8, 16, 32)), (12, (8, 12)), (3, (3,))]
)
def test_the_stages_of_a_training_are_cut_to_the_longest_conversation(
    longest_conversation: int, stages: tuple[int, ...]
) -> None:
    """By default a training has three stages: they write 8, 16 and 32 sessions."""
    assert Curriculum().stages(longest_conversation) == stages


def test_a_stage_ends_when_its_share_of_the_tokens_is_generated() -> None:
    """The two stages of a training share 100 tokens. The second counts those of the first, too."""
    curriculum = Curriculum(horizons=(1, 2), steps=None, tokens=100)

    def has_ended(stage: int, tokens: int) -> bool:
        return curriculum.stage_has_ended(stage, 2, steps=9, generated_tokens=tokens)

    assert not has_ended(stage=0, tokens=49)
    assert has_ended(stage=0, tokens=50)
    assert not has_ended(stage=1, tokens=99)
    assert has_ended(stage=1, tokens=100)


@pytest.mark.parametrize(
    ("steps", "steps_of_four_stages"),
    [
        pytest.param(7, [7, 7, 7, 7], id="one number for all stages"),
        pytest.param((10, 5, 4), [10, 5, 4, 4], id="the last number holds for further stages"),
    ],
)
def test_a_curriculum_has_one_number_of_steps_or_one_for_each_stage(
    steps: Any, steps_of_four_stages: list[int]
) -> None:
    curriculum = Curriculum(steps=steps)

    assert [curriculum.steps_of(stage) for stage in range(4)] == steps_of_four_stages


def test_a_curriculum_with_an_empty_list_of_steps_is_refused() -> None:
    with pytest.raises(UserError, match=r"steps = \[\]: give one number of steps"):
        Curriculum(steps=())
