"""Every case of the released code's vectors is tested, and the table of deviations names cases that exist."""

import ast
import fnmatch
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FILES = sorted(path.stem for path in HERE.glob("*.jsonl"))


def _marks() -> Iterator[tuple[str, list[str]]]:
    """The files and patterns that the tests of this folder are marked with."""
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.vectors":
                name, *patterns = [ast.literal_eval(arg) for arg in node.args]
                yield name, patterns or ["*"]


@pytest.mark.parametrize("name", FILES)
def test_every_case_is_tested(name: str, conformance: Any) -> None:
    patterns = [pattern for marked, found in _marks() if marked == name for pattern in found]
    ids = [case["id"] for case in conformance.vectors(name)]
    assert [i for i in ids if not any(fnmatch.fnmatchcase(i, pattern) for pattern in patterns)] == []


def test_the_table_names_cases_that_exist_with_a_reason(conformance: Any) -> None:
    table = conformance.deviations()
    assert table.keys() <= set(FILES)
    for name, rows in table.items():
        ids = [case["id"] for case in conformance.vectors(name)]
        idle = [pattern for pattern, _ in rows if not fnmatch.filter(ids, pattern)]
        assert idle == []
        assert [pattern for pattern, why in rows if len(why.split()) < 4] == []
