"""What a comparison says of runs beside their scores."""

from pathlib import Path
from typing import Any

import pytest
from mempiler.runs.compare import keep_rows, recorded
from mempiler.runs.folder import RunFolder
from mempiler.runs.report import spent_facts
from mempiler.runs.results import Evaluation, Expense
from mempiler.runs.rows import Row

from .evaluations import evaluation as an_evaluation
from .evaluations import row as a_row

EVIL = "<script>alert(1)</script>"


def row(n: int, **changed: Any) -> Row:
    """A question that is right where its number is odd, and what it took."""
    asked = {"question": f"Who saw Oslo, {n}?", "gold": "Bob", "answer": EVIL}
    taken = {"calls": 1, "prompt_tokens": 90, "output_tokens": 10, "cost": 0.25, "answering": 0.5}
    return a_row(**{"id": f"a:{n}", "score": float(n % 2), **asked, **taken, **changed})


def evaluation(rows: list[Row], **changed: Any) -> Evaluation:
    """Four calls here, of which three wrote the memory."""
    writing = Expense(units=1, calls=3, input_tokens=600, output_tokens=0, cost=1.0, seconds=2.0)
    about = {"program": "mine:Store", "lm": "some/model", "cost": None, "calls": {"task": 4}}
    return an_evaluation(rows, **{**about, "construction": writing, **changed})


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keeps evaluations as runs in a results folder of their own."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))

    def make(found: Evaluation, **settings: Any) -> Path:
        about = {"command": "evaluate", "program": found.program, "benchmark": found.benchmark, "lm": found.lm}
        folder = RunFolder.create("x", {**about, "data": "/home/ada/locomo10.json", "options": {}, **settings})
        keep_rows(folder, "evaluation", found)
        folder.update(status="finished", result=found.summary(), versions={"mempiler": "0.1.0"}, parameters={})
        return folder.path

    return make


def test_calls_that_were_made_elsewhere_are_told_as_such(record):
    here = evaluation([row(1)])
    assert here.spent["calls"] == {"task": 4}
    away = evaluation([row(1)], calls={"task": 0}, tokens={"input": 0, "output": 0})
    assert away.spent["calls"] == {"elsewhere": 4}
    assert spent_facts({"score": away})[0][1].startswith("4 elsewhere; 690 + 10 tokens; $1.2500")
    assert recorded(str(record(away))).usage()["tokens"] == {"input": 690, "output": 10}
