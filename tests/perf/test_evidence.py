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
# "on" is the benchmark. "variant" says what is unusual about the cell; here nothing is.
CELL = {
    "on": "locomo",
    "seed": 0,
    "lm": "qwen2.5-coder-0.5b",
    "variant": "",
    "command": (
        "mempiler compile turn-rag --benchmark locomo --data locomo2.json --optimizer labeled "
        f"--lm {MODEL} --train 3 --dev 4 --test 4 --threads 2 --force"
    ),
}


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


def test_a_cell_has_the_figures_of_its_compile(run: Any, tmp_path: Path) -> None:
    """The command asks four test questions, one of which does not count for the score."""
    document = run()

    (cell,) = document["cells"]
    assert cell["method"] == "turn-rag"
    assert cell["with"] == "labeled"
    assert cell["n"] == 3
    assert len(cell["questions"]["before"]["score"]) == 4
    assert len(cell["questions"]["after"]["score"]) == 4
    assert cell["went on"] is False
    # The file is published, so it names no folder of this machine.
    assert "--data locomo2.json" in cell["command"]
    assert str(tmp_path) not in json.dumps(document)


def test_a_cell_is_run_once_and_with_again_goes_on_from_its_earlier_run(
    run: Any, tmp_path: Path
) -> None:
    """A second run of the script finds the figures, and runs nothing.

    With --again it runs the compile anew in the same results folder, which goes on from the run
    that is there.
    """
    first = run()
    second = run()
    with_again = run("--again")

    assert second == first
    (cell,) = first["cells"]
    (again,) = with_again["cells"]
    assert again["went on"] is True
    assert again["questions"] == cell["questions"]
    assert len(list(tmp_path.glob("*/home/*/run.json"))) == 1


def test_a_cell_that_fails_says_why(
    evidence: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is the last line that the failed command printed."""

    def fail(command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 2, "", "first line\nno such model\n")

    monkeypatch.setattr(evidence, "subprocess", SimpleNamespace(run=fail))

    (cell,) = run()["cells"]

    assert cell == {**CELL, "failed": "no such model"}


def test_a_cell_that_fails_when_it_is_run_again_keeps_no_old_figures(
    evidence: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell,) = run()["cells"]
    assert "before" in cell

    def fail(command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 2, "", "no such model\n")

    monkeypatch.setattr(evidence, "subprocess", SimpleNamespace(run=fail))

    document = run("--again")

    assert document["cells"] == [{**CELL, "failed": "no such model"}]
    assert document["overview"] == []


@pytest.mark.parametrize(
    ("ids", "in_headline", "problem"),
    [
        (["a"], [True, True], "2 before, 1 after; the first that differs is b before, none after"),
        (
            ["a", "c"],
            [True, True],
            "2 before, 2 after; the first that differs is b before, c after",
        ),
        (["a", "b"], [False, False], "no question counts for the score"),
        (["a", "b"], [True, False], None),
    ],
)
def test_a_run_without_comparable_scores_has_no_figures(
    evidence: Any, ids: list[str], in_headline: list[bool], problem: str | None
) -> None:
    """Scores are compared question by question.

    Before the compile, questions a and b were scored; `ids` are those after it. `in_headline` says
    which of them count for the score.
    """
    # Of a row only its second value matters here: whether the question counts for the score.
    rows = [
        evidence.QuestionRow("1", counts, 1.0, None, None, None, 1, 1) for counts in in_headline
    ]
    run = evidence.CompiledRun(
        outcome={},
        parameters={},
        rows={"before": rows, "after": rows[: len(ids)]},
        question_ids={"before": ["a", "b"], "after": ids},
    )
    found = evidence.find_problem(run)

    assert found is None if problem is None else found.endswith(problem)


def test_tables_computed_from_all_cells_are_in_the_documentation(
    script: Any, tmp_path: Path
) -> None:
    """The file holds the cells and the tables.

    Here the tables are computed anew from the cells. Two results that the pages mention are looked
    up in them.
    """
    evidence = script("evidence")
    published = json.loads(DATA.read_text(encoding="utf-8"))
    document = {name: published[name] for name in ("cells", "weights")}
    evidence.update_tables(document)
    evidence.write_document(document, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == DATA.read_text(encoding="utf-8")

    (line,) = [
        line
        for line in published["overview"]
        if line["method"] == "h2memory" and line["adapter"] == "chat"
    ]
    # "=" stands for a compile that changed no prompt and no answer.
    assert line["above zero"] == ["labeled", "bootstrap-random"]
    assert line["mipro"] == "="
    assert line["n"] == 12
    assert line["labeled"] > line["before"]

    # An adapter decides the form of prompts. A difference is "chat" minus "auto".
    starts = [line for line in published["adapters"] if line["with"] == "(before)"]
    assert len(starts) == 8
    for start in starts:
        assert start["difference"]["mean"] == pytest.approx(start["chat"] - start["auto"])
