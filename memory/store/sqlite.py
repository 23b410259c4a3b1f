"""SQLite: how a store opens its file, whose turn it is to write, and how deleted bytes go.

The file belongs on a local disk. It is private to its owner. Where it, or its folder, cannot be
written, it is opened to read, and nothing beside it is made.

Writers take turns: `_write_lock` is a lock among the threads of this process, and inside of it a
lock on the file `FILE-lock` among processes. SQLite alone lets writers sleep and retry, so that
under load some never get their turn. Both locks are for the order only: if a process that holds the
file is stopped, the others go on after a while, and SQLite's own lock keeps them apart.
"""

from __future__ import annotations

import fcntl
import math
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from ...errors import UserError
from ..tenant_lock import TenantLock
from .records import Erasure

MAX_REWRITTEN_BYTES = 256 * 2**20
"""Size of the largest file that is rewritten; writers wait about a second per 100 MB."""

HELD_BY_READER = (
    "somebody reads the store, so its log cannot be emptied; "
    "run it again later, or leave it to a running service"
)
TOO_LARGE = (
    "the file is too large to be rewritten while others write; "
    "when nobody does, run: sqlite3 FILE VACUUM"
)

_LOCK_WAIT_SECONDS = 30.0
"""How long a writer waits for other processes; only one that is stopped keeps the lock longer."""
_READER_WAIT_MILLISECONDS = 50
"""How long emptying the log waits for readers; writers wait as long."""
_READER_ATTEMPTS = 5
_REWRITE_WAIT_MILLISECONDS = 10_000

_SIDE_FILES = ("-wal", "-shm", "-journal", "-lock")
"""What the names of the files beside a database end with."""


class SQLite:
    """A database in a file.

    Args:
        url: Its address.
        timeout: Seconds to wait for a lock of another program.

    Raises:
        UserError: The address names no file, or one that is a folder, a pipe or a device.
    """

    is_server = False

    def __init__(self, url: URL, timeout: float) -> None:
        if url.database in (None, "", ":memory:"):
            raise UserError(
                "a store needs a file: give the path of one, e.g. --store memories.sqlite"
            )
        self._path = Path(url.database)
        _refuse_irregular_file(self._path)

        self.writable = not _is_read_only(self._path)
        """Whether it can be written; not where the rights to the file or its folder forbid it."""
        if self.writable:
            _make_private(self._path)
            self.engine = _writing_engine(url, timeout)
        else:
            self.engine = _reading_engine(url, self._path, timeout)
        self._thread_lock = TenantLock()
        self._lock_waiter: threading.Thread | None = None
        """The thread that waits for the lock of another process after writers have given up."""

    @contextmanager
    def write(self) -> Generator[Connection]:
        """Run a transaction that writes; it is committed, and on the disk, when the block ends."""
        with self._write_lock(), self.engine.connect() as connection:
            # IMMEDIATE takes SQLite's own write lock now, not at the first statement that writes.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()

    @contextmanager
    def read(self) -> Generator[Connection]:
        """Run a transaction that reads one state of the database."""
        with self.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            yield connection
            connection.commit()

    @contextmanager
    def read_without_transaction(self) -> Generator[Connection]:
        """Open a connection for one statement that reads, without a transaction."""
        with self.engine.connect() as connection:
            yield connection
            connection.commit()

    @contextmanager
    def _write_lock(self) -> Generator[None]:
        """Let only this thread, of all threads and processes, write the file in the block.

        A lock of this process comes first, then a lock on the file `FILE-lock` for all processes.
        """
        with self._thread_lock.hold():
            lock_file: int | None = None
            try:
                # If the lock file cannot be made or locked, SQLite's own lock has to do. So it has
                # while another process, e.g. a stopped one, keeps the lock: only the first writer
                # waits for it.
                if self._lock_waiter is None or not self._lock_waiter.is_alive():
                    with suppress(OSError):
                        path = self._path.with_name(f"{self._path.name}-lock")
                        lock_file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
                        self._lock_waiter = _wait_for_lock(lock_file)
                yield
            finally:
                if lock_file is not None:
                    # Closing the file also unlocks it.
                    os.close(lock_file)

    def erase_deleted_bytes(self) -> Erasure:
        """Remove the bytes of deleted rows from the file and its write-ahead log.

        SQLite overwrites deleted rows (`secure_delete`), but copies are left in the log and where
        rows were moved. So the log is emptied, the file rewritten, and the log emptied again. While
        somebody reads the store this would hold up every writer: then it is given up, and the
        result says so in `held_by`.
        """
        with self._write_lock(), self.engine.connect() as connection:
            # `_rewrite` changes settings of the connection, so it must not go back to the pool.
            connection.detach()
            try:
                erasure = self._rewrite(connection)
            except OperationalError as error:
                held_by = f"the file could not be rewritten: {error.orig}; run it again later"
                erasure = Erasure(erased=False, held_by=held_by)
            connection.commit()
        return erasure

    def _rewrite(self, connection: Connection) -> Erasure:
        """Empty the write-ahead log and rewrite the file, so that no deleted bytes are left."""
        if not _empty_log(connection):
            return Erasure(erased=False, held_by=HELD_BY_READER)
        if self._path.stat().st_size > MAX_REWRITTEN_BYTES:
            return Erasure(erased=False, held_by=TOO_LARGE, is_too_large=True)

        # While VACUUM waits for other programs that write, it holds up nobody.
        connection.exec_driver_sql(f"PRAGMA busy_timeout={_REWRITE_WAIT_MILLISECONDS}")
        connection.exec_driver_sql("VACUUM")
        if not _empty_log(connection):
            return Erasure(erased=False, held_by=HELD_BY_READER)
        return Erasure(erased=True)


