"""The database of a store: SQLite by path, PostgreSQL by URL; its connections, transactions and errors.

Limits: an SQLite file belongs on a local disk (its locks and its log do not work over a network), and has one writer at
a time; several machines want PostgreSQL.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from ..errors import MissingDependencyError, StoreError, UserError
from .group_commit import GroupCommit
from .upgrading import bring_up

T = TypeVar("T")

_FIXES = {
    "database is locked": "another process holds the file; try again, or use PostgreSQL for several workers",
    "disk is full": "free some space on the disk of {disk} and try again",
    "disk I/O error": "look after the disk of {disk}: it is full, or failing",
    "No space left": "free some space on the disk of the server and try again",
    "readonly database": "make the file and its folder writable",
    "unable to open": "make its folder, and make it writable",
    "not a database": "give another --store: this file is none",
    "codec can't decode": "restore a backup",
    "malformed": "restore a backup, or export what can be read and import it anew",
    "refused": "start the server, or give another --store",
}


class Database:
    """An open database with the tables of a store.

    Args:
        url: A path of an SQLite file, `sqlite:///path`, or `postgresql://user:password@host/database`.
        timeout: Seconds to wait for a lock or a connection before a `StoreError`.

    Raises:
        UserError: The URL is of another kind.
        StoreError: The database cannot be opened, or is of a newer version.
        MissingDependencyError: PostgreSQL's driver is not installed.
    """

    def __init__(self, url: str | Path, timeout: float = 30.0) -> None:
        self._engine = _engine(url, timeout)
        self.url = self._engine.url.render_as_string(hide_password=True)
        """The address, without a password."""
        self._server = self._engine.dialect.name == "postgresql"
        self._writer = self._engine.execution_options(write=True)
        if self._server:
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            self._bare = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        else:
            self._reader, self._bare = self._engine, self._engine.execution_options(bare=True)
        self._group = None if self._server else GroupCommit(self._writer)
        try:
            with self._write() as db:
                bring_up(db, self.url)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def clear(self) -> None:
        """Drops what this process keeps of users: SQLAlchemy's compiled statements hold the values they came with."""
        self._engine.clear_compiled_cache()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def __deepcopy__(self, memo: object = None) -> Self:
        return self

    def _commit(self, work: Callable[[Connection], T]) -> T:
        """Runs a write that may share its transaction with others, and be run once more if that one fails."""
        with self._errors():
            if self._group is not None:
                return self._group.write(work)
            with self._writer.begin() as db:
                return work(db)

    @contextmanager
    def _write(self) -> Generator[Connection]:
        """A transaction for a write of its own."""
        with self._alone(), self._errors(), self._writer.begin() as db:
            yield db

    def _alone(self) -> AbstractContextManager[Any]:
        """Keeps the other writes of this process waiting."""
        return nullcontext() if self._group is None else self._group.turn

    @contextmanager
    def _read(self) -> Generator[Connection]:
        """A transaction that reads one state of the database."""
        with self._errors(), self._reader.begin() as db:
            yield db

    @contextmanager
    def _look(self) -> Generator[Connection]:
        """For one statement that reads: it needs no transaction."""
        with self._errors(), self._bare.connect() as db:
            yield db

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Turns what the database raises into one line; a transaction that fails is rolled back.

        Raises:
            StoreError: The disk is full, the file is locked or damaged, the server is down, ...
        """
        try:
            yield
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            # The first line says what is wrong; what follows in PostgreSQL's errors are the values of a row.
            reason = " ".join(str(cause).partition("\n")[0].split())
            fix = next((fix for sign, fix in _FIXES.items() if sign in reason), "put that right and try again")
            fix = fix.format(disk=Path(self._engine.url.database or ".").resolve().parent)
            raise StoreError(f"store {self.url}: {reason}; nothing was half written; {fix}") from error


def _engine(url: str | Path, timeout: float) -> Engine:
    address = str(url)
    if "://" not in address:
        address = f"sqlite:///{Path(address).expanduser()}"
    try:
        parsed = make_url(address)
    except ArgumentError:
        raise UserError(f"store {address!r} is no address; give a path or postgresql://user@host/database") from None
    kind = parsed.get_backend_name()
    # The connection used last knows best what is in the file: each reads anew what another one wrote.
    pool: dict[str, Any] = {"pool_timeout": timeout, "pool_use_lifo": True}
    if kind == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise UserError("a store needs a file: give the path of one, e.g. --store memories.sqlite")
        _keep_private(Path(parsed.database or ""))
        arguments = {"timeout": timeout, "check_same_thread": False}
        return _sqlite(create_engine(parsed, max_overflow=64, connect_args=arguments, **pool))
    if kind != "postgresql":
        raise UserError(f"store {address!r}: {kind} is not supported; give a path (SQLite) or postgresql://...")
    try:
        from .postgres import CONNECTIONS, connecting

        parsed = parsed.set(drivername="postgresql+psycopg")
        return connecting(create_engine(parsed, pool_size=CONNECTIONS, max_overflow=0, **pool), timeout)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise MissingDependencyError("psycopg", "postgres") from error


def _keep_private(path: Path) -> None:
    """Sees to it that only the owner of an SQLite file may read it; SQLite gives its log the same rights."""
    if path.name.startswith("file:"):
        return
    # What is wrong with the path SQLite says in a moment. A file that is there is not opened here: to close it would
    # take away the locks that this process has on it.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with suppress(OSError):
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
            if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
                file.chmod(0o600)


def _sqlite(engine: Engine) -> Engine:
    """Write-ahead log, flushed at every commit; transactions that write take the lock before they read."""

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None
        # Bytes that are no text fail nothing but what reads them: `\\xff` stands in no JSON.
        connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("bare"):
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("write") else "BEGIN")

    return engine
