"""`show` and `compare --page`: which questions a run got wrong, and why, from its folder alone."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mempiler.programs.catalog import build
from mempiler.runs.artifact import save
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.folder import RunFolder
from mempiler.runs.pages.html import keep_page
from mempiler.runs.pages.page import run_page
from mempiler.runs.setup import Setup

from tests.runs.pages.test_document import evaluation, row


@pytest.fixture
def home() -> str:
    """The results folder of all tests."""
    return os.environ["MEMPILER_HOME"]


@pytest.fixture
def call(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> Any:
    """Runs a command in an empty results folder."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    return cli


@pytest.fixture
def run(call: Any) -> str:
    """A run of three questions, one of them wrong for want of evidence."""
    folder = RunFolder.create("evaluate-x", {"command": "evaluate"})
    missed = row(1, "What \x1b[31mcolour?", 0.0, category="2", recall={"shown": 0.0}, answer="red", gold="blue")
    scores = {"score": evaluation(row(), missed, row(2))}
    keep_page(folder.path, run_page("evaluate", folder.path.name, scores))
    return folder.path.name


def test_a_run_says_how_many_are_wrong_and_how_to_see_them(call: Any, run: str) -> None:
    code, out, _ = call("show")
    assert code == 0
    assert "turn-rag on locomo" in out
    assert f"mempiler show {run} --wrong: these 1 questions" in out
    assert "wrong: none of the gold evidence was recalled" in out
    assert "task.answer, score: 2 lost, 0 asked again" in out
    assert f"{run}/report.html" in out


def test_wrong_questions_are_listed_with_what_went_wrong(call: Any, run: str) -> None:
    code, out, _ = call("show", run, "--wrong")
    assert code == 0
    assert out.splitlines() == [
        "q1 (2) 0.000: wrong: none of the gold evidence was recalled",
        "  question: What \\x1b[31mcolour?",
        "  gold: blue",
        "  answer: red",
        "1 of 3 questions",
        f"mempiler show {run} --question q1: what stood behind one",
    ]


def test_a_question_shows_its_evidence_and_its_prompt(call: Any, run: str) -> None:
    code, out, _ = call("show", run, "--question", "q1")
    assert code == 0
    assert "gold evidence that was not recalled:\n  [D4:2] Ann: Elsewhere." in out
    assert "* [D1:1] Ann: What \\x1b[31mcolour?" in out
    assert "prompt of task.answer (ok):\n--- user\nWhat?\n[D1:2] Bob: Yes.\n--- answer\nA" in out
    assert "\x1b[31m" not in out


def test_what_is_not_there_is_refused(call: Any, run: str) -> None:
    missing = {"q9": "has no question 'q9'", "q": "has 3 questions 'q'"}
    asked = [(["--question", id], told) for id, told in missing.items()] + [(["--category", "nine"], "category of")]
    for options, told in asked:
        code, out, err = call("show", run, *options)
        assert (code, out, err.count("\n"), told in err) == (2, "", 1, True)


def test_two_evaluations_are_put_side_by_side_in_a_page(
    call: Any, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where other tests have made a tracking store already.
    monkeypatch.setenv("MEMPILER_HOME", home)
    setup = Setup(benchmark="locomo", train=8, dev=2, test=4, embedder="offline")
    made = [str(run_evaluate("turn-rag", replace(setup, config={"k": k}), "test").run_id) for k in (2, 10)]
    code, _, _ = call("compare", *made, "--page", str(tmp_path / "both.html"))
    assert code == 0
    html = (tmp_path / "both.html").read_text(encoding="utf-8")
    data = json.loads(html.split('<script type="application/json" id="data">')[1].split("</script>")[0])
    assert data["phases"] == ["A", "B"]
    assert {tuple(len(shown["entries"]) for shown in each["shown"]) for each in data["questions"]} == {(2, 10)}
    assert all(shown["calls"] for each in data["questions"] for shown in each["shown"])
    assert f"B</dt><dd>{RunFolder.open(made[1]).path.name}" in html.replace("\n", "")


def test_the_prompts_of_a_program_are_plain_text(cli: Any, tmp_path: Path) -> None:
    save(build("turn-rag"), tmp_path / "program")
    code, out, _ = cli("show", tmp_path / "program", "--prompts")
    assert (code, out.splitlines()[:2]) == (0, ["task.answer", "==========="])
    assert cli("show", tmp_path, "--prompts")[0] == 2
