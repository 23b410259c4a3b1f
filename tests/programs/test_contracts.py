"""The examples in the docstrings of the contracts run, and keep the promises of a method.

The contracts are the base classes `Method`, `Writer` and `Reader`, from which users derive their
own. The docstring of each module has an example, and a table of the hooks: what a subclass may
define.
"""

import re
import textwrap
from types import ModuleType
from typing import Any

import pytest
from mempiler.programs import method, reader, writer
from mempiler.testing import check_method

# Public names of writers and readers that are no hooks.
NO_HOOKS = {
    "calls_model",
    "config",
    "nearest",
    "needs_extraction",
    "needs_finalizing",
    "preprocess",
    "shows_resolved_dates",
}


def example_of(module: ModuleType) -> str:
    """Return the code of the first indented block of a module's docstring."""
    code: list[str] = []
    for line in (module.__doc__ or "").splitlines():
        is_blank_line_in_code = code and not line
        if line.startswith("    ") or is_blank_line_in_code:
            code.append(line)
        elif code:
            break
    return textwrap.dedent("\n".join(code))


def test_examples_of_writer_reader_and_method_make_a_method_that_keeps_its_promises() -> None:
    """Users may copy these examples. Together they define a method, `SentenceNotes`."""
    names: dict[str, Any] = {"__name__": "example"}
    # Later examples use what earlier ones define.
    for module in (writer, reader, method):
        exec(example_of(module), names)

    example_settings = names["NoteSettings"](k=3)
    example_method = names["SentenceNotes"](example_settings)
    # It raises an error if a promise is not kept.
    check_method(example_method)


@pytest.mark.parametrize(("contract", "module"), [(writer.Writer, writer), (reader.Reader, reader)])
def test_every_hook_of_a_contract_is_in_its_table(contract: type, module: ModuleType) -> None:
    """The table tells authors of new methods what they may define, so it has to be complete."""
    public_names = {name for name in vars(contract) if not name.startswith("_")}
    hooks = public_names - NO_HOOKS
    # A row of the table begins with "| `name".
    first_words_of_rows = re.findall(r"^\| `(\w+)", module.__doc__ or "", re.MULTILINE)

    assert hooks
    assert hooks <= set(first_words_of_rows)
