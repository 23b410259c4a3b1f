"""All fields of the examples that each reader makes of its example file, as they were reviewed.

The reviewed examples stand in `full_rows.jsonl`. After a change that is meant, write them anew:

    MEMPILER_ROWS=write python -m pytest tests/data/test_full_rows.py
"""

import json
import os
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import History
from mempiler.data.catalog import benchmark

from .forms import EXAMPLE_FILES, PREPARED_OMNIBEHAVIOR, Files, write_files

REVIEWED_FILE = Path(__file__).with_name("full_rows.jsonl")
IS_WRITING = os.environ.get("MEMPILER_ROWS") == "write"

CASES: dict[str, Files] = {
    **EXAMPLE_FILES,
    "omnibehavior, prepared": PREPARED_OMNIBEHAVIOR,
    "palbench.generate": EXAMPLE_FILES["palbench.restate"],
    "palbench.select": EXAMPLE_FILES["palbench.restate"],
    "palbench.dialogue": EXAMPLE_FILES["palbench.restate"],
}
"""The files of each case. A case is the name of a benchmark, perhaps with a form of its files."""


def field_as_json(value: Any) -> Any:
    """Return a field of an example as JSON: of a history the lines of each item."""
    if isinstance(value, History):
        return [[item.id, *item.lines()] for item in value]
    text = json.dumps(value, default=lambda model: model.model_dump(mode="json"))
    return json.loads(text)


def example_as_json(case: str, example: dspy.Example) -> dict[str, Any]:
    """Return an example as a line of the reviewed file."""
    row: dict[str, Any] = {"of": case, "inputs": sorted(example.inputs().keys())}
    for name, value in sorted(example.items()):
        row[name] = field_as_json(value)
    return row


def read_case(folder: Path, case: str) -> list[dict[str, Any]]:
    """Load the files of a case, and return its examples as JSON."""
    name = case.partition(",")[0]
    loaded = benchmark(name, write_files(folder, CASES[case]))

    rows: list[dict[str, Any]] = []
    previous_history = None
    for example in loaded.examples:
        row = example_as_json(case, example)
        if example.history is previous_history:
            row["history"] = "that of the example before"
        previous_history = example.history
        rows.append(row)
    return rows


def read_reviewed_rows() -> list[dict[str, Any]]:
    lines = REVIEWED_FILE.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def replace_reviewed_rows(case: str, rows: list[dict[str, Any]]) -> None:
    """Write the reviewed file with other rows of one case."""
    other_rows = [row for row in read_reviewed_rows() if row["of"] != case]
    lines = [json.dumps(row, ensure_ascii=False) for row in [*other_rows, *rows]]
    REVIEWED_FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_examples_have_the_reviewed_fields(tmp_path: Path, case: str) -> None:
    """A change of a reader that changes its examples must be seen in a review."""
    rows = read_case(tmp_path, case)
    if IS_WRITING:
        replace_reviewed_rows(case, rows)

    reviewed_rows = [row for row in read_reviewed_rows() if row["of"] == case]

    assert rows == reviewed_rows
