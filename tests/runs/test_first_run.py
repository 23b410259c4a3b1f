"""The file of the tracking store is made whole or not at all, whoever is killed or comes at the same time."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mempiler.runs.tracking import make_database

FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that MLflow made; it takes some seconds."""
    path = tmp_path_factory.mktemp("whole") / "mlflow.db"
    make_database(f"sqlite:///{path}")
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mlflow.db"


@pytest.fixture
def build(whole: Path) -> Callable[[Path], None]:
    """Makes a database by copying one, which is faster."""

    def copy(new: Path) -> None:
        with (new.parent.parent / "made").open("a") as file:
            file.write("x")
        time.sleep(0.2)
        shutil.copy(whole, new)

    return copy


def half(path: Path) -> None:
    """What a process leaves that is killed while it makes the tables."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE runs (run_uuid TEXT)")
        database.commit()


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as database:
        return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_kill_leaves_nothing_that_is_in_the_way(path: Path, build: Callable[[Path], None]) -> None:
    def slow(new: Path) -> None:
        half(new)
        new.with_name("begun").touch()
        time.sleep(60)

    process = FORK.Process(target=make_database, args=(f"sqlite:///{path}", slow))
    process.start()
    until = time.monotonic() + 20
    while not list(path.parent.glob(".mlflow-*/begun")) and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert not path.exists()
    make_database(f"sqlite:///{path}", build)
    assert "experiments" in tables(path)
    assert list(path.parent.glob(".mlflow-*")) == []


def test_of_three_first_runs_one_makes_the_file(path: Path, build: Callable[[Path], None]) -> None:
    processes = [FORK.Process(target=make_database, args=(f"sqlite:///{path}", build)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (path.parent / "made").read_text() == "x"


def test_folder_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mempiler.errors import UserError

    def refuse(new: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(UserError, match=r"^MLflow store sqlite:.*: cannot be made: Permission denied$"):
        make_database(f"sqlite:///{tmp_path}/mlflow.db", refuse)
