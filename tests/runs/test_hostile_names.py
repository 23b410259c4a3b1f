"""Names in a user's file are only shown, whatever tags, slashes or `..` they hold.

They never become the path of a file outside the results folder, or a tag on a page.
"""

import json
import logging
from pathlib import Path

import pytest
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.folder import RunFolder
from mempiler.runs.results import Evaluation
from mempiler.runs.tracking.store import client

from ..run_inputs import run_inputs

HOSTILE_NAMES = [
    "<script>alert(1)</script>",
    "two\nlines",
    "../../outside",
    "/etc/passwd",
    "a\\..\\b",
    "%2e%2e%2fx",
    "..",
    "' OR '1'='1",
    "\x1b[31m",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; the results folder will be `results` within it."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "results"))
    return tmp_path


def evaluate_category(folder: Path, file_name: str, category: str) -> Evaluation:
    """Evaluate turn RAG on a file of two questions.

    Both have the category, and their ids and users begin with it.
    """
    lines = []
    for number in range(2):
        question = {
            "id": f"{category}-{number}",
            "user": f"{category}-{number}",
            "messages": [{"role": "user", "content": "I moved to Lisbon."}],
            "question": "Where?",
            "answer": "Lisbon",
            "category": category,
        }
        lines.append(json.dumps(question))
    data = folder / file_name
    data.write_text("\n".join(lines))
    return run_evaluate("turn-rag", run_inputs(benchmark="jsonl", data=str(data), lm="offline"))


def recorded_categories(evaluation: Evaluation, folder: Path) -> list[str]:
    """Return the categories of the rows that MLflow has of an evaluation."""
    file = client().download_artifacts(
        evaluation.run_id, "evaluation_rows.jsonl", str(folder / "results")
    )
    return [json.loads(line)["category"] for line in Path(file).read_text().splitlines()]


@pytest.mark.usefixtures("mlflow_tracking")
@pytest.mark.parametrize("category", HOSTILE_NAMES, ids=ascii)
def test_a_hostile_category_is_recorded_unchanged_and_makes_no_file_outside_the_results_folder(
    folder: Path, caplog: pytest.LogCaptureFixture, category: str
) -> None:
    """Users and ids have hostile names, too, such as "../../outside"."""
    with caplog.at_level(logging.WARNING, "mempiler"):
        evaluation = evaluate_category(folder, "own.jsonl", category)

    assert {path.name for path in folder.iterdir()} == {"results", "own.jsonl"}
    # If MLflow refused a name, there would be a warning.
    assert "MLflow store" not in caplog.text
    assert client().get_run(evaluation.run_id).info.status == "FINISHED"
    assert recorded_categories(evaluation, folder) == [category, category]


@pytest.mark.usefixtures("mlflow_tracking")
@pytest.mark.parametrize(
    "file_name",
    ["<script>alert(1)<script>.jsonl", "two\nlines.jsonl", "..%2f..%2fx.jsonl"],
    ids=ascii,
)
def test_a_hostile_file_name_makes_no_file_outside_the_results_folder(
    folder: Path, file_name: str
) -> None:
    evaluation = evaluate_category(folder, file_name, category="1")

    assert {path.name for path in folder.iterdir()} == {"results", file_name}
    assert client().get_run(evaluation.run_id).info.status == "FINISHED"


@pytest.mark.parametrize(
    ("letter", "letters_left"),
    [
        pytest.param("x", 150, id="one byte"),
        pytest.param("记", 50, id="three bytes"),
        pytest.param("𐐷", 37, id="four bytes"),
    ],
)
def test_the_name_of_a_runs_folder_is_cut_to_150_bytes_between_two_letters(
    folder: Path, letter: str, letters_left: int
) -> None:
    """File systems refuse names of more than 255 bytes."""
    created = RunFolder.create(letter * 300, {})

    assert created.path.name.count(letter) == letters_left
    assert RunFolder.open(created.path.name).path == created.path
