"""`docs/own_systems.md` works as it stands: its files are written into an empty folder, its commands run there."""

import io
import json
import runpy
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main

from tests.own_systems_page import BLOCKS, COMMANDS, FILES, OF_A_GRAPH, SNIPPET, write_files

HERE = [line for line in COMMANDS if line not in OF_A_GRAPH]
"""What is run here; a graph needs an environment of its own (`tests/integrations`)."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files and nothing else."""
    folder = tmp_path_factory.mktemp("page")
    write_files(folder)
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> Iterator[dict[str, Any]]:
    """What each command of the page prints with `--json`, and what the Python lines find."""
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        home = folder / "runs" / "local"
        home.mkdir(parents=True)
        patch.setenv("MEMPILER_HOME", str(home))
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        for line in HERE:
            program, *words = shlex.split(line)
            printed = io.StringIO()
            with redirect_stdout(printed):
                runpy.run_path(words[0]) if program == "python" else main([*words, "--json"])
            found[line] = json.loads(printed.getvalue() or "null")
        (folder / "snippet.py").write_text(SNIPPET, encoding="utf-8")
        with redirect_stdout(io.StringIO()):
            found["python"] = runpy.run_path("snippet.py")["found"].summary()
    yield found
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def test_every_code_block_of_the_page_is_run() -> None:
    consoles = [line for language, text in BLOCKS if language == "console" for line in text.splitlines()]
    assert [f"$ {line}" for line in COMMANDS] == consoles
    assert sorted(text for language, text in BLOCKS if language != "console") == sorted([*FILES.values(), SNIPPET])


@pytest.mark.slow
def test_what_the_page_scores_is_scored(results: dict[str, Any]) -> None:
    scored = {line.split()[2]: found for line, found in results.items() if " evaluate " in line}
    assert set(scored) == {"mine:Store", "module:Agent", "answers.jsonl"}
    assert {name: found["failures"] for name, found in scored.items()} == dict.fromkeys(scored, 0)
    assert scored["answers.jsonl"]["n"] == 136
    assert 10 < scored["mine:Store"]["n"] <= 20
    assert scored["mine:Store"]["retrieval"]["shown"] > 0.5
    assert scored["answers.jsonl"]["answering"]["calls"] == 160
    assert results["python"]["program"] == "mine:Store"
    assert results["python"]["context"]["hits"] == 5


@pytest.mark.slow
def test_compile_compare_and_report_take_all_of_them(results: dict[str, Any], folder: Path) -> None:
    by_command = {line.split()[1]: found for line, found in results.items() if line.startswith("mempiler ")}
    assert by_command["compile"]["dev"] is not None
    assert by_command["compile"]["program"]
