"""The examples in the docstrings of the contracts run, and pass the checks for methods.

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


def test_the_examples_of_writer_reader_and_method_together_pass_check_method() -> None:
    """Users may copy the examples in the docstrings, so these have to work.

    The first example defines a memory and its writer, the second a reader of this memory, and the
    third the method `SentenceNotes`, which has both, with its settings. `check_method` writes and
    reads memories with a method, and raises an error if it breaks a rule that the rest of Mempiler
    relies on:

    - To write a memory changes no input, and gives the same memory each time.
    - A memory survives the way to JSON and back, and names only turns of the history as sources.
    - To search a memory or to recall from it does not change it.
    - The cache key of a memory depends on the prompts that write it, and on no others.
    - No turn is lost where the answer of a model cannot be read.
    """
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(example_of(writer), namespace)
    # Later examples use names that earlier ones define.
    exec(example_of(reader), namespace)
    exec(example_of(method), namespace)
    settings = namespace["NoteSettings"](k=3)
    example_method = namespace["SentenceNotes"](settings)

    # An error would fail this test.
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
