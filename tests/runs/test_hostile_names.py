"""Names that a user's file brings along, with tags, line ends, slashes and `..`, are recorded and lead nowhere."""

import html
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.folder import RunFolder
from mempiler.runs.pages.html import HTML
from mempiler.runs.tracking.store import client

from ..run_inputs import run_inputs

SCRIPT = "<script>alert(1)</script>"
HOSTILE = [
    SCRIPT,
    "two\nlines",
    "../../outside",
    "/etc/passwd",
    "a\\..\\b",
    "%2e%2e%2fx",
    "..",
    "' OR '1'='1",
    "\x1b[31m",
]


def evaluated(folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, category: str) -> Any:
    """Evaluate turn RAG on a file of two questions of this category; the results folder is `folder/results`."""
    monkeypatch.setenv("MEMPILER_HOME", str(folder / "results"))
    past = [{"role": "user", "content": "I moved to Lisbon."}]
    row = {"messages": past, "question": "Where?", "answer": "Lisbon", "category": category}
    rows = [
        {**row, "id": f"{category}-{number}", "user": f"{category}-{number}"} for number in range(2)
    ]
    data = folder / file
    data.write_text("\n".join(map(json.dumps, rows)))
    return run_evaluate("turn-rag", run_inputs(benchmark="jsonl", data=str(data), lm="offline"))


def files_outside(folder: Path, file: str) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"results", file}


@pytest.mark.parametrize("category", HOSTILE, ids=ascii)
def test_a_hostile_category_is_recorded_whole_and_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, category: str
) -> None:
    with caplog.at_level(logging.WARNING, "mempiler"):
        outcome = evaluated(tmp_path, monkeypatch, "own.jsonl", category)
    assert "MLflow store" not in caplog.text
    run = client().get_run(outcome.run_id)
    assert run.info.status == "FINISHED"
    assert files_outside(tmp_path, "own.jsonl") == set()
    rows = Path(
        client().download_artifacts(
            outcome.run_id, "evaluation_rows.jsonl", str(tmp_path / "results")
        )
    )
    assert {json.loads(line)["category"] for line in rows.read_text().splitlines()} == {category}


@pytest.mark.parametrize(
    "file", [f"{SCRIPT.replace('/', '')}.jsonl", "two\nlines.jsonl", "..%2f..%2fx.jsonl"], ids=ascii
)
def test_a_hostile_file_name_is_escaped_and_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    outcome = evaluated(tmp_path, monkeypatch, file, SCRIPT)
    assert client().get_run(outcome.run_id).info.status == "FINISHED"
    assert files_outside(tmp_path, file) == set()
    (path,) = (tmp_path / "results").glob(f"*/{HTML}")
    page = path.read_text()
    assert "<script>alert" not in page
    assert html.escape(SCRIPT) in page


@pytest.mark.parametrize("letter", ["x", "记", "𐐷"])
def test_a_name_of_many_letters_is_cut_to_what_a_folder_may_be_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    folder = RunFolder.create(letter * 300, {})
    assert RunFolder.open(folder.path.name).path == folder.path
    assert folder.path.name.count(letter) == 150 // len(letter.encode())
