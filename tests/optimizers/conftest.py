"""Questions to compile on, settings that keep optimizers small, and compiles with a fake model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import CompileResult

from ..runs.evaluations import own_questions
from .marker_model import PROPOSING_OPTIMIZERS, MarkerModel

PLACES = ("Lisbon", "Oslo", "Quito", "Hanoi", "Accra", "Perth", "Turin", "Dakar")
"""What the sessions are about; session D2 is about place number 2, which is Quito."""

SMALL_SETTINGS: dict[str, list[str]] = {
    "bootstrap": ["max_tries=4"],
    "mipro": ["num_trials=2", "num_candidates=2"],
    "gepa": ["max_metric_calls=10"],
    "better-together": ["strategy=labeled -> bootstrap"],
    "bootstrap-random": ["num_candidate_programs=1", "max_tries=3"],
    "copro": ["breadth=2", "depth=1"],
    "simba": ["bsize=4", "max_steps=1", "num_candidates=2"],
    "infer-rules": ["num_candidates=1", "max_tries=3"],
    "labeled": [],
    "knn": [],
    "settings": ["num_trials=2", 'names=["k"]', "max_context_tokens=5000"],
}
"""Settings with which each optimizer makes few calls, as `--optimizer-set` takes them."""


def setting_options(settings: Sequence[str]) -> list[str]:
    """Return settings of an optimizer as options of the command line."""
    options: list[str] = []
    for setting in settings:
        options.extend(["--optimizer-set", setting])
    return options


def question_about(history: Any, turn_id: str, category: str = "4", **changes: Any) -> dspy.Example:
    """Return a question whose evidence is one turn, which a search for its words finds.

    Args:
        history: The history of the question.
        turn_id: The turn, such as "D2:5".
        category: The category of LoCoMo; 5 is outside the headline score.
        **changes: Other fields of the example.
    """
    session, number = turn_id.removeprefix("D").split(":")
    place = PLACES[int(session) % 8]
    speaker = ("Ann", "Bob")[int(number) % 2]
    fields = {
        "id": f"{history.id}:{turn_id}:{category}",
        "history": history,
        "question": f"Who saw {place} with {number}, of category {category}?",
        "answer": speaker,
        "category": category,
        "evidence_ids": (turn_id,),
        "evidence": (turn_id,),
        **changes,
    }
    return dspy.Example(**fields).with_inputs("history", "question", "evidence_ids")


@pytest.fixture
def questions_file(tmp_path: Path) -> str:
    """A file with questions about six users; a test module may define others of this name."""
    return own_questions(tmp_path)


@pytest.fixture
def compile_turn_rag(questions_file: str, scripted: Any) -> Callable[..., CompileResult]:
    """A function that compiles Turn RAG with a scripted model on questions of six users.

    Its arguments are the model, the optimizer (a name or what else `mempiler.compile` takes), and
    options of `mempiler.compile`.
    """

    def run(model: MarkerModel, optimizer: Any, **options: Any) -> CompileResult:
        lm = scripted(model)
        model.engine = lm.engine
        if isinstance(optimizer, str):
            options.setdefault("optimizer_set", PROPOSING_OPTIMIZERS.get(optimizer))
        options = {"train": 16, "threads": 1, "min_n": 8, **options}
        return mempiler.compile(
            "turn-rag",
            benchmark="jsonl",
            data=questions_file,
            optimizer=optimizer,
            lm=lm,
            progress=False,
            **options,
        )

    return run
