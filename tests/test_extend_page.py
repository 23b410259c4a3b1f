"""`docs/extend.md` works as it stands: its files are written into an empty folder, and its commands are run there."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mempiler.data.catalog import benchmark
from mempiler.errors import DataError, UnknownNameError

PAGE = (Path(__file__).parents[1] / "docs" / "extend.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^\*\*([\w.]+)\*\*\n\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
COMMANDS = re.findall(r"^\$ PYTHONPATH=\. mempiler (.*)$", PAGE, re.MULTILINE)

DRIVER = """
import contextlib, io, json, shlex, sys
from mempiler.cli import main
results = {}
for line in json.load(sys.stdin):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main([*shlex.split(line), "--json"])
    results[line] = json.loads(printed.getvalue())
print(json.dumps(results))
"""
"""Runs commands one after another in one process: starting one for each would take seconds each time."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files and nothing else."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    """What each command of the page prints with `--json`, by its first four words."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "MEMPILER_HOME": str(folder / "runs")}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(COMMANDS),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {" ".join(line.split()[:4]): result for line, result in json.loads(done.stdout).items()}


@pytest.fixture
def importable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's modules can be imported in this process, for one test."""
    monkeypatch.syspath_prepend(folder)
    yield
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def test_every_code_block_of_the_page_is_a_file_or_a_command() -> None:
    """What the other tests do not see would not be tested."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for language, text in blocks if language == "console" for line in text.splitlines()]
    assert [f"$ PYTHONPATH=. mempiler {line}" for line in COMMANDS] == lines
    assert [text for language, text in blocks if language != "console"] == list(FILES.values())


def test_the_method_writes_a_memory_that_holds_the_evidence(results: dict[str, Any]) -> None:
    found = results["evaluate session_notes:SessionNotes --on locomo"]
    assert (found["failures"], found["write_failures"]) == (0, 0)
    assert found["retrieval"]["recall@20"] > 0.5


def test_the_method_is_compiled_and_saved_with_demos_for_writing_and_reading(
    folder: Path, results: dict[str, Any]
) -> None:
    assert results["compile session_notes:SessionNotes --on locomo"]["promoted"]
    state = json.loads((folder / "notes" / "state.json").read_text(encoding="utf-8"))
    assert [name for name, predictor in state.items() if predictor["demos"]] == ["method.take_notes", "task.answer"]


def test_the_saved_method_is_loaded_and_scores_as_before(results: dict[str, Any]) -> None:
    compiled = results["compile session_notes:SessionNotes --on locomo"]["result"]
    loaded = results["evaluate notes --on locomo"]
    assert (loaded["n"], loaded["score"]) == (compiled["n"], compiled["score"])


def test_the_benchmark_is_read_and_scored(results: dict[str, Any]) -> None:
    found = results["evaluate turn-rag --on trivia:Trivia"]
    assert (found["benchmark"], found["n"], found["score"]) == ("trivia", 2, 1.0)
    assert set(found["by"]) == {"homes", "pets"}


def test_the_method_runs_on_the_benchmark_with_an_option(results: dict[str, Any]) -> None:
    found = results["evaluate session_notes:SessionNotes --on trivia:Trivia"]
    assert (found["n"], found["score"], list(found["by"])) == (1, 1.0, ["pets"])


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    ("text", "message"),
    [('[{"user": "ann"}]', "not a trivia file: 'chat'"), ("7", "not a trivia file"), ("", "the file is empty")],
)
def test_the_benchmark_refuses_another_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "other.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=f"other.json: {message}"):
        benchmark("trivia:Trivia", tmp_path / "other.json")


@pytest.mark.usefixtures("importable")
def test_the_benchmark_refuses_an_option_it_does_not_know(folder: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown option of trivia 'metric'"):
        benchmark("trivia:Trivia", folder / "trivia.json", metric="f1")
