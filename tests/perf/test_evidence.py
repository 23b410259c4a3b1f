"""The evidence page says what its cells hold."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mempiler.cli import main

PERF = Path(__file__).parents[2] / "perf"
NAME = "turn-rag-locomo-labeled-auto"
Page = Callable[[list[dict[str, Any]]], str]


@contextmanager
def script(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Any]:
    """Runs the script with the offline engine in the place of the model, its commands in this process."""
    monkeypatch.syspath_prepend(str(PERF))
    import evidence

    store = Path(os.environ["MEMPILER_HOME"]) / "mlflow.db"

    def offline(command, env, **settings):
        swapped = [{"gguf:qwen2.5-coder-0.5b": "offline"}.get(part, part) for part in command[3:]]
        home = Path(env["MEMPILER_HOME"])
        home.mkdir(parents=True, exist_ok=True)
        if store.exists() and not (home / "mlflow.db").exists():
            shutil.copy(store, home)
        code = 0
        with (
            monkeypatch.context() as patch,
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
        ):
            patch.setenv("MEMPILER_HOME", str(home))
            try:
                main(swapped)
            except SystemExit as ended:
                code = int(ended.code or 0)  # pyright: ignore[reportArgumentType]
        return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())

    monkeypatch.setattr(evidence, "subprocess", SimpleNamespace(run=offline))

    def started(*arguments: str) -> None:
        sample = PERF.parent / "data" / "samples" / "locomo.json"
        folders = [f"--{name}={folder}" for name in ("out", "cells")]
        monkeypatch.setattr(sys, "argv", ["evidence", f"--locomo={sample}", *folders, *arguments])
        evidence.main()

    yield started
    del sys.modules["evidence"]
    sys.modules.pop("evidence_page", None)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script; its cells and runs are below `tmp_path`."""
    with script(monkeypatch, tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A cell that was run once for all tests that only print it."""
    folder = tmp_path_factory.mktemp("cell")
    with pytest.MonkeyPatch.context() as patch, script(patch, folder) as run:
        run("--only", NAME)
    [path] = folder.glob("*.json")
    return json.loads(path.read_text())


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """Makes the page of cells."""
    monkeypatch.syspath_prepend(str(PERF))
    import evidence_page

    yield evidence_page.page
    del sys.modules["evidence_page"]


def test_a_cell_is_run_once_and_the_page_says_its_numbers(run, tmp_path: Path, monkeypatch) -> None:
    run("--only", NAME)
    [path] = tmp_path.glob("*.json")
    result = json.loads(path.read_text())
    result["outcome"]["difference"] = {"mean": 0.2, "interval": [0.1, 0.3]}
    assert str(tmp_path) not in path.read_text(), "a cell is to be read elsewhere"
    path.write_text(json.dumps(result))
    run("--only", NAME)
    run("--write", str(tmp_path / "page.md"))
    page = (tmp_path / "page.md").read_text()
    assert "Of 1 compiled programs the interval of the difference lies above zero for 1, below zero for 0" in page
    assert "| `turn-rag` | locomo | labeled | auto | - |" in page
    assert "+0.200 [+0.100, +0.300]" in page
    assert "--data locomo.json" in page
    assert str(tmp_path) not in page


def test_a_program_that_is_as_the_start_is_told_with_the_reason(cell: dict[str, Any], page: Page) -> None:
    assert "as the start |" not in page([cell]), "labeled demos make prompts longer"
    start = cell["outcome"]["start"]
    same = {**cell["outcome"], "result": start, "optimizer": {"optimizer": "labeled", "notes": ["no demos: none fits"]}}
    told = page([{**cell, "outcome": same, "rows": dict.fromkeys(("start", "result"), cell["rows"]["start"])}])
    assert "as the start |" in told
    assert "of which 1 ask and answer just as the start does" in told
    assert "- no demos: none fits: `turn-rag` locomo labeled auto\n" in told


def test_both_adapters_are_compared_on_the_questions_they_share(cell: dict[str, Any], page: Page) -> None:
    parameters = {**cell["run"]["parameters"], "adapter": "auto"}
    auto = {**cell, "run": {"parameters": parameters}}
    lost = [{**row, "score": 0.0, "failure": "parse"} for row in cell["rows"]["start"]]
    chat = {**cell, "run": {"parameters": parameters | {"adapter": "chat"}}, "rows": {**cell["rows"], "start": lost}}
    answers = {"method.writer.extract": {"lost": 3, "ok": 1}, "task.answer": {"ok": 4}}
    chat["outcome"] = {**cell["outcome"], "usage": {**cell["outcome"]["usage"], "answers": answers}}
    assert "plain chat" not in page([auto])
    told = page([auto, chat]).split("## JSON schemas or plain chat")[1].split("## ")[0]
    [start, compiled] = [line.split(" | ") for line in told.splitlines() if line.startswith("| `")]
    assert (start[2], compiled[2]) == ("(start)", "labeled")
    assert (start[5], start[7:9]) == (".000", ["0.00", "1.00"])
    assert float(start[6].split()[0]) == pytest.approx(-cell["outcome"]["start"]["score"], abs=5e-4)
    assert compiled[6].startswith("+0.000")
    assert start[9:] == ["-", "0.75 |"]


def test_splits_with_other_test_users_are_taken_together(cell: dict[str, Any], page: Page) -> None:
    n = cell["outcome"]["start"]["n"]
    assert "splits together" not in page([cell])
    told = page([cell, {**cell, "seed": 4}])
    assert "- `turn-rag` on locomo with labeled under auto, its 2 splits together" in told
    assert f"n = {2 * n};" in told
    assert "| `turn-rag` | locomo, seed 4 | labeled |" in told


@pytest.mark.parametrize(("low", "bold"), [(0.1, True), (-0.1, False)])
def test_at_a_glance_there_is_a_row_per_method_and_a_column_per_optimizer(
    cell: dict[str, Any], page: Page, low: float, bold: bool
) -> None:
    outcome = cell["outcome"]
    moved = {**cell, "outcome": {**outcome, "difference": {"mean": 0.2, "interval": [low, 0.3]}}}
    still = {**outcome, "result": outcome["start"], "optimizer": {"optimizer": "gepa"}}
    same = {**cell, "outcome": still, "rows": dict.fromkeys(("start", "result"), cell["rows"]["start"])}
    other = {**moved, "lm": "smollm2"}
    told = page([moved, same, other]).split("## At a glance")[1].split("## ")[0]
    head, _, *rows = [line.strip("| ").split(" | ") for line in told.splitlines() if line.startswith("|")]
    assert head == ["method", "on", "adapter", "n", "start", "labeled", "gepa"]
    assert [row[0] for row in rows] == ["`turn-rag`", "`turn-rag`, smollm2"]
    assert rows[0][5].startswith("**") is bold
    assert (rows[0][6], rows[1][6]) == ("=", "-")


def test_splits_of_an_optimizer_share_a_place_at_a_glance(cell: dict[str, Any], page: Page) -> None:
    n = cell["outcome"]["start"]["n"]
    told = page([cell, {**cell, "seed": 4}]).split("## At a glance")[1].split("## ")[0]
    [row] = [line for line in told.splitlines() if line.startswith("| `")]
    assert f"| {2 * n} |" in row


def test_a_cell_that_was_cut_off_goes_on(run, tmp_path: Path) -> None:
    run("--only", NAME)
    [path] = tmp_path.glob("*.json")
    first = json.loads(path.read_text())
    path.unlink()
    run("--only", NAME)
    again = json.loads(path.read_text())
    assert (first["resumed"], again["resumed"]) == (False, True)
    assert len(list(tmp_path.glob("*/home/*/run.json"))) == 1
    assert again["rows"] == first["rows"]


def test_a_cell_that_fails_is_on_the_page_with_its_reason(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MEMPILER_MODELS", str(tmp_path / "none"))
    run("--only", "turn-rag-locomo-bootstrap-random-auto-smollm2")
    run("--write", str(tmp_path / "page.md"))
    assert "mempiler models fetch smollm2" in (tmp_path / "page.md").read_text().split("What did not end")[1]
