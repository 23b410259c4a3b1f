"""`memories rebuild --workers`: the memories are those of one process, also where a worker is killed."""

import shutil
from pathlib import Path
from typing import Any

import mempiler
import pytest
from mempiler import Store
from mempiler.cli import main
from mempiler.cli.rebuild import shared, written
from mempiler.engines.models import language_model
from mempiler.memory.stored import Owner

USERS = [Owner("ada"), Owner("bob"), Owner("cleo", "acme"), Owner("dan", "acme")]
SESSIONS = 3
ASKING = {"embedder": None, "embedder_api_base": None, "allow_code": False}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, and a store in which the sessions of four users of two tenants are queued."""
    folder = tmp_path_factory.mktemp("template")
    program = mempiler.build("recursive-summary")
    mempiler.save(program, folder / "program")
    with Store(folder / "queued.sqlite") as store:
        for owner in USERS:
            memory = program.memory(store, owner.user, owner.tenant, language_model("offline"))
            for n in range(SESSIONS):
                said = {"role": "user", "content": f"I am {owner.user} of {owner.tenant}, {n}.", "time": "2024-03-05"}
                memory.add([said], remember=False)
    return folder


@pytest.fixture
def filled(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def memories() -> dict[Owner, str]:
    """The memories in the store; of whom nothing is queued."""
    with Store("s.sqlite") as store:
        assert not any(one.queued for one in store.users())
        found = {one.owner: store.dump(one.owner) for one in store.users()}
    assert all(len(one.items) == SESSIONS and one.document for one in found.values())
    return {owner: one.document.memory if one.document else "" for owner, one in found.items()}


@pytest.mark.slow
def test_the_memories_are_those_of_one_process(ray: Any, filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = list[Any]()
    for workers in ("1", "2"):
        shutil.copy("queued.sqlite", "s.sqlite")
        main(["memories", "rebuild", "program", "--store", "s.sqlite", "--workers", workers])
        assert capsys.readouterr().out == f"{len(USERS)} users, {SESSIONS * len(USERS)} sessions, 0 failures\n"
        found.append(memories())
        Path("s.sqlite").unlink()
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_killed_workers_users_are_written_here(
    kill_worker: Any, filled: Path, stub: Any, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy("queued.sqlite", "s.sqlite")
    server = stub(kill_worker(2), delay=0.05)
    asking = {**ASKING, "lm": server.model, "api_base": server.url}
    done, left = shared("program", "s.sqlite", USERS, 2, asking, lease=1.0)
    assert len([record for record in caplog.records if "worker" in record.message]) == 1
    assert left in (USERS[::2], USERS[1::2])
    with Store("s.sqlite") as store:
        model = language_model(server.model, api_base=server.url)
        done += written(store, mempiler.load("program"), model, left, lease=1.0)
    assert done.items <= SESSIONS * len(USERS)
    assert len(memories()) == len(USERS)
