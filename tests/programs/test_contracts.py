"""The examples in the docstrings of the contracts run, and keep the promises of a method."""

import re
import textwrap
from itertools import takewhile
from types import ModuleType
from typing import Any

import pytest
from mempiler.programs import method, reader, writer
from mempiler.testing import check_method

NO_HOOKS = {
    "calls_model",
    "config",
    "nearest",
    "needs_extraction",
    "needs_finalizing",
    "preprocess",
    "shows_resolved_dates",
}
"""What writers and readers have without defining it."""


def run_example(module: ModuleType, names: dict[str, Any]) -> None:
    """Run the first indented block of a module's docstring; what it defines is added to `names`."""
    lines = (module.__doc__ or "").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("    "))
    block = takewhile(lambda line: not line or line.startswith("    "), lines[start:])
    exec(textwrap.dedent("\n".join(block)), names)


def test_examples_of_writer_reader_and_method_make_a_method_that_keeps_its_promises() -> None:
    names: dict[str, Any] = {"__name__": "example"}
    for module in (writer, reader, method):
        run_example(module, names)
    check_method(names["SentenceNotes"](names["NoteSettings"](k=3)))


@pytest.mark.parametrize(("contract", "module"), [(writer.Writer, writer), (reader.Reader, reader)])
def test_every_hook_of_a_contract_is_in_its_table(contract: type, module: ModuleType) -> None:
    hooks = {name for name in vars(contract) if not name.startswith("_")} - NO_HOOKS
    documented = set(re.findall(r"^\| `(\w+)", module.__doc__ or "", re.MULTILINE))
    assert hooks <= documented