def _wait_for_lock(lock_file: int) -> threading.Thread | None:
    """Lock an open file, or give up after `_LOCK_WAIT_SECONDS`; closing the file unlocks it.

    Returns:
        The thread that waited for the lock, and does so still if the time is over; None if the
        file could be locked at once.

    Raises:
        OSError: The file cannot be locked.
    """
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        # `flock` knows no time limit, so a thread of its own waits for it.
        waiting_file = os.dup(lock_file)
        thread = threading.Thread(target=_lock_and_close, args=(waiting_file,), daemon=True)
        thread.start()
        thread.join(_LOCK_WAIT_SECONDS)
        return thread


def _lock_and_close(waiting_file: int) -> None:
    """Wait for the lock of a file, then close the file.

    A duplicate of the file keeps the lock. If the duplicate was closed meanwhile, because nobody
    needs the lock any more, closing this one unlocks the file.
    """
    try:
        fcntl.flock(waiting_file, fcntl.LOCK_EX)
    finally:
        os.close(waiting_file)


def _empty_log(connection: Connection) -> bool:
    """Move the write-ahead log into the file and truncate it.

    Returns:
        False if a reader prevented it, in every attempt.
    """
    connection.exec_driver_sql(f"PRAGMA busy_timeout={_READER_WAIT_MILLISECONDS}")
    for _ in range(_READER_ATTEMPTS):
        with suppress(OperationalError):
            checkpoint = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
            # The first column of the answer is 1 if somebody used the log.
            is_blocked = checkpoint[0]
            if not is_blocked:
                return True
        time.sleep(_READER_WAIT_MILLISECONDS / 1000)
    return False


