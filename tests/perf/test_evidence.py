"""perf/evidence.py: a cell is run once and keeps its figures; tables over all cells are those of the documentation."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "data" / "evidence.json"
COMMAND = "mempiler compile turn-rag --on locomo --data locomo2.json --with labeled --lm gguf:qwen2.5-coder-0.5b"
CELL = {
    **{"on": "locomo", "seed": 0, "lm": "qwen2.5-coder-0.5b"},
    "command": f"{COMMAND} --train 3 --dev 4 --test 4 --threads 2 --force",
}


@pytest.fixture
def evidence(cli: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script, with the offline engine in the place of the model, its commands in this process."""
    monkeypatch.syspath_prepend(str(ROOT / "perf"))
    import evidence

    def offline(command: list[str], env: dict[str, str], **settings: Any) -> Any:
        swapped = [{"gguf:qwen2.5-coder-0.5b": "offline"}.get(part, part) for part in command[3:]]
        home = Path(env["MEMPILER_HOME"])
        with monkeypatch.context() as patch:
            patch.setenv("MEMPILER_HOME", str(home))
            return subprocess.CompletedProcess(command, *cli(*swapped))

    monkeypatch.setattr(evidence, "subprocess", SimpleNamespace(run=offline))
    yield evidence
    del sys.modules["evidence"]


@pytest.fixture
def run(evidence: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the script over one cell; gives what the file holds then."""
    data = tmp_path / "evidence.json"
    data.write_text(json.dumps({"cells": [CELL]}))

    def started(*arguments: str) -> dict[str, Any]:
        sample = ROOT / "data" / "samples" / "locomo.json"
        given = [f"--locomo={sample}", f"--data={data}", f"--out={tmp_path}", *arguments]
        monkeypatch.setattr(sys, "argv", ["evidence", *given])
        evidence.main()
        return json.loads(data.read_text())

    return started


def test_a_cell_is_run_once_and_goes_on_where_it_was(run: Any, tmp_path: Path) -> None:
    first = run()
    (cell,) = first["cells"]
    assert (cell["method"], cell["with"], cell["n"], cell["went on"]) == ("turn-rag", "labeled", 3, False)
    assert str(tmp_path) not in json.dumps(first), "figures are to be read elsewhere"
    assert "--data locomo2.json" in cell["command"]
    assert [len(cell["questions"][phase]["score"]) for phase in ("before", "after")] == [4, 4]
    assert run() == first
    (again,) = run("--again")["cells"]
    assert again["went on"]
    assert again["questions"] == cell["questions"]
    assert len(list(tmp_path.glob("*/home/*/run.json"))) == 1


def test_a_cell_that_fails_says_why(run: Any) -> None:
    (cell,) = run("--file", "none.gguf")["cells"]
    assert "none.gguf" in cell["failed"]
    assert "before" not in cell


def test_tables_over_all_cells_are_those_of_the_documentation(evidence: Any, tmp_path: Path) -> None:
    found = json.loads(DATA.read_text(encoding="utf-8"))
    bare = {name: found[name] for name in ("cells", "weights")}
    evidence.keep(bare, tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == found
    (row,) = [each for each in found["overview"] if (each["method"], each["adapter"]) == ("h2memory", "chat")]
    assert row["above zero"] == ["labeled", "bootstrap-random"]
    assert [row["mipro"], row["n"], row["labeled"] > row["before"]] == ["=", 12, True]
    starts = [each for each in found["adapters"] if each["with"] == "(before)"]
    assert len(starts) == 8
    assert all(each["difference"]["mean"] == pytest.approx(each["chat"] - each["auto"]) for each in starts)
