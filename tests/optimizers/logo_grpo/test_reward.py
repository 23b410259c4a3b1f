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


def rollout_with_memory(make_history: Any, words: int) -> Any:
    """Return a rollout whose memory has so many words, and whose history has 30.

    The history has five turns such as "I saw Oslo with 1 friends".
    """
    insertion = Edit("INSERT", content=" ".join(["word"] * words))
    memory = FactMemory().apply([insertion])
    return SimpleNamespace(history=make_history(sessions=1, turns=5), memory=memory)


def scores_of_answers(*scores: float) -> QuestionScores:
    """Return the scores of the answers to so many questions."""
    return QuestionScores(tuple(dspy.Example() for _ in scores), scores)


def test_the_reward_is_the_mean_score_less_a_penalty_for_a_long_memory(make_history) -> None:
    """The history has 30 words. A memory of 0.7 times as many, 21 words, costs nothing.

    With 24 words the memory is too long by three words, which is a tenth of the history.
    """
    rollout = rollout_with_memory(make_history, words=24)

    reward = rollout_reward(scores_of_answers(1.0, 0.5), rollout, RewardSettings(compression=0.3))

    mean_score = 0.75
    assert reward == pytest.approx(mean_score - 0.3 * 0.1)


def test_without_questions_the_reward_is_0(make_history) -> None:
    """Without questions there are no scores whose mean could be the reward."""
    rollout = rollout_with_memory(make_history, words=1)

    reward = rollout_reward(scores_of_answers(), rollout, RewardSettings(compression=0.0))

    assert reward == 0.0


@pytest.mark.parametrize(
    ("kind", "reward_of_first", "reward_of_second"),
    [
        # A session gets the mean score of its own questions.
        pytest.param("session", 1.0, (0.0 + 0.5) / 2, id="session"),
        # It gets the mean of the rewards above, of itself and of all later sessions.
        pytest.param("cumulative", (1.0 + 0.25) / 2, 0.25, id="cumulative"),
        # All sessions get the mean score of all questions.
        pytest.param("trajectory", (1.0 + 0.0 + 0.5) / 3, 0.5, id="trajectory"),
    ],
)
def test_a_session_is_rewarded_for_its_own_questions_or_also_for_others(
    make_history, kind: Any, reward_of_first: float, reward_of_second: float
) -> None:
    """A model writes two sessions into a memory, and is rewarded for the answers.

    One question is about the first session, and its answer has the score 1.0. Two are about the
    second session, with the scores 0.0 and 0.5. A question without evidence is about the last one.
    """
    history = make_history(2, turns=1)
    sessions = [SimpleNamespace(item=item) for item in history.items]
    rollout: Any = SimpleNamespace(history=history, memory=FactMemory(), sessions=sessions)
    about_first = dspy.Example(evidence_ids=("D1:1",))
    about_second = dspy.Example(evidence_ids=("D2:1",))
    without_evidence = dspy.Example(evidence_ids=())
    scores = QuestionScores((about_first, about_second, without_evidence), (1.0, 0.0, 0.5))

    rewards = session_rewards(scores, rollout, RewardSettings(), kind)

    assert rewards == pytest.approx([reward_of_first, reward_of_second])


PENALTIES = RewardSettings(format_penalty=0.5, unknown_id_penalty=0.2)
"""A completion that cannot be read costs 0.5, and operations on unknown memories cost 0.2."""


def completion(*, is_readable: bool = True, refused_operations: int = 0) -> PredictorCall:
    """Return a call of the policy; an operation is refused if no memory has its id."""
    error = None if is_readable else "cannot be read"
    return PredictorCall(object(), {}, error=error, rejected_operations=refused_operations)


@pytest.mark.parametrize(
    ("call", "penalty"),
    [
        pytest.param(completion(), 0.0, id="no fault"),
        pytest.param(completion(is_readable=False), 0.5, id="unreadable"),
        pytest.param(completion(refused_operations=3), 0.2, id="three unknown ids"),
        pytest.param(
            completion(is_readable=False, refused_operations=1), 0.5 + 0.2, id="both faults"
        ),
    ],
)
def test_a_completion_has_a_penalty_for_each_kind_of_fault(
    call: PredictorCall, penalty: float
) -> None:
    """A completion that cannot be read costs 0.5, and operations on unknown ids cost 0.2."""
    assert fault_penalty(call, True, PENALTIES) == pytest.approx(penalty)


