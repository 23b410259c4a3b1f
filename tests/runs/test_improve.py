"""`mempiler.improve`: rounds that compile a registered program on new questions of its users.

The users are simulated (`drifting_users.py`). After a drift they ask with words that the program
does not know, and the scripted model explains one new word with each instruction that it proposes.
"""

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler import Improvement
from mempiler.errors import EndpointError, UserError
from mempiler.runs.decided_questions import TAG_PREFIX, read_decided
from mempiler.runs.model_registry import find_version
from mempiler.runs.publish import register
from mempiler.runs.tracking.store import client

from .drifting_users import DRIFT, DriftingModel, register_first_version, write_questions
from .evaluations import refusal

Round = Callable[..., Improvement]
"""Starts a round with the file of questions and further options."""


@pytest.fixture
def model_name(request: pytest.FixtureRequest) -> str:
    """A name for a registered model that no other test uses, since all tests share one store."""
    return re.sub(r"\W", "-", request.node.name)


@pytest.fixture
def address(model_name: str, tmp_path: Path) -> str:
    """The address of a registered program that knows only the old words of the users."""
    return register_first_version(model_name, tmp_path / "first-version")


@pytest.fixture
def improve(address: str, scripted: Any) -> Round:
    """A function that runs a round on a file of questions, with the drifting model."""
    model = DriftingModel()
    lm = scripted(model)
    model.engine = lm.engine

    def run_round(data: Path, **options: Any) -> Improvement:
        defaults: dict[str, Any] = {
            "lm": lm,
            "metric": "exact",
            "threads": 1,
            "optimizer_set": {"max_metric_calls": 60},
            "progress": False,
        }
        return mempiler.improve(address, data=data, **{**defaults, **options})

    return run_round


def decided_tags(name: str) -> dict[str, str]:
    """Return the tags of a registered model that say on which questions was decided."""
    tags = client().get_registered_model(name).tags
    return {key: value for key, value in tags.items() if key.startswith(TAG_PREFIX)}


def test_a_better_program_becomes_a_version_and_gets_the_alias(
    improve: Round, address: str, tmp_path: Path
) -> None:
    questions = write_questions(tmp_path / "q.jsonl", users=range(20), words=DRIFT)

    improvement = improve(questions)

    assert improvement.outcome == "promoted"
    assert (improvement.version_before, improvement.version_after) == ("1", "2")
    assert find_version(address).version == "2"
    instruction: Any = mempiler.load(address)
    assert "town means city" in instruction.task.answer.signature.instructions
    gate = find_version(address).tags["mempiler.gate"]
    assert gate.startswith("improve: dev ")
    assert "against version 1: +0." in gate
