"""What counts for the score counts in training: an empty memory earns nothing by declining to answer."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.dataset import Source
from mempiler.data.locomo import Locomo
from mempiler.errors import UserError
from mempiler.optimizers.logo_grpo.settings import Curriculum, TrainingSettings
from mempiler.programs.catalog import build
from mempiler.runs.course import Course
from mempiler.runs.setup import Setup
from mempiler.runs.train import _Job, run_train

from tests.optimizers.logo_grpo.conftest import fields

SETTINGS = TrainingSettings(
    num_rollouts=2,
    local_n=2,
    local_fraction=1.0,
    histories=1,
    curriculum=Curriculum((1, 2), steps=1),
    validate_every=1,
    threads=1,
)


def empty_handed(kind: str, text: str, rng: random.Random) -> str:
    """Stores nothing, and answers that nothing is mentioned: right for category 5 alone."""
    if kind in ("facts", "operations"):
        return fields(**{kind: []})
    return fields(reasoning="", answer="Not mentioned in the conversation")


def adversarial(examples: list[dspy.Example], every: int) -> list[dspy.Example]:
    """The questions, every so many of them of category 5."""
    return [
        each.copy(category="4" if n % every else "5", evidence=each.focus).with_inputs("history", "question", "focus")
        for n, each in enumerate(examples)
    ]


def trained(world: Any, every: int) -> Any:
    made = world(empty_handed, sessions=2)
    made.program = build("memory-r2", "question-answering", made.program.method.embedder, adapter="chat")
    made.train, made.dev = adversarial(made.train, every), adversarial(made.dev, every)
    locomo = Locomo([*made.train, *made.dev], Source("made.json", "0" * 64, sample=True))
    teleprompter = made.teleprompter(SETTINGS, questions=locomo.questions_after, counts=locomo.counts)
    teleprompter.metric = lambda example, prediction: locomo.score(example, prediction).value
    with dspy.context(lm=made.lm):
        teleprompter.compile(made.program, trainset=made.train, valset=made.dev)
    return made


def test_an_empty_memory_earns_nothing_at_any_horizon_and_validates_at_nothing(world: Any) -> None:
    made = trained(world, every=2)
    assert [(row["horizon"], row["reward"], row["score"]) for row in made.rows if "horizon" in row] == [
        (1, 0.0, 0.0),
        (2, 0.0, 0.0),
    ]
    assert [row["validation"] for row in made.rows if "validation" in row] == [0.0, 0.0, 0.0]
    assert any(kind not in ("facts", "operations") for kind, _, _ in made.engine.asked)


def test_without_a_question_that_counts_there_is_nothing_to_train_on(world: Any) -> None:
    with pytest.raises(UserError, match=r"none of 4 questions .* counts for the score; raise --train"):
        trained(world, every=1)


def test_a_training_run_scores_what_counts(world: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lm = world(empty_handed).lm
    monkeypatch.setattr(_Job, "_lm", lambda self: lm)
    setup, found = Setup(benchmark="locomo", lm="local:none", train=20, dev=8, test=12), benchmark("locomo")
    settings = replace(SETTINGS, reward=replace(SETTINGS.reward, questions=8, local_questions=4))
    outcome = run_train("memory-r2", setup, Course("logo-grpo", settings=settings), out=tmp_path / "out")
    parts = setup.split(found)
    assert any(not found.counts(example) for example in (*parts.train, *parts.dev, *parts.test))
    steps = json.loads((outcome.run / "training" / "train.json").read_text())["rows"]
    assert {step["reward"] for step in steps if "reward" in step} == {0.0}
    assert {step["validation"] for step in steps if "validation" in step} == {0.0}
    asked = sum(map(found.counts, parts.test))
    assert [(each.n, each.score) for each in (outcome.start, outcome.result)] == [(asked, 0.0)] * 2
