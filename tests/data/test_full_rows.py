"""What each reader makes of its form, whole: the examples as `full_rows.jsonl` has them, reviewed.

The file is made anew by: MEMPILER_ROWS=write python -m pytest FILE
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from mempiler import History
from mempiler.data.catalog import benchmark

from .forms import FORMS, PREPARED, write

PATH = Path(__file__).with_name("full_rows.jsonl")
WRITES = os.environ.get("MEMPILER_ROWS") == "write"


FILES = {
    **FORMS,
    "omnibehavior, prepared": PREPARED,
    **{
        f"palbench.{part}": FORMS["palbench.restate"] for part in ("generate", "select", "dialogue")
    },
}


def shown(value: Any) -> Any:
    """A field of an example; of a past the lines of each item, which tell its time."""
    if isinstance(value, History):
        return [[item.id, *item.lines()] for item in value]
    return json.loads(json.dumps(value, default=lambda other: other.model_dump(mode="json")))


@pytest.mark.parametrize("name", FILES)
def test_full_rows_are_read_as_was_reviewed(tmp_path: Path, name: str) -> None:
    found, before = list[dict[str, Any]](), None
    for each in benchmark(name.partition(",")[0], write(tmp_path, FILES[name])).examples:
        fields = {field: shown(value) for field, value in sorted(each.items())}
        same = {"history": "that of the example before"} if each.history is before else {}
        found.append({"of": name, "inputs": sorted(each.inputs().keys()), **fields, **same})
        before = each.history
    rows = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]
    if WRITES:
        rows = [*(row for row in rows if row["of"] != name), *found]
        PATH.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
    assert found == [row for row in rows if row["of"] == name]
