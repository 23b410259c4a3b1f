"""What counts for the score counts in training: an empty memory earns nothing by declining to answer."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from mempiler.data.catalog import benchmark
from mempiler.optimizers.logo_grpo.reward import RewardSettings
from mempiler.optimizers.logo_grpo.settings import Curriculum, TrainingSettings
from mempiler.runs.setup import Setup
from mempiler.runs.train import _Job, run_train
from mempiler.runs.training_config import TrainingConfig

from tests.optimizers.logo_grpo.conftest import fields

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


def test_a_training_run_scores_what_counts(world: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lm = world(empty_handed).lm
    monkeypatch.setattr(_Job, "_lm", lambda self: lm)
    setup, found = Setup(benchmark="locomo", lm="local:none", train=20, dev=8, test=12), benchmark("locomo")
    outcome = run_train("memory-r2", setup, TrainingConfig("logo-grpo", settings=SETTINGS), out=tmp_path / "out")
    parts = setup.split(found)
    assert any(not found.counts(example) for example in (*parts.train, *parts.dev, *parts.test))
    steps = json.loads((outcome.run / "training" / "train.json").read_text())["rows"]
    assert {step["horizon"]: step["reward"] for step in steps if "reward" in step} == {1: 0.0, 2: 0.0}
    assert {step["validation"] for step in steps if "validation" in step} == {0.0}
    asked = sum(map(found.counts, parts.test))
    assert [(each.n, each.score) for each in (outcome.before, outcome.after)] == [(asked, 0.0)] * 2
