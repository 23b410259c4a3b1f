"""A reproduction that was broken off: the same tables, and nothing paid twice."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

WORDS = ["reproduce", "rgmem", "--section", "table3", "--seeds", "1"]
"""RGMem and its ablations, which write three kinds of memories."""


def told(found: dict[str, Any]) -> list[Any]:
    """The rows of all sections, but for what a clock tells and the folders, whose names hold the server's address."""
    rows = [row for section in found["sections"] for row in section["rows"]]
    for row in rows:
        row["takes"] = {name: value for name, value in row["takes"].items() if name != "seconds"}
    return [{name: value for name, value in row.items() if name != "runs"} for row in rows]


def answers_in(run: str) -> int:
    """Answers that a killed run has kept."""
    with contextlib.closing(sqlite3.connect(Path(run) / "run.sqlite")) as database:
        return int(database.execute("SELECT COUNT(*) FROM answers").fetchone()[0])


def finished(run: str) -> list[str]:
    """The parts of a run that are finished."""
    files = sorted(Path(run).glob("parts/*/run.json"))
    return [file.parent.name for file in files if json.loads(file.read_text())["status"] == "finished"]


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """What the run that nothing stops was made of, once it was made."""
    return {}


@pytest.fixture
def whole(known, stub, mempiler_cli):
    """The run that nothing stops, and what it asked."""
    if not known:
        server = stub()
        ran = mempiler_cli(server, *WORDS, test=2)
        assert ran.code == 0
        known.update(found=ran.found, asked=list(server.texts))
    return known


@pytest.mark.parametrize(("answers", "done"), [pytest.param(5, 0, marks=pytest.mark.slow), (75, 2)])
def test_a_killed_reproduction_goes_on_where_it_was(whole, stub, mempiler_cli, forks, tmp_path, answers, done):
    broken, rest = stub(delay=0.01), stub()
    forks.start(mempiler_cli.arguments(broken, *WORDS, test=2), tmp_path / "home")
    run = forks.kill(broken, answers)
    kept, parts = answers_in(run), finished(run)
    rest.model = broken.model
    resumed = mempiler_cli(rest, *WORDS, "--resume", run, test=2)
    assert resumed.code == 0
    assert len(parts) == done
    assert told(resumed.found) == told(whole["found"])
    assert resumed.found["run"] == run
    assert set(broken.texts) | set(rest.texts) == set(whole["asked"])
    assert len(rest.texts) == len(whole["asked"]) - kept


@pytest.mark.slow
def test_a_reproduction_goes_on_with_a_larger_budget(whole, stub, mempiler_cli):
    first, more = stub(), stub()
    ended = mempiler_cli(first, *WORDS, "--max-calls", "30", test=2)
    more.model = first.model
    resumed = mempiler_cli(more, *WORDS, "--resume", ended.found["run"], test=2)
    assert ended.found["stopped"] == "max-calls 30"
    assert (len(first.texts), len(more.texts)) == (30, len(whole["asked"]) - 30)
    assert told(resumed.found) == told(whole["found"])
