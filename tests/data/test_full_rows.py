"""What each reader makes of its form, whole: the examples as `full_rows.json` has them, reviewed.

The file is made anew by: MEMPILER_ROWS=write python -m pytest FILE
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from mempiler import History
from mempiler.data.catalog import benchmark

from .forms import FORMS, write

PATH = Path(__file__).with_name("full_rows.json")
WRITES = os.environ.get("MEMPILER_ROWS") == "write"


def shown(value: Any) -> Any:
    """A field of an example; of a past the lines of each item, which tell its time."""
    if isinstance(value, History):
        return [[item.id, *item.lines()] for item in value]
    return json.loads(json.dumps(value, default=lambda other: other.model_dump(mode="json")))


@pytest.mark.parametrize("name", FORMS)
def test_a_full_row_is_read_as_was_reviewed(tmp_path: Path, name: str) -> None:
    found = [
        {"inputs": sorted(each.inputs().keys()), **{field: shown(value) for field, value in sorted(each.items())}}
        for each in benchmark(name, write(tmp_path, FORMS[name])).examples[:2]
    ]
    reviewed = json.loads(PATH.read_text(encoding="utf-8"))
    if WRITES:
        PATH.write_text(json.dumps({**reviewed, name: found}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert WRITES or found == reviewed[name]
