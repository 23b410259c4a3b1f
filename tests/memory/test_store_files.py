"""The files of a store are for their owner's eyes, whatever the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from mempiler import Session, Store, Turn
from mempiler.memory.stored import Owner


@pytest.fixture
def generous() -> Iterator[None]:
    """A umask that keeps nothing from anybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in sorted(folder.iterdir())}


def fill(store: Store) -> None:
    store.add(Owner("ada"), Session(id="s", turns=(Turn(id="", speaker="Ada", text="hello"),)))


@pytest.mark.usefixtures("generous")
def test_database_and_its_log_are_private(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        fill(store)
        assert modes(tmp_path) == dict.fromkeys(("s.sqlite", "s.sqlite-shm", "s.sqlite-wal"), "0o600")
        assert store.forget(Owner("ada")).erased
        fill(store)
        assert set(modes(tmp_path).values()) == {"0o600"}


@pytest.mark.usefixtures("generous")
def test_files_that_others_could_read_are_narrowed(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        fill(store)
        for path in tmp_path.iterdir():
            path.chmod(0o664)
        with Store(tmp_path / "s.sqlite"):
            assert set(modes(tmp_path).values()) == {"0o600"}
        assert [found.sessions for found in store.users()] == [1]
