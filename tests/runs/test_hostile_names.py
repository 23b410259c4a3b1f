"""Names in a user's file are only shown, whatever tags, slashes or `..` they hold.

They never become the path of a file outside the results folder, or a tag on a page.
"""

import json
import logging
from pathlib import Path

import pytest
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.folder import RunFolder
from mempiler.runs.pages.html import HTML
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
    """An empty folder; the results folder is `results` within it."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "results"))
    return tmp_path


def evaluate_category(folder: Path, file_name: str, category: str) -> Evaluation:
    """Evaluate turn RAG on a file of two questions, whose category, ids and users have a name."""
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


@pytest.mark.usefixtures("mlflow_tracking")
@pytest.mark.parametrize("category", HOSTILE_NAMES, ids=ascii)
def test_a_hostile_category_is_recorded_as_it_is_and_makes_no_file_elsewhere(
    folder: Path, caplog: pytest.LogCaptureFixture, category: str
) -> None:
    """The category, ids and users of two questions have a name such as "../../outside"."""
    with caplog.at_level(logging.WARNING, "mempiler"):
        evaluation = evaluate_category(folder, "own.jsonl", category)

    assert {path.name for path in folder.iterdir()} == {"results", "own.jsonl"}
    # MLflow may refuse a name: then there would be a warning.
    assert "MLflow store" not in caplog.text
    assert client().get_run(evaluation.run_id).info.status == "FINISHED"
    rows = client().download_artifacts(
        evaluation.run_id, "evaluation_rows.jsonl", str(folder / "results")
    )
    categories = [json.loads(line)["category"] for line in Path(rows).read_text().splitlines()]
    assert categories == [category, category]


@pytest.mark.usefixtures("mlflow_tracking")
@pytest.mark.parametrize(
    "file_name",
    ["<script>alert(1)<script>.jsonl", "two\nlines.jsonl", "..%2f..%2fx.jsonl"],
    ids=ascii,
)
def test_a_hostile_file_name_is_escaped_on_the_page_and_makes_no_file_elsewhere(
    folder: Path, file_name: str
) -> None:
    """The two questions of the file have the category "<script>alert(1)</script>"."""
    evaluation = evaluate_category(folder, file_name, "<script>alert(1)</script>")

    assert {path.name for path in folder.iterdir()} == {"results", file_name}
    assert client().get_run(evaluation.run_id).info.status == "FINISHED"
    (page,) = (folder / "results").glob(f"*/{HTML}")
    text = page.read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


@pytest.mark.parametrize(
    ("letter", "expected_letters"),
    [
        pytest.param("x", 150, id="one byte"),
        pytest.param("记", 50, id="three bytes"),
        pytest.param("𐐷", 37, id="four bytes"),
    ],
)
def test_a_long_name_of_a_run_is_cut_to_150_bytes(
    folder: Path, letter: str, expected_letters: int
) -> None:
    """The name of a run is the name of its folder. No letter is cut in two."""
    # File systems refuse names of more than 255 bytes.
    created = RunFolder.create(letter * 300, {})

    assert created.path.name.count(letter) == expected_letters
    assert RunFolder.open(created.path.name).path == created.path
