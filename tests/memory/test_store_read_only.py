"""An SQLite store that cannot be written is read all the same, and left as it is.

Somebody may look into memories that belong to another user of the machine, or lie on a read-only
disk. `read_only` takes away the right to write.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mempiler import Store, StoreError, UserError

from ..conftest import read_only
from .conftest import ADA, session


def names_of_files(folder: Path) -> list[str]:
    """Return the names of the files in a folder, in their order."""
    return sorted(path.name for path in folder.iterdir())


def write_store(folder: Path, text: str) -> Path:
    """Write a store in which Ada says this, in session "D1", and close it; return its path."""
    path = folder / "memories.sqlite"
    with Store(path) as store:
        store.items.add(ADA, session(text, id="D1"))
    assert names_of_files(folder) == ["memories.sqlite", "memories.sqlite-lock"]
    return path


def texts_of_ada(store: Store) -> list[str]:
    """Return what Ada said; all of it still waits to be written into her memory."""
    texts: list[str] = []
    for stored in store.read(ADA).pending_items:
        texts.extend(turn.text for turn in stored.item.turns)
    return texts


def test_a_store_in_a_folder_that_cannot_be_written_is_read_and_nothing_is_written(
    open_folder: Path,
) -> None:
    path = write_store(open_folder, "I moved to Lisbon.")
    bytes_before = path.read_bytes()

    with read_only(path.parent), Store(path) as store:
        assert texts_of_ada(store) == ["I moved to Lisbon."]
        assert names_of_files(path.parent) == ["memories.sqlite", "memories.sqlite-lock"]

    assert path.read_bytes() == bytes_before


def test_a_store_says_whether_it_can_be_written(open_folder: Path) -> None:
    path = write_store(open_folder, "I moved to Lisbon.")
    with read_only(path.parent), Store(path) as store:
        assert not store.writable

    with Store(path) as store:
        assert store.writable


def test_writing_into_a_store_that_is_read_only_is_an_error_with_the_fix(open_folder: Path) -> None:
    path = write_store(open_folder, "I moved to Lisbon.")
    with (
        read_only(path.parent),
        Store(path) as store,
        pytest.raises(
            StoreError, match=r"readonly database; .*; make the file and its folder writable"
        ),
    ):
        store.items.add(ADA, session("I left."))


def test_rows_in_the_write_ahead_log_are_read_too(open_folder: Path) -> None:
    """New rows are in SQLite's log while a service has the store open, or after it was killed."""
    path = write_store(open_folder, "I moved to Lisbon.")
    with Store(path) as writer:
        writer.items.add(ADA, session("I adopted a cat.", id="D2"))
        assert path.with_name("memories.sqlite-wal").stat().st_size > 0

        with read_only(path.parent), Store(path) as store:
            assert not store.writable
            assert texts_of_ada(store) == ["I moved to Lisbon.", "I adopted a cat."]


def test_a_reader_sees_what_is_written_after_it_was_opened(open_folder: Path) -> None:
    """The reader may not write the store. A service that may write it is started later."""
    path = write_store(open_folder, "I moved to Lisbon.")
    with read_only(path.parent):
        reader = Store(path)
        assert texts_of_ada(reader) == ["I moved to Lisbon."]

    with reader, Store(path) as writer:
        writer.items.add(ADA, session("I adopted a cat.", id="D2"))
        with read_only(path.parent):
            assert texts_of_ada(reader) == ["I moved to Lisbon.", "I adopted a cat."]


def test_a_store_whose_log_cannot_be_read_for_lack_of_its_index_is_refused(
    open_folder: Path,
) -> None:
    """Somebody copies a store and its write-ahead log, but not the index of the log.

    To read the store without the log would be to miss what was said last.
    """
    path = write_store(open_folder, "I moved to Lisbon.")
    with Store(path) as writer:
        writer.items.add(ADA, session("I adopted a cat.", id="D2"))
        write_ahead_log = path.with_name("memories.sqlite-wal").read_bytes()
    # Closing the store has removed the log and its index.
    path.with_name("memories.sqlite-wal").write_bytes(write_ahead_log)

    with (
        read_only(path.parent),
        pytest.raises(StoreError, match="copy the file and its -wal to a folder that is"),
    ):
        Store(path)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        pytest.param(
            "UPDATE mempiler_version SET version_num = '9'",
            "are of version 9, .* install the Mempiler that made them",
            id="other version",
        ),
        pytest.param(
            "DROP TABLE mempiler_version; DROP TABLE mempiler_meta",
            "there are no memories in it",
            id="no tables",
        ),
    ],
)
def test_tables_that_would_have_to_be_created_or_upgraded_are_an_error_of_one_line(
    open_folder: Path, statement: str, message: str
) -> None:
    path = write_store(open_folder, "I moved to Lisbon.")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(statement)

    with read_only(path.parent), pytest.raises(StoreError, match=message):
        Store(path)


def test_a_damaged_item_does_not_keep_the_others_from_being_read(
    open_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_store(open_folder, "I moved to Lisbon.")
    with Store(path) as store:
        store.items.add(ADA, session("I adopted a cat.", id="D2"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE mempiler_items SET json = '{' WHERE id = 'D1'")

    with read_only(path.parent), Store(path) as store:
        assert texts_of_ada(store) == ["I adopted a cat."]
    assert "the row is damaged" in caplog.text


def test_a_folder_a_pipe_and_a_device_are_no_store(tmp_path: Path) -> None:
    """To open a pipe would wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for path in (tmp_path, pipe, Path("/dev/null")):
        with pytest.raises(UserError, match=f"store {path}: is a folder, a pipe or a device"):
            Store(path)


@pytest.mark.parametrize(
    "address",
    ["postgresql://ada:a-long-secret@host:port/x", "mysql://ada:a-long-secret@host/x"],
)
def test_a_malformed_address_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(UserError) as raised:
        Store(address)

    assert "ada:[secret]@host" in str(raised.value)
    assert "a-long-secret" not in str(raised.value)
