"""The file of the tracking store is made whole or not at all, whoever is killed or comes at the same time."""

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from mempiler.errors import UserError
from mempiler.runs import tracking

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a database whose tables take a while, and are counted."""

    def tables(new: Path) -> None:
        with (tmp_path / "made").open("a") as file:
            file.write("x")
        time.sleep(0.2)
        new.write_text("whole")

    monkeypatch.setattr(tracking, "_tables", tables)
    return tmp_path / "mlflow.db"


def made(path: Path) -> Any:
    """A process that makes the database."""
    process = FORK.Process(target=tracking.make_database, args=(f"sqlite:///{path}",))
    process.start()
    return process


def test_kill_leaves_nothing_that_is_in_the_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(new: Path) -> None:
        new.write_text("half")
        new.with_name("begun").touch()
        time.sleep(60)

    with monkeypatch.context() as patch:
        patch.setattr(tracking, "_tables", slow)
        process = made(path)
    until = time.monotonic() + 20
    while not list(path.parent.glob(".mlflow-*/begun")) and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not path.exists()
    tracking.make_database(f"sqlite:///{path}")
    assert path.read_text() == "whole"
    assert list(path.parent.glob(".mlflow-*")) == []


def test_of_three_first_runs_one_makes_the_file(path: Path) -> None:
    processes = [made(path) for _ in range(3)]
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (path.parent / "made").read_text() == "x"


def test_folder_that_cannot_be_written_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(new: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tracking, "_tables", refuse)
    with pytest.raises(UserError, match=r"^MLflow store sqlite:.*: cannot be made: Permission denied$"):
        tracking.make_database(f"sqlite:///{path}")
