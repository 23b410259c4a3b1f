"""Rewards by hand, which questions can be asked when, and that only what counts for the score counts in training."""

import json
import random
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
from mempiler.runs.train import _TrainingJob, run_train

from tests.optimizers.logo_grpo.conftest import fields, names_the_colour, person

from ...run_inputs import run_inputs


def test_the_reward_is_the_mean_score_minus_lambda_times_the_excess(make_history: Any) -> None:
    history = make_history(1, turns=1)  # "I saw Oslo with 1 friends": 6 words
    memory = FactMemory().apply([Edit("INSERT", content="one two three four five six seven eight")])
    rollout: Any = SimpleNamespace(history=history, memory=memory)
    answered = QuestionScores((dspy.Example(), dspy.Example()), (1.0, 0.5))
    # Worked out by hand: 0.75 - .3 (8 - .7 * 6) / 6
    assert rollout_reward(answered, rollout, RewardSettings()) == pytest.approx(
        0.75 - 0.3 * 3.8 / 6
    )
    assert rollout_reward(answered, rollout, RewardSettings(compression=0.0)) == 0.75
    assert rollout_reward(QuestionScores((), ()), rollout, RewardSettings(compression=0.0)) == 0.0


@pytest.mark.parametrize(
    ("kind", "credited"),
    [("session", [1.0, 0.25]), ("cumulative", [0.625, 0.25]), ("trajectory", [0.5, 0.5])],
)
def test_a_session_is_credited_with_its_questions_with_later_ones_too_or_with_all(
    make_history, kind, credited
) -> None:
    history = make_history(2, turns=1)
    sessions = [SimpleNamespace(item=item) for item in history.items]
    rollout: Any = SimpleNamespace(history=history, memory=FactMemory(), sessions=sessions)
    # A question without evidence is about the last session.
    examples = tuple(
        dspy.Example(evidence_ids=evidence_ids) for evidence_ids in (("D1:1",), ("D2:1",), ())
    )
    answered = QuestionScores(examples, (1.0, 0.0, 0.5))
    assert session_rewards(answered, rollout, RewardSettings(), kind) == pytest.approx(credited)


@pytest.mark.parametrize(
    ("error", "refused", "last", "cost"),
    [
        (None, 0, True, 0.0),
        ("bad", 0, True, 0.5),
        (None, 3, True, 0.2),
        (None, 3, False, 0.5),
        ("bad", 1, True, 0.7),
    ],
)
def test_a_completion_pays_for_bad_form_and_unknown_ids(
    error: str | None, refused: int, last: bool, cost: float
) -> None:
    call = PredictorCall(object(), {}, error=error, rejected_operations=refused)
    assert fault_penalty(
        call, last, RewardSettings(format_penalty=0.5, unknown_id_penalty=0.2)
    ) == pytest.approx(cost)
    assert fault_penalty(call, last, RewardSettings()) == 0.0


def test_the_same_seed_chooses_the_same_questions() -> None:
    examples = [dspy.Example(id=n) for n in range(40)]
    one, same, other = (sample_questions(examples, 5, seed) for seed in ("a", "a", "b"))
    assert one == same != other
    assert len(one) == 5
    assert [example.id for example in one] == sorted(example.id for example in one)
    assert sample_questions(examples, 40, "a") == examples


def answered_by(scripted: Any, refusal: Exception) -> QuestionScores:
    """The scores of three questions, of which the second is not answered for this reason."""
    history, examples = person("ann", 3)
    program = build("turn-rag")

    def reply(kind: str, text: str, n: int) -> dict[str, Any]:
        if examples[1].question in text:
            raise refusal
        return {"answer": "annc11 or annc31"}

    with dspy.context(lm=scripted(reply)):
        return score_answers(
            program, history, program.remember(history).memory, examples, names_the_colour
        )


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        ("refused", InvalidRequestError("flagged by the content filter")),
        ("too-long", ContextLengthError("8,200 tokens do not fit")),
    ],
)
def test_a_question_whose_prompt_is_refused_scores_0_and_the_others_count(
    scripted, kind, refusal
) -> None:
    with recording() as record:
        scores = answered_by(scripted, refusal).scores
    assert scores == (1.0, 0.0, 1.0)
    assert [(failure.kind, failure.where) for failure in record.failures] == [(kind, "ann:2")]


def test_an_endpoint_that_refuses_the_key_ends_the_rewards(scripted) -> None:
    with pytest.raises(UserError, match="refuses the key"):
        answered_by(scripted, AuthError("wrong key"))


SETTINGS = TrainingSettings(
    num_rollouts=2,
    local_n=2,
    local_fraction=1.0,
    histories=1,
    curriculum=Curriculum((1, 2), steps=1),
    validate_every=1,
    threads=1,
    reward=RewardSettings(questions=8, local_questions=4),
)


def empty_handed(kind: str, text: str, rng: random.Random) -> str:
    """Stores nothing, and answers that nothing is mentioned: right for category 5 alone."""
    if kind in ("facts", "operations"):
        return fields(**{kind: []})
    return fields(reasoning="", answer="Not mentioned in the conversation")


def test_a_training_run_scores_what_counts(
    world: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lm = world(empty_handed).lm
    monkeypatch.setattr(_TrainingJob, "_load_start_model", lambda self: lm)
    inputs, found = (
        run_inputs(benchmark="locomo", lm="local:none", train=20, dev=8, test=12),
        benchmark("locomo"),
    )
    outcome = run_train(
        "memory-r2", inputs, TrainingConfig("logo-grpo", settings=SETTINGS), out=tmp_path / "out"
    )
    parts = inputs.split()
    assert any(
        not found.in_headline(example) for example in (*parts.train, *parts.dev, *parts.test)
    )
    steps = json.loads((outcome.run / "training" / "train.json").read_text())["rows"]
    assert {step["horizon"]: step["reward"] for step in steps if "reward" in step} == {
        1: 0.0,
        2: 0.0,
    }
    assert {step["validation"] for step in steps if "validation" in step} == {0.0}
    asked = sum(map(found.in_headline, parts.test))
    assert [(each.n, each.score) for each in (outcome.before, outcome.after)] == [(asked, 0.0)] * 2
