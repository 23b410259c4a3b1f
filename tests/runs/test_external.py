"""What is scored beside our methods: a store that is named runs in processes of its own, and a run of it is resumed."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.engines.guard import Limits
from mempiler.engines.models import language_model
from mempiler.errors import ProgramError, UserError
from mempiler.programs.external.program import program_of
from mempiler.runs.artifact import load, save
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.external import resolve_external
from mempiler.runs.folder import RunFolder
from mempiler.runs.planning import plan_evaluate
from mempiler.runs.setup import Setup

MODULE = """
import os, dspy

class Fine:
    def __init__(self):
        self.lines = []
    def add(self, session):
        self.lines += session.lines()
    def search(self, query, k):
        return [{"text": line, "score": 1} for line in self.lines[-k:]]
    def __len__(self):
        return len(self.lines)

class Asking(Fine):
    def add(self, session):
        self.lines.append(dspy.Predict("text -> fact")(text=session.lines()[0]).fact)

class Exit(Fine):
    def add(self, session):
        os._exit(7)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's module `mine_to_score`."""
    (tmp_path / "mine_to_score.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("mine_to_score", None)


def test_a_store_that_ends_its_process_is_failed_rows(module):
    found = run_evaluate("mine_to_score:Exit", Setup("locomo", test=3))
    assert all(row.failure is not None and "status 7" in row.failure.message for row in found.rows)


def test_a_run_that_was_stopped_asks_no_model_again(module):
    def evaluation(**more: Any) -> Any:
        setup = Setup("locomo", test=6, threads=1, **more)
        return run_evaluate("mine_to_score:Asking", replace(setup, config={"isolated": False}))

    whole, first = evaluation(), evaluation(limits=Limits(max_calls=4))
    assert first.stopped
    run = RunFolder.open(str(first.run_id))
    second = evaluation(resume=str(run.path))
    assert [row.answer for row in second.rows] == [row.answer for row in whole.rows]
    assert second.construction.calls == whole.construction.calls
    assert first.calls["task"] + second.calls["task"] == whole.calls["task"]
    assert run.finished


def test_what_another_system_takes_is_not_planned(module):
    with pytest.raises(UserError, match="leave --plan out"):
        plan_evaluate("mine_to_score:Fine", Setup("locomo"))


def test_a_program_over_a_shipped_system_is_saved_and_loaded(module, monkeypatch, make_history):
    from mine_to_score import Fine

    def factory(name: str) -> Any:
        return {"fine": lambda folder, embedder=None: Fine()}[name]

    monkeypatch.setattr("mempiler.systems.catalog.factory", factory)
    program = program_of(resolve_external("system:fine"), "system:fine", "question-answering", config={"k": 3})
    save(program, module / "program")
    with pytest.raises(ProgramError, match="--allow-code"):
        load(module / "program")
    loaded = load(module / "program", allow_code=True)
    with dspy.context(lm=language_model()):
        assert len(loaded(history=make_history(1), question="Who?").context.hits) == 3
    loaded.method.close()
