"""The examples in docstrings run, and give what they say."""

import ast
import doctest
from collections.abc import Iterator
from pathlib import Path

import mempiler
import pytest

from .conftest import package_files

PACKAGE = Path(mempiler.__file__).parent
DocumentedNode = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def examples_of(file: Path) -> Iterator[doctest.DocTest]:
    """Return the docstrings of a file that have examples.

    The file is parsed, not imported: a module may need a package that is not installed.
    """
    text = file.read_text(encoding="utf-8")
    if ">>> " not in text:
        return

    parser = doctest.DocTestParser()
    path = file.relative_to(PACKAGE).as_posix()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, DocumentedNode):
            continue
        docstring = ast.get_docstring(node)
        if docstring is None:
            continue
        name = path if isinstance(node, ast.Module) else f"{path}:{node.name}"
        first_line = node.body[0].lineno - 1
        doc_test = parser.get_doctest(docstring, {}, name, str(file), first_line)
        if doc_test.examples:
            yield doc_test


def all_examples() -> list[doctest.DocTest]:
    """Return the docstrings of the package that have examples."""
    doc_tests: list[doctest.DocTest] = []
    for file in package_files():
        # Results of the developer's own runs.
        if file.parts[:2] != ("runs", "local"):
            doc_tests.extend(examples_of(PACKAGE / file))
    return doc_tests


EXAMPLES = all_examples()


def test_examples_are_found() -> None:
    """If the search for examples found none, the test below would run nothing and pass."""
    assert len(EXAMPLES) > 15


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_of_a_docstring_runs(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner writes a message for each line that prints something else than the docstring."""
    monkeypatch.chdir(tmp_path)
    messages: list[str] = []

    doctest.DocTestRunner().run(example, out=messages.append, clear_globs=False)

    assert not messages, "".join(messages)