def _writing_engine(url: URL, timeout: float) -> Engine:
    """Return an engine of SQLAlchemy for a file that can be written: a pool of connections."""
    engine = create_engine(
        url,
        max_overflow=64,
        pool_timeout=timeout,
        # A connection caches pages of the file, and reads them anew after another one has written.
        # The connection that was used last has most of them, so it is used first.
        pool_use_lifo=True,
        connect_args={"timeout": timeout, "check_same_thread": False},
    )
    # Write to a write-ahead log, flush it to the disk at every commit, and overwrite deleted rows.
    _prepare_connections(engine, ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"))
    return engine


def _reading_engine(url: URL, path: Path, timeout: float) -> Engine:
    """Return an engine of SQLAlchemy for a file that this process cannot write."""

    def connect() -> sqlite3.Connection:
        # The address depends on whether the file has a write-ahead log (`-wal`) at this moment.
        address = _read_only_address(path)
        return sqlite3.connect(address, uri=True, timeout=timeout, check_same_thread=False)

    # Without a log the address says `immutable=1`: SQLite takes it that the file never changes, and
    # would not see a log that another process begins later. Therefore connections are not kept:
    # NullPool opens a new one, by the address of that moment, for every transaction.
    engine = create_engine(url, creator=connect, poolclass=NullPool)
    _prepare_connections(engine, ("query_only=ON",))
    return engine


def _prepare_connections(engine: Engine, pragmas: Sequence[str]) -> None:
    """Give every connection that an engine opens the settings of a store, and these pragmas."""

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: Any) -> None:
        # Some builds of SQLite have no mathematical functions.
        connection.create_function("floor", 1, math.floor, deterministic=True)
        # Python's driver begins no transactions by itself: the store runs BEGIN where it wants one.
        connection.isolation_level = None
        # Damaged bytes come out as `\\xff`, so that queries of other rows still work. JSON knows no
        # such escape: whoever parses the damaged row gets an error.
        connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")


def _make_private(path: Path) -> None:
    """Create the file if it is missing, and let nobody but its owner read it.

    The same holds for the files beside it, such as its write-ahead log.
    """
    # That is an address in SQLite's own form, not a path.
    if path.name.startswith("file:"):
        return

    # If the path is wrong, SQLite says so in a moment. O_EXCL opens no file that exists: closing
    # such a file would drop the locks that this process holds on it.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    files = [path, *(path.with_name(f"{path.name}{ending}") for ending in _SIDE_FILES)]
    with suppress(OSError):
        for file in files:
            if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
                file.chmod(0o600)


def _refuse_irregular_file(path: Path) -> None:
    """Refuse a path that no database can have.

    SQLite reports all other mistakes when it opens the file.

    Raises:
        UserError: It is a folder, a pipe, a socket or a device.
    """
    with suppress(OSError, ValueError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(
                f"store {path}: is a folder, a pipe or a device; give the path of a file"
            )


def _is_read_only(path: Path) -> bool:
    """Return whether a database file exists and cannot be written by this process.

    To write it, SQLite also needs two files beside it: the write-ahead log (`-wal`) and the index
    of the log (`-shm`). Either both exist and can be written, or SQLite makes them in the folder.
    """
    if path.name.startswith("file:") or not path.is_file():
        return False
    if not _may_write(path):
        return True

    log = path.with_name(f"{path.name}-wal")
    log_index = path.with_name(f"{path.name}-shm")
    can_use_log = _may_write(log) and _may_write(log_index)
    can_make_log = _may_write(path.parent)
    return not can_use_log and not can_make_log


def _may_write(path: Path) -> bool:
    """Return whether this process may write a file, or make files in a folder.

    False for a file that does not exist.
    """
    # The system decides by the effective user of the process, which not every system lets us ask
    # for. Without that, the real user is asked for.
    can_ask_for_effective_user = os.access in os.supports_effective_ids
    return os.access(path, os.W_OK, effective_ids=can_ask_for_effective_user)


def _read_only_address(path: Path) -> str:
    """Return an address by which SQLite reads a file and makes no files beside it.

    If there is a write-ahead log (`-wal`), `mode=ro` reads the file and the log. Without a log this
    would fail, because SQLite could not make the index (`-shm`) that it wants to have for one. But
    then nobody has the file open, and `immutable=1` tells SQLite that it does not change.
    """
    has_log = path.with_name(f"{path.name}-wal").exists()
    mode = "mode=ro" if has_log else "mode=ro&immutable=1"
    return f"file:{quote(str(path.absolute()))}?{mode}"
