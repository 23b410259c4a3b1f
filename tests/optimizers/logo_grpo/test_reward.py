"""Rewards worked by hand, and that training counts only questions that count for the score.

A rollout is a history whose sessions a model has written into a memory. Its reward is the mean
score of the answers that the memory allows, less a penalty (`compression`) for a long memory. A
memory is long if it has more than 0.7 times the words of the history.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.lm15 import AuthError, ContextLengthError, InvalidRequestError
from mempiler import build
from mempiler.data.catalog import benchmark
from mempiler.errors import UserError
from mempiler.optimizers.logo_grpo.reward import (
    QuestionScores,
    RewardSettings,
    fault_penalty,
    rollout_reward,
    sample_questions,
    score_answers,
    session_rewards,
)
from mempiler.optimizers.logo_grpo.settings import Curriculum, TrainingSettings
from mempiler.optimizers.logo_grpo.training_config import TrainingConfig
from mempiler.programs.call_recorder import PredictorCall
from mempiler.programs.memory_r2.memory import Edit, FactMemory
from mempiler.programs.recording import recording
from mempiler.runs.train import run_train

from ...run_inputs import run_inputs
from ...scripted_engine import chat_fields
from .conftest import PolicyCall, names_the_colour, person


def rollout_with_memory(make_history: Any, content: str) -> Any:
    """Return a rollout with one entry in its memory. Its history is "I saw Oslo with 1 friends"."""
    insertion = Edit("INSERT", content=content)
    memory = FactMemory().apply([insertion])
    return SimpleNamespace(history=make_history(sessions=1, turns=1), memory=memory)


def test_the_reward_is_the_mean_score_less_a_penalty_for_a_long_memory(make_history) -> None:
    """The history has six words, and the memory eight. Up to 0.7 * 6 words cost nothing."""
    rollout = rollout_with_memory(make_history, "one two three four five six seven eight")
    scores = QuestionScores((dspy.Example(), dspy.Example()), (1.0, 0.5))

    reward = rollout_reward(scores, rollout, RewardSettings(compression=0.3))

    assert reward == pytest.approx(0.75 - 0.3 * (8 - 0.7 * 6) / 6)


def test_without_compression_the_reward_is_the_mean_score(make_history) -> None:
    rollout = rollout_with_memory(make_history, "one two three four five six seven eight")
    scores = QuestionScores((dspy.Example(), dspy.Example()), (1.0, 0.5))

    assert rollout_reward(scores, rollout, RewardSettings(compression=0.0)) == 0.75


def test_without_questions_the_reward_is_0(make_history) -> None:
    rollout = rollout_with_memory(make_history, "one")
    no_scores = QuestionScores((), ())

    assert rollout_reward(no_scores, rollout, RewardSettings(compression=0.0)) == 0.0


def test_the_penalty_for_a_long_memory_is_0_3_by_default() -> None:
    assert RewardSettings().compression == 0.3


@pytest.mark.parametrize(
    ("kind", "rewards"),
    [
        # 1.0, and the mean of 0.0 and 0.5.
        pytest.param("session", [1.0, 0.25], id="its own questions"),
        # The mean of 1.0 and 0.25 for the first session.
        pytest.param("cumulative", [0.625, 0.25], id="its own questions and those of later ones"),
        # The mean of 1.0, 0.0 and 0.5.
        pytest.param("trajectory", [0.5, 0.5], id="all questions"),
    ],
)
def test_a_session_is_rewarded_for_its_own_questions_or_also_for_others(
    make_history, kind: Any, rewards: list[float]
) -> None:
    """The first session has a question with the score 1.0, the second two with 0.0 and 0.5."""
    history = make_history(2, turns=1)
    sessions = [SimpleNamespace(item=item) for item in history.items]
    rollout: Any = SimpleNamespace(history=history, memory=FactMemory(), sessions=sessions)
    examples = (
        dspy.Example(evidence_ids=("D1:1",)),
        dspy.Example(evidence_ids=("D2:1",)),
        # A question without evidence counts for the last session.
        dspy.Example(evidence_ids=()),
    )
    scores = QuestionScores(examples, (1.0, 0.0, 0.5))

    result = session_rewards(scores, rollout, RewardSettings(), kind)

    assert result == pytest.approx(rewards)


@pytest.mark.parametrize(
    ("error", "refused_operations", "is_last", "penalty"),
    [
        (None, 0, True, 0.0),
        ("bad", 0, True, 0.5),
        (None, 3, True, 0.2),
        # A completion after which the model was asked again counts as unreadable.
        (None, 3, False, 0.5),
        ("bad", 1, True, 0.7),
    ],
)
def test_a_completion_has_a_penalty_for_bad_form_and_unknown_ids(
    error: str | None, refused_operations: int, is_last: bool, penalty: float
) -> None:
    """A user may set penalties.

    Here a completion that cannot be read costs 0.5. Operations on unknown memories
    (`refused_operations`) cost 0.2, however many there are.
    """
    call = PredictorCall(object(), {}, error=error, rejected_operations=refused_operations)
    settings = RewardSettings(format_penalty=0.5, unknown_id_penalty=0.2)

    assert fault_penalty(call, is_last, settings) == pytest.approx(penalty)
    # By default there are no penalties.
    assert fault_penalty(call, is_last, RewardSettings()) == 0.0


def test_the_same_seed_chooses_the_same_questions_in_their_order() -> None:
    examples = [dspy.Example(id=number) for number in range(40)]

    chosen = sample_questions(examples, 5, "a")

    assert len(chosen) == 5
    ids = [example.id for example in chosen]
    assert ids == sorted(ids)
    assert sample_questions(examples, 5, "a") == chosen
    assert sample_questions(examples, 5, "b") != chosen


def test_all_questions_are_chosen_if_there_are_not_too_many() -> None:
    """Forty questions may be asked, and there are forty."""
    examples = [dspy.Example(id=number) for number in range(40)]

    assert sample_questions(examples, 40, "a") == examples


def scores_with_refusal(scripted: Any, error: Exception) -> QuestionScores:
    """Return the scores of three questions, of which the second meets an error of the model."""
    history, examples = person("ann", 3)
    program = build("turn-rag")

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if examples[1].question in text:
            raise error
        # The right answers to the first and the third question.
        return {"answer": "annc11 or annc31"}

    with dspy.context(lm=scripted(reply)):
        memory = program.remember(history).memory
        return score_answers(program, history, memory, examples, names_the_colour)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("refused", InvalidRequestError("flagged by the content filter")),
        ("too-long", ContextLengthError("8,200 tokens do not fit")),
    ],
)
def test_a_question_whose_prompt_is_refused_scores_0_and_the_others_count(
    scripted, kind: str, error: Exception
) -> None:
    """A server may refuse single prompts, such as one that a content filter flags."""
    with recording() as record:
        scores = scores_with_refusal(scripted, error)

    assert scores.scores == (1.0, 0.0, 1.0)
    (failure,) = record.failures
    assert failure.kind == kind
    assert failure.where == "ann:2"


def test_an_endpoint_that_refuses_the_key_ends_the_rewards(scripted) -> None:
    """The error is raised by the second of three questions."""
    with pytest.raises(UserError, match="refuses the key"):
        scores_with_refusal(scripted, AuthError("wrong key"))


def store_nothing(call: PolicyCall) -> str:
    """Store nothing, and answer that nothing is mentioned: right for category 5 alone."""
    if call.kind in ("facts", "operations"):
        return chat_fields(**{call.kind: []})
    return chat_fields(reasoning="", answer="Not mentioned in the conversation")


def test_a_training_run_counts_only_questions_that_count_for_the_score(
    make_world, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """LoCoMo's questions of category 5 do not count, and the policy is right on them alone.

    So all rewards, validations and test scores are 0.
    """
    # No weights are loaded: a policy of the test takes the place of the local model.
    lm = make_world(store_nothing).lm
    monkeypatch.setattr("mempiler.runs.train._TrainingJob._load_start_model", lambda job: lm)
    inputs = run_inputs(benchmark="locomo", lm="local:none", train=20, dev=8, test=12)
    settings = TrainingSettings(
        num_rollouts=2,
        local_n=2,
        local_fraction=1.0,
        histories=1,
        curriculum=Curriculum((1, 2), steps=1),
        validate_every=1,
        threads=1,
        reward=RewardSettings(questions=8, local_questions=4),
    )
    split = inputs.split()
    in_headline = benchmark("locomo").in_headline
    all_examples = [*split.train, *split.dev, *split.test]
    assert not all(in_headline(example) for example in all_examples)

    result = run_train(
        "memory-r2", inputs, TrainingConfig("logo-grpo", settings=settings), out=tmp_path / "out"
    )

    rows = json.loads((result.run / "training" / "train.json").read_text())["rows"]
    rewards_by_horizon = {row["horizon"]: row["reward"] for row in rows if "reward" in row}
    assert rewards_by_horizon == {1: 0.0, 2: 0.0}
    validations = [row["validation"] for row in rows if "validation" in row]
    assert len(validations) > 0
    assert set(validations) == {0.0}

    counted_questions = sum(in_headline(example) for example in split.test)
    assert result.before.n == counted_questions
    assert result.before.score == 0.0
    assert result.after.n == counted_questions
    assert result.after.score == 0.0
