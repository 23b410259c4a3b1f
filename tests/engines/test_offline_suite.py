"""The engine knows no prompt of the suite: neither names of fields nor words of instructions are in its sources."""

import ast
from pathlib import Path
from typing import Any

import mempiler.engines.offline
import pytest

from tests.suite import suite

SOURCES = [
    ast.parse(path.read_text(encoding="utf-8")) for path in Path(mempiler.engines.offline.__path__[0]).glob("*.py")
]
ROLES = {"id", "ids", "speaker", "time", "date", "month"}
"""The words for the parts of a line and of a date, which it reads heads by."""


@pytest.mark.parametrize("signature", suite(), ids=lambda signature: signature.__name__)
def test_no_name_and_no_wording_of_the_suite_is_in_the_engine(signature: Any) -> None:
    literals = [node.value for tree in SOURCES for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = {text for text in literals if isinstance(text, str)}
    assert not (set(signature.fields) - ROLES) & texts
    assert not {line.strip() for line in signature.instructions.splitlines() if len(line) > 20} & texts
