"""`docs/extend.md` works as it stands: its files are written into an empty folder, and its commands are run there.

The same files are then an installed package.
"""

import io
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "extend.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^\*\*([\w.]+)\*\*\n\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
DECLARED = {text.partition(" = ")[0]: text for language, text in BLOCKS if text.startswith(("METHODS", "BENCHMARKS"))}
CHECKS = [text for language, text in BLOCKS if text.startswith("from mempiler.testing")]
(ENTRY_POINTS,) = [text for language, text in BLOCKS if language == "toml"]
COMMANDS = re.findall(r"^\$ mempiler (.*)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files and nothing else."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@contextmanager
def standing_in(folder: Path, *paths: Path) -> Iterator[None]:
    """A folder is the current one, and packages in `paths` are found, for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*map(str, paths), *sys.path])
        patch.setenv("MEMPILER_HOME", str(folder / "runs"))
        patch.chdir(folder)
        yield
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def run(lines: list[str], folder: Path, *paths: Path) -> dict[str, Any]:
    """What commands print with `--json`."""
    found: dict[str, Any] = {}
    with standing_in(folder, *paths):
        for line in lines:
            with redirect_stdout(io.StringIO()) as printed:
                main([*shlex.split(line), "--json"])
            found[line] = json.loads(printed.getvalue())
    return found


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    """What each command of the page prints, by its first four words."""
    return {" ".join(line.split()[:4]): result for line, result in run(COMMANDS, folder).items()}


def test_every_code_block_of_the_page_is_a_file_or_a_command() -> None:
    """What the other tests do not see would not be tested."""
    lines = [line for language, text in BLOCKS if language == "console" for line in text.splitlines()]
    assert [f"$ mempiler {line}" for line in COMMANDS] == lines
    used = [*FILES.values(), *DECLARED.values(), *CHECKS, ENTRY_POINTS]
    assert sorted(text for language, text in BLOCKS if language != "console") == sorted(used)


@pytest.mark.parametrize("text", CHECKS)
def test_the_page_s_method_and_benchmark_keep_the_promises(text: str, folder: Path) -> None:
    with standing_in(folder):
        exec(compile(text, "docs/extend.md", "exec"), {})


NAMED = ["evaluate session-notes --on trivia --data trivia.json", "list methods", "list benchmarks"]
"""What works once Mempiler knows the two by their names."""


@pytest.mark.slow
def test_both_come_with_an_installed_package(folder: Path, tmp_path: Path) -> None:
    information = tmp_path / "trivia_notes-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: trivia-notes\nVersion: 1.0\n", encoding="utf-8")
    groups = tomllib.loads(ENTRY_POINTS)["project"]["entry-points"]
    points = [
        f"[{group}]\n" + "".join(f"{name} = {path}\n" for name, path in each.items()) for group, each in groups.items()
    ]
    (information / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
    for name in ("session_notes.py", "trivia.py"):
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    scored, methods, benchmarks = (found for found in run(NAMED, folder, tmp_path).values())
    assert (scored["n"], scored["failures"]) == (2, 0)
    assert "session-notes" in json.dumps(methods)
    assert "trivia" in json.dumps(benchmarks)


@pytest.mark.slow
def test_the_method_is_compiled_and_saved_with_demos_for_writing_and_reading(folder, results) -> None:
    assert results["compile session_notes:SessionNotes --on locomo"]["promoted"]
    state = json.loads((folder / "notes" / "state.json").read_text(encoding="utf-8"))
    assert [name for name, predictor in state.items() if predictor["demos"]] == [
        "method.writer.take_notes",
        "task.answer",
    ]


@pytest.mark.slow
def test_the_benchmark_is_read_and_scored(results: dict[str, Any]) -> None:
    found = results["evaluate turn-rag --on trivia:Trivia"]
    assert (found["benchmark"], found["n"], found["score"]) == ("trivia", 2, 1.0)
    assert set(found["by"]) == {"homes", "pets"}
