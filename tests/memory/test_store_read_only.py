"""An SQLite store whose file or folder cannot be written is read all the same, and left as it is."""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mempiler import Store, StoreError, UserError

from ..conftest import read_only
from .conftest import ADA, session


@pytest.fixture
def path(open_folder: Path) -> Path:
    """A store in which Ada said something; nobody has it open."""
    path = open_folder / "memories.sqlite"
    with Store(path) as store:
        store.items.add(ADA, session("I moved to Lisbon.", id="D1"))
    assert sorted(file.name for file in open_folder.iterdir()) == [
        "memories.sqlite",
        "memories.sqlite-lock",
    ]
    return path


def said(store: Store) -> list[str]:
    """What Ada said."""
    return [turn.text for stored in store.read(ADA).pending_items for turn in stored.item.turns]


def test_a_store_in_a_folder_that_cannot_be_written_is_read_and_nothing_is_written(
    path: Path,
) -> None:
    before = path.read_bytes()
    with read_only(path.parent), Store(path) as store:
        assert not store.writable
        assert said(store) == ["I moved to Lisbon."]
        assert [user.owner for user in store.users.list_all()] == [ADA]
        with pytest.raises(
            StoreError, match=r"readonly database; .*; make the file and its folder writable"
        ):
            store.items.add(ADA, session("I left."))
        names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["memories.sqlite", "memories.sqlite-lock"]
    assert path.read_bytes() == before
    with Store(path) as store:
        assert store.writable


def test_rows_in_the_write_ahead_log_are_read_too(path: Path) -> None:
    """As where a service has the store open, or was killed."""
    with Store(path) as writer:
        writer.items.add(ADA, session("I adopted a cat.", id="D2"))
        assert path.with_name(f"{path.name}-wal").stat().st_size > 0
        with read_only(path.parent), Store(path) as store:
            assert not store.writable
            assert said(store) == ["I moved to Lisbon.", "I adopted a cat."]


def test_a_reader_sees_what_is_written_after_it_was_opened(path: Path) -> None:
    """As where a service that may write the store is started later."""
    with read_only(path.parent):
        reader = Store(path)
        assert said(reader) == ["I moved to Lisbon."]
    with reader, Store(path) as writer:
        writer.items.add(ADA, session("I adopted a cat.", id="D2"))
        with read_only(path.parent):
            assert said(reader) == ["I moved to Lisbon.", "I adopted a cat."]


def test_a_log_without_its_index_is_not_passed_over(path: Path) -> None:
    """As in a copy of the files: without the log, what was said last would be missing."""
    with Store(path) as writer:
        writer.items.add(ADA, session("I adopted a cat.", id="D2"))
        log = path.with_name(f"{path.name}-wal").read_bytes()
    path.with_name(f"{path.name}-wal").write_bytes(log)
    with (
        read_only(path.parent),
        pytest.raises(StoreError, match="copy the file and its -wal to a folder that is"),
    ):
        Store(path)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE mempiler_version SET version_num = '9'",
            "are of version 9, .* install the Mempiler that made them",
        ),
        ("DROP TABLE mempiler_version; DROP TABLE mempiler_meta", "there are no memories in it"),
    ],
)
def test_tables_that_would_have_to_be_made_or_upgraded_are_one_line(
    path: Path, statement: str, message: str
) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(statement)
    with read_only(path.parent), pytest.raises(StoreError, match=message):
        Store(path)


def test_a_damaged_item_fails_no_reading(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store(path) as store:
        store.items.add(ADA, session("I adopted a cat.", id="D2"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE mempiler_items SET json = '{' WHERE id = 'D1'")
    with read_only(path.parent), Store(path) as store:
        assert said(store) == ["I adopted a cat."]
    assert "the row is damaged" in caplog.text


def test_a_folder_and_a_pipe_are_no_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(
            UserError, match=f"store {re.escape(str(path))}: is a folder, a pipe or a device"
        ):
            Store(path)


def test_an_address_that_is_none_is_refused_without_its_password() -> None:
    for address in (
        "postgresql://ada:a-long-secret@host:port/x",
        "mysql://ada:a-long-secret@host/x",
    ):
        with pytest.raises(UserError, match=r"ada:\[secret\]@host") as raised:
            Store(address)
        assert "a-long-secret" not in str(raised.value)
