"""The examples in the package's docstrings run as written, each with its own imports alone and in an empty folder."""

import ast
import doctest
from collections.abc import Iterator
from pathlib import Path

import mempiler
import pytest

ROOT = Path(mempiler.__file__).parent
OUTSIDE = {"tests", "perf", "docs", "build", "dist", "setup.py"}
"""Folders of the repository that are no part of the package."""
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


def _files() -> list[Path]:
    # Folders are chosen before they are walked: an environment in the checkout holds thousands of files.
    rooms = [path for path in sorted(ROOT.iterdir()) if path.name not in OUTSIDE and not path.name.startswith(".")]
    files = [file for room in rooms for file in (sorted(room.rglob("*.py")) if room.is_dir() else [room])]
    return [file for file in files if file.suffix == ".py" and not file.is_relative_to(ROOT / "runs" / "local")]


EXAMPLES = [example for file in _files() for example in examples(file)]


def test_examples_are_found() -> None:
    assert len(EXAMPLES) > 15


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    doctest.DocTestRunner().run(example, out=told.append, clear_globs=False)
    assert not told, "".join(told)
