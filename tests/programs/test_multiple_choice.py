"""The task multiple-choice: what its prompt shows, the memories it shares, and that it evaluates and compiles."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.optimizers.compile import Compilation
from mempiler.programs.catalog import build
from mempiler.runs.artifact import load
from mempiler.runs.experiment import run_compile
from mempiler.runs.setup import Setup

OPTIONS = ["(a) Lisbon, by the sea.", "(b) Oslo, in the snow."]


def test_the_prompt_shows_context_question_and_options(
    scripted: Callable[..., Any], make_history: Callable[..., Any]
) -> None:
    lm = scripted(lambda kind, text, n: {"answer": "(b)"})
    program = build("turn-rag", "multiple-choice")
    with dspy.context(lm=lm):
        found = program(history=make_history(2), question="Who saw Oslo?", options=OPTIONS)
    ((kind, text),) = lm.engine.prompts
    assert (kind, found.answer) == ("answer", "(b)")
    assert all(part in text for part in ("Who saw Oslo?", *OPTIONS, "I saw Oslo with 1 friends"))


@pytest.mark.parametrize("optimizer", ["labeled", "bootstrap"])
def test_it_compiles_and_loads_with_its_demos(tmp_path: Path, optimizer: str) -> None:
    setup = Setup(benchmark="personamem", train=12, dev=6, test=6)
    run_compile("turn-rag", setup, Compilation(optimizer), out=tmp_path / "out", force=True)
    program = load(tmp_path / "out")
    assert program.task.name == "multiple-choice"
    demos = program.task.answer.demos
    assert demos
    assert all({"question", "options", "answer"} <= set(demo.keys()) for demo in demos)
    assert all(demo.answer in ("(a)", "(b)", "(c)", "(d)") for demo in demos if "context" not in demo)
