"""perf/evidence.py: cells are run once and resumed, and the tables are those of the pages.

docs/data/evidence.json holds the results of this project's experiments. A cell is one of them: a
`mempiler compile` of a method, a benchmark, an optimizer and a model, with its scores before and
after. The script runs the cells that have no figures yet, and computes the tables of
docs/evidence.md over all cells.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "data" / "evidence.json"
SAMPLE = ROOT / "data" / "samples" / "locomo.json"

MODEL = "gguf:qwen2.5-coder-0.5b"
CELL = {
    "on": "locomo",  # the benchmark
    "seed": 0,
    "lm": "qwen2.5-coder-0.5b",
    "variant": "",  # what is unusual about the cell
    "command": (
        "mempiler compile turn-rag --benchmark locomo --data locomo2.json --optimizer labeled "
        f"--lm {MODEL} --train 3 --dev 4 --test 4 --threads 2 --force"
    ),
}
"""A cell that has no figures yet."""


@pytest.fixture
def evidence(cli: Any, script: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script; it runs commands in this process, with the offline model in place of the GGUF."""
    module = script("evidence")

    def run_offline(
        command: list[str], env: dict[str, str], **settings: Any
    ) -> subprocess.CompletedProcess[str]:
        # The first three words are "python -m mempiler".
        arguments = ["offline" if word == MODEL else word for word in command[3:]]
        with monkeypatch.context() as patch:
            patch.setenv("MEMPILER_HOME", env["MEMPILER_HOME"])
            status, output, errors = cli(*arguments)
        return subprocess.CompletedProcess(command, status, output, errors)

    monkeypatch.setattr(module, "subprocess", SimpleNamespace(run=run_offline))
    return module


@pytest.fixture
def run(
    evidence: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """Runs the script over one cell, and returns what is in the file then."""
    data = tmp_path / "evidence.json"
    data.write_text(json.dumps({"cells": [CELL]}))

    def run_script(*arguments: str) -> dict[str, Any]:
        options = [f"--locomo={SAMPLE}", f"--data={data}", f"--out={tmp_path}", *arguments]
        monkeypatch.setattr(sys, "argv", ["evidence", *options])
        evidence.main()
        return json.loads(data.read_text())

    return run_script


def test_a_cell_has_the_figures_of_its_compile(run: Any) -> None:
    """The command asks four test questions, one of which does not count for the score."""
    (cell,) = run()["cells"]

    assert cell["method"] == "turn-rag"
    assert cell["with"] == "labeled"
    assert cell["n"] == 3
    assert len(cell["questions"]["before"]["score"]) == 4
    assert len(cell["questions"]["after"]["score"]) == 4


def test_the_published_cells_name_no_folder_of_this_machine(run: Any, tmp_path: Path) -> None:
    document = run()

    (cell,) = document["cells"]
    assert "--data locomo2.json" in cell["command"]
    assert str(tmp_path) not in json.dumps(document)


def test_a_cell_is_run_once(run: Any, tmp_path: Path) -> None:
    """If the script is run again, it finds the figures, and runs nothing."""
    first = run()

    second = run()

    assert second == first
    assert len(list(tmp_path.glob("*/home/*/run.json"))) == 1


def test_a_cell_that_is_run_again_resumes_its_earlier_run(run: Any, tmp_path: Path) -> None:
    """With --again the compile is run once more. It goes on from the run that is there."""
    (first,) = run()["cells"]
    assert first["went on"] is False

    (again,) = run("--again")["cells"]

    assert again["went on"] is True
    assert again["questions"] == first["questions"]
    assert len(list(tmp_path.glob("*/home/*/run.json"))) == 1


def fail_with_two_lines(command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
    """Take the place of `subprocess.run`: a command that fails, and prints two lines."""
    return subprocess.CompletedProcess(command, 2, "", "first line\nno such model\n")


def test_a_cell_that_fails_keeps_the_last_line_of_the_error(
    evidence: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "subprocess", SimpleNamespace(run=fail_with_two_lines))

    (cell,) = run()["cells"]

    assert cell == {**CELL, "failed": "no such model"}


def test_a_cell_that_fails_when_it_is_run_again_keeps_no_old_figures(
    evidence: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell,) = run()["cells"]
    assert "before" in cell
    monkeypatch.setattr(evidence, "subprocess", SimpleNamespace(run=fail_with_two_lines))

    document = run("--again")

    assert document["cells"] == [{**CELL, "failed": "no such model"}]
    assert document["overview"] == []


def problem_of(
    evidence: Any, before: list[str], after: list[str], counts_for_score: bool = True
) -> str | None:
    """Return why the scores of a compile cannot be compared; None if they can.

    Args:
        evidence: The script.
        before: The ids of the questions that were scored before the compile.
        after: The ids of those that were scored after it.
        counts_for_score: Whether the questions count for the score.
    """
    # Of a row only its second value matters here: whether the question counts for the score.
    row = evidence.QuestionRow("1", counts_for_score, 1.0, None, None, None, 1, 1)
    run = evidence.CompiledRun(
        outcome={},
        parameters={},
        rows={"before": [row] * len(before), "after": [row] * len(after)},
        question_ids={"before": before, "after": after},
    )
    return evidence.find_problem(run)


def test_scores_of_the_same_questions_can_be_compared(evidence: Any) -> None:
    assert problem_of(evidence, before=["a", "b"], after=["a", "b"]) is None


def test_scores_cannot_be_compared_if_a_question_was_not_scored_after_the_compile(
    evidence: Any,
) -> None:
    problem = problem_of(evidence, before=["a", "b"], after=["a"])

    assert problem is not None
    assert problem.endswith("2 before, 1 after; the first that differs is b before, none after")


def test_scores_cannot_be_compared_if_another_question_was_scored_after_the_compile(
    evidence: Any,
) -> None:
    problem = problem_of(evidence, before=["a", "b"], after=["a", "c"])

    assert problem is not None
    assert problem.endswith("2 before, 2 after; the first that differs is b before, c after")


def test_scores_cannot_be_compared_if_no_question_counts(evidence: Any) -> None:
    problem = problem_of(evidence, before=["a"], after=["a"], counts_for_score=False)

    assert problem is not None
    assert problem.endswith("no question counts for the score")


def test_the_published_tables_are_those_that_the_script_computes_from_the_published_cells(
    script: Any, tmp_path: Path
) -> None:
    """docs/data/evidence.json holds the cells and the tables."""
    evidence = script("evidence")
    published = json.loads(DATA.read_text(encoding="utf-8"))
    document = {name: published[name] for name in ("cells", "weights")}

    evidence.update_tables(document)
    evidence.write_document(document, tmp_path / "again.json")

    assert (tmp_path / "again.json").read_text() == DATA.read_text(encoding="utf-8")


def test_the_published_results_of_h2memory_are_those_that_the_pages_mention() -> None:
    """In the overview, "=" stands for a compile that changed no prompt and no answer."""
    published = json.loads(DATA.read_text(encoding="utf-8"))

    (line,) = [
        line
        for line in published["overview"]
        if line["method"] == "h2memory" and line["adapter"] == "chat"
    ]

    assert line["above zero"] == ["labeled", "bootstrap-random"]
    assert line["mipro"] == "="
    assert line["n"] == 12
    assert line["labeled"] > line["before"]
