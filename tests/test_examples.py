"""The examples in the package's docstrings run as written, each with its own imports alone and in an empty folder."""

import ast
import doctest
from collections.abc import Iterator
from pathlib import Path

import mempiler
import pytest

from .conftest import package_files

ROOT = Path(mempiler.__file__).parent
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def examples(file: Path) -> Iterator[doctest.DocTest]:
    """The docstrings of a file that have examples; read from the source, so that no optional package is needed."""
    where, text = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if ">>> " in text else ():
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
            name = f"{where}:{getattr(node, 'name', '')}".rstrip(":")
            found = doctest.DocTestParser().get_doctest(docstring, {}, name, str(file), node.body[0].lineno - 1)
            if found.examples:
                yield found


EXAMPLES = [each for file in package_files() if file.parts[:2] != ("runs", "local") for each in examples(ROOT / file)]


def test_examples_are_found() -> None:
    assert len(EXAMPLES) > 15


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    doctest.DocTestRunner().run(example, out=told.append, clear_globs=False)
    assert not told, "".join(told)
