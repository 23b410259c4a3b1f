"""`mempiler memories rebuild`, also with `--queued`: of all tenants unless one is named, and on after a kill."""

import json
import os
import shutil
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler import Store, UserError
from mempiler.engines.models import language_model
from mempiler.memory.stored import Owner

USERS = [Owner("ada", "acme"), Owner("bob", "acme"), Owner("ada"), Owner("eve")]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs, and a store in which the first remembered two sessions of four users of two tenants."""
    folder = tmp_path_factory.mktemp("template")
    program = mempiler.build("recursive-summary")
    mempiler.save(program, folder / "program")
    mempiler.save(mempiler.build("recursive-summary", max_words=50), folder / "other")
    with Store(folder / "s.sqlite") as store:
        for owner in USERS:
            memory = program.memory(store, owner.user, owner.tenant, language_model("offline"))
            for n in range(2):
                text = f"I am {owner.user} of {owner.tenant}, {n}."
                memory.add([{"role": "user", "content": text, "time": "2024-03-05"}])
    return folder


@pytest.fixture
def run(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Run) -> Run:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return lambda *words: cli(*words, "--store", "s.sqlite")


class Killed(BaseException):
    """A kill: nothing catches it, and nothing runs after it but what releases claims."""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was written how often, and how many writes are let through before a kill."""
    from mempiler.serving import writing

    counted: Counter[str] = Counter()
    most, real, lock = [10**9], writing.take, threading.Lock()

    def take(writer: Any, memory: Any, item: Any, prepared: Any) -> Any:
        with lock:  # users are written at the same time
            if sum(counted.values()) >= most[0]:
                raise Killed
            done = real(writer, memory, item, prepared)
            counted[item.turns[0].text] += 1
            return done

    monkeypatch.setattr(writing, "take", take)
    return counted, most


@pytest.mark.parametrize(("scope", "users"), [("--tenant acme", 2), ("--user ada --tenant acme", 1)])
def test_rebuild_keeps_to_its_scope(run: Run, scope: str, users: int) -> None:
    assert (
        run("memories", "rebuild", "other", *scope.split())[1] == f"{users} users, {2 * users} sessions, 0 failures\n"
    )
    assert run("memories", "rebuild", "other")[1] == f"4 users, {8 - 2 * users} sessions, 0 failures\n"


@pytest.mark.parametrize(("program", "kills"), [("program", [3, 6]), ("other", [3])])
def test_a_rebuild_goes_on_after_a_kill(run: Run, written: Any, program: str, kills: list[int]) -> None:
    counted, most = written
    for most[0] in kills:
        with pytest.raises(Killed):
            run("memories", "rebuild", program, *(["--force"] if most[0] == kills[0] else []))
    most[0] = 10**9
    assert run("memories", "rebuild", program)[1] == f"4 users, {8 - kills[-1]} sessions, 0 failures\n"
    assert set(counted.values()) == {1}
    assert len(counted) == 8


def test_what_is_queued_is_of_all_tenants_or_of_its_scope_and_of_its_program(run: Run) -> None:
    with Store("s.sqlite") as store:
        for owner in USERS:
            text = {"role": "user", "content": "I like tea."}
            mempiler.build("turn-rag").memory(store, owner.user, owner.tenant).add([text], remember=False)
    for words, said in (
        ("other --tenant acme", "2 users, 0 sessions, 0 failures, 2 still queued, 2 users of another program"),
        ("program --user ada", "2 users, 2 sessions, 0 failures"),
        ("program --tenant acme", "2 users, 1 sessions, 0 failures"),
        ("program", "4 users, 1 sessions, 0 failures"),
    ):
        assert run("memories", "rebuild", *words.split(), "--queued")[1] == f"{said}\n"


def test_exit_code_says_that_somebody_holds_the_bytes(run: Run) -> None:
    with closing(sqlite3.connect("s.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM mempiler_items").fetchone()
        code, out, told = run("memories", "forget", "--user", "eve")
        assert (code, out) == (4, "1 forgotten, 2 sessions, 2 turns, 0 queued anew\n")
        assert told.startswith("mempiler: user 'eve' is forgotten, and the bytes are not gone yet: somebody reads")
        assert told.count("\n") == 1
        reader.execute("COMMIT")
    assert run("memories", "forget", "--user", "eve")[:2] == (0, "1 forgotten, 0 sessions, 0 turns, 0 queued anew\n")
    assert run("memories", "forget", "--user", "eve")[0] == UserError.exit_code
    assert b"I am eve" not in Path("s.sqlite").read_bytes()


def test_commands_leave_nothing_of_a_forgotten_user(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the store, nor in the results folder with its MLflow database, nor in DSPy's cache."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "content": "My PIN is 82716354."}]))
    assert run("memories", "add", "chat.json", "--user", "pat")[0] == 0
    assert run("memories", "rebuild", "program", "--queued")[0] == 0
    assert run("ask", "program", "Is my PIN 82716354?", "--user", "pat")[0] == 0
    assert run("memories", "export", "-")[1].count("82716354") > 0
    assert run("memories", "forget", "--user", "pat")[0] == 0
    assert "82716354" not in run("memories", "export", "-")[1]
    (tmp_path / "chat.json").unlink()
    # By another process: who closes a database that this one has open takes its locks away.
    places = [place for place in (tmp_path, Path(os.environ["DSPY_CACHEDIR"])) if place.exists()]
    found = subprocess.run(["grep", "-rlF", "82716354", *places], capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (1, "", "")