def test_a_completion_after_which_the_model_was_asked_again_counts_as_unreadable() -> None:
    """An unreadable completion costs 0.5. Unknown ids, which would cost 0.2, do not count then."""
    call = completion(refused_operations=3)

    assert fault_penalty(call, is_last=False, settings=PENALTIES) == pytest.approx(0.5)


def test_by_default_a_long_memory_has_a_penalty_and_faults_have_none() -> None:
    """The released scripts of the paper have a compression of 0.2 and 0.3."""
    default = RewardSettings()
    call = completion(is_readable=False, refused_operations=1)

    assert default.compression == 0.3
    assert fault_penalty(call, True, default) == 0.0


def test_the_same_seed_chooses_the_same_questions_in_their_order() -> None:
    """Of forty questions, five are chosen by the seed "a"."""
    examples = [dspy.Example(id=number) for number in range(40)]

    chosen = sample_questions(examples, 5, "a")

    ids = [example.id for example in chosen]
    assert len(ids) == 5
    assert ids == sorted(ids)
    assert sample_questions(examples, 5, "a") == chosen
    assert sample_questions(examples, 5, "b") != chosen


def test_all_questions_are_chosen_if_there_are_no_more_than_may_be_asked() -> None:
    examples = [dspy.Example(id=number) for number in range(5)]

    assert sample_questions(examples, 5, "a") == examples


def scores_with_error(scripted: Any, error: Exception) -> QuestionScores:
    """Return the scores of three questions, of which the second meets an error of the model.

    The model answers the first and the third one rightly. The ids are "ann:1" to "ann:3".
    """
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
def test_a_question_whose_prompt_the_server_refuses_scores_0_and_the_others_count(
    scripted, kind: str, error: Exception
) -> None:
    """The server refuses the prompt of the second of three questions."""
    with recording() as record:
        scores = scores_with_error(scripted, error)

    assert scores.scores == (1.0, 0.0, 1.0)
    (failure,) = record.failures
    assert failure.kind == kind
    assert failure.where == "ann:2"


def test_a_server_that_refuses_the_key_ends_the_scoring(scripted) -> None:
    """No other question would be answered with this key either."""
    with pytest.raises(UserError, match="refuses the key"):
        scores_with_error(scripted, AuthError("wrong key"))


def always_not_mentioned(call: PolicyCall) -> str:
    """Store nothing, and answer that nothing is mentioned: right for category 5 alone."""
    if call.kind in ("facts", "operations"):
        return chat_fields(**{call.kind: []})
    return chat_fields(reasoning="", answer="Not mentioned in the conversation")


SHORT_TRAINING = TrainingSettings(
    num_rollouts=2,
    local_n=2,
    local_fraction=1.0,
    histories=1,
    curriculum=Curriculum((1, 2), steps=1),
    validate_every=1,
    threads=1,
    reward=RewardSettings(questions=8, local_questions=4),
)
"""Two stages of one step, which write one session and two sessions."""


@pytest.fixture
def not_mentioned_policy(make_world, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of trainings is `always_not_mentioned`, and no weights are loaded."""
    lm = make_world(always_not_mentioned).lm
    monkeypatch.setattr("mempiler.runs.train._TrainingJob._load_start_model", lambda job: lm)


@pytest.mark.usefixtures("not_mentioned_policy")
def test_a_training_counts_only_questions_that_count_for_the_score(tmp_path: Path) -> None:
    """LoCoMo's questions of category 5 cannot be answered, and do not count for its score.

    The model is right on them alone, so all rewards, validations and test scores are 0.
    """
    inputs = run_inputs(benchmark="locomo", lm="local:none", train=20, dev=8, test=12)
    split = inputs.split()
    counts = benchmark("locomo").in_headline
    assert not all(counts(example) for example in [*split.train, *split.dev, *split.test])
    config = TrainingConfig("logo-grpo", settings=SHORT_TRAINING)

    result = run_train("memory-r2", inputs, config, out=tmp_path / "out")

    rows = json.loads((result.run / "training" / "train.json").read_text())["rows"]
    rewards = [row["reward"] for row in rows if "reward" in row]
    assert rewards == [0.0, 0.0]
    validations = {row["validation"] for row in rows if "validation" in row}
    assert validations == {0.0}
    assert result.before.n == sum(counts(example) for example in split.test)
    assert result.before.score == 0.0
    assert result.after.n == result.before.n
    assert result.after.score == 0.0
