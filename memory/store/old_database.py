"""The database of a store: SQLite by path, PostgreSQL by URL; its connections, transactions, statements and errors.

Statements are written out where they run: SQLAlchemy's expressions, made anew for every call, cost ten times as much as
the database takes. An SQLite file belongs on a local disk, and has one writer at a time. One that cannot be written,
or whose folder cannot, is opened read-only.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, CursorResult, Engine, TextClause, bindparam, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from ...errors import MissingDependencyError, StoreError, UserError
from ...records.shared_by_copies import SharedByCopies
from ...secret_values import Secrets, secrets_of_address
from .old_tables import bring_up, check_version
from .owner import Owner
from ..tenant_lock import TenantLock

T = TypeVar("T")

CONNECTIONS = 16
"""Most connections of a process to PostgreSQL, which are kept; it takes 100 if nobody says otherwise."""
OWN = 'tenant = :tenant AND "user" = :user'
"""The condition for rows of the user of a statement."""
BATCH = 500
"""Values of one list; SQLite takes some 30,000."""
_SERVER_NOW = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"

_FIXES = {
    "database is locked": "another process holds the file; try again, or use PostgreSQL for several workers",
    "disk is full": "free some space on the disk of {disk} and try again",
    "disk I/O error": "look after the disk of {disk}: it is full, or failing",
    "No space left": "free some space on the disk of the server and try again",
    "readonly database": "make the file and its folder writable",
    "unable to open": "make its folder, and make it writable, or copy the file and its -wal to a folder that is",
    "not a database": "give another --store: this file is none",
    "codec can't decode": "restore a backup",
    "malformed": "restore a backup, or export what can be read and import it anew",
    "refused": "start the server, or give another --store",
}


class Database(SharedByCopies):
    """An open database with the tables of a store; see `Store`."""

    def __init__(self, url: str | Path, timeout: float = 30.0, connect: bool = True) -> None:
        self._engine = _engine(url, timeout)
        self.url = self._engine.url.render_as_string(hide_password=True)
        """The address, without a password."""
        self._server = self._engine.dialect.name == "postgresql"
        self.writable = self._server or not _is_read_only(Path(self._engine.url.database or ""))
        """Whether it can be written; not where the rights to an SQLite file or its folder forbid it."""
        reader = bare = self._engine
        if self._server:
            reader = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            bare = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        turn = partial(_in_turn, TenantLock(), f"{self._engine.url.database}-lock")
        self._turn: Callable[[], AbstractContextManager[Any]] = nullcontext if self._server else turn
        self._write = partial(self._on, self._engine, "" if self._server else "BEGIN IMMEDIATE", self._turn)
        """A transaction that writes; it is committed, and flushed to the disk, when the block ends."""
        self._read = partial(self._on, reader, "" if self._server else "BEGIN")
        """A transaction that reads one state of the database."""
        self._look = partial(self._on, bare)
        """For one statement that reads: it needs no transaction."""
        self._passed: dict[tuple[str, str], str] = {}
        """The last user that was looked at in a queue that is not gone through, by state and tenant."""
        self._has_tables = False
        self._bringing_up = threading.Lock()
        if connect:
            try:
                self._ensure_tables()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _ensure_tables(self) -> None:
        """Make or upgrade the tables, once; a failure is tried again with the next transaction."""
        if self._has_tables:
            return
        with self._bringing_up:
            if self._has_tables:
                return
            if self.writable:
                begin = "" if self._server else "BEGIN IMMEDIATE"
                with self._transaction(self._engine, begin, self._turn) as db:
                    bring_up(db, self.url)
            else:
                with self._transaction(self._engine, "BEGIN", nullcontext) as db:
                    check_version(db, self.url)
            self._has_tables = True

    @contextmanager
    def _on(
        self, engine: Engine, begin: str = "", turn: Callable[[], AbstractContextManager[Any]] = nullcontext
    ) -> Generator[Connection]:
        """Run a transaction as `_transaction` does, over tables that are there."""
        self._ensure_tables()
        with self._transaction(engine, begin, turn) as db:
            yield db

    @contextmanager
    def _transaction(
        self, engine: Engine, begin: str, turn: Callable[[], AbstractContextManager[Any]]
    ) -> Generator[Connection]:
        """A transaction; what the database raises is one line, a `StoreError`, and everything is rolled back then."""
        try:
            with turn(), engine.connect() as db:
                if begin:
                    db.exec_driver_sql(begin)
                yield db
                db.commit()
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
    shown = Secrets(secrets_of_address(address)).hide(address)
    try:
        parsed = make_url(address)
    except (ArgumentError, ValueError):
        raise UserError(f"store {shown!r} is no address; give a path or postgresql://user@host/database") from None
    kind = parsed.get_backend_name()
    # The connection used last knows best what is in the file: each reads anew what another one wrote.
    pool: dict[str, Any] = {"pool_timeout": timeout, "pool_use_lifo": True}
    if kind == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise UserError("a store needs a file: give the path of one, e.g. --store memories.sqlite")
        return _sqlite_engine(parsed, timeout, pool)
    if kind != "postgresql":
        raise UserError(f"store {shown!r}: {kind} is not supported; give a path (SQLite) or postgresql://...")
    milliseconds = round(timeout * 1000)
    limits = f"-c lock_timeout={milliseconds} -c statement_timeout={milliseconds}"
    arguments = {"connect_timeout": max(2, round(timeout)), "options": limits, "tcp_user_timeout": milliseconds}
    # Signs of life of a server that is gone are asked for after ten seconds of silence.
    arguments |= {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3} | dict(parsed.query)
    pool |= {"pool_size": CONNECTIONS, "max_overflow": 0, "pool_pre_ping": True, "connect_args": arguments}
    try:
        return create_engine(parsed.set(drivername="postgresql+psycopg"), **pool)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise MissingDependencyError("psycopg", "postgres") from error


@contextmanager
def _in_turn(threads: TenantLock, path: str) -> Generator[None]:
    """A turn to write to an SQLite file, among all threads of all processes: SQLite lets who waits sleep and retry."""
    with threads.held(), ExitStack() as held:
        with suppress(OSError):
            held.callback(os.close, file := os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _keep_private(path: Path) -> None:
    """Sees to it that only the owner of an SQLite file may read it; SQLite gives its log the same rights."""
    if path.name.startswith("file:"):
        return
    # What is wrong with the path SQLite says in a moment. A file that is there is not opened here: to close it would
    # take away the locks that this process has on it.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with suppress(OSError):
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal", "-lock"))):
            if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
                file.chmod(0o600)


def _sqlite_engine(url: URL, timeout: float, pool: Mapping[str, Any]) -> Engine:
    """Make what opens connections to an SQLite file: to read and write it, or to read it where it cannot be written.

    Raises:
        UserError: It is a folder, a pipe or a device.
    """
    path = Path(url.database or "")
    _refuse_irregular(path)
    arguments: dict[str, Any] = {"timeout": timeout, "check_same_thread": False}

    if _is_read_only(path):

        def connect_to_read() -> sqlite3.Connection:
            return sqlite3.connect(_read_only_address(path), uri=True, **arguments)

        # A connection for each transaction: one that was told that the file does not change would never see a log that
        # somebody with the right to write begins.
        engine = create_engine(url, creator=connect_to_read, poolclass=NullPool)
        pragmas = ("query_only=ON",)
    else:
        _keep_private(path)
        engine = create_engine(url, max_overflow=64, connect_args=arguments, **pool)
        # A write-ahead log, flushed at every commit.
        pragmas = ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON")

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: Any) -> None:
        # Nothing but a statement of ours begins a transaction.
        connection.isolation_level = None
        # Bytes that are no text fail nothing but what reads them: `\\xff` stands in no JSON.
        connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _refuse_irregular(path: Path) -> None:
    """Refuse what no database can be; whatever else is wrong with a path, SQLite says when it opens it.

    Raises:
        UserError: It is a folder, a pipe, a socket or a device.
    """
    with suppress(OSError, ValueError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"store {path}: is a folder, a pipe or a device; give the path of a file")


def _is_read_only(path: Path) -> bool:
    """Return whether an SQLite file is there and cannot be written.

    A writer needs the file, and beside it a log and the log's index, which it makes in the folder.
    """
    if path.name.startswith("file:") or not path.is_file():
        return False
    if not _may_write(path):
        return True

    beside = [path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm")]
    has_log = all(_may_write(file) for file in beside)
    return not has_log and not _may_write(path.parent)


def _may_write(path: Path) -> bool:
    """Return whether this process may write a file, or make files in a folder."""
    # As the system decides when a file is opened, where Python can ask for that.
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _read_only_address(path: Path) -> str:
    """Return the address of an SQLite file that is read and not written.

    A reader of a log needs its index, which cannot be made here. Without a log nobody has the file open, and it holds
    everything: SQLite is told that it does not change while this connection is open.
    """
    has_log = path.with_name(f"{path.name}-wal").exists()
    mode = "mode=ro" if has_log else "mode=ro&immutable=1"
    return f"file:{quote(str(path.absolute()))}?{mode}"


def run(
    db: Connection,
    statement: str,
    owner: Owner | None = None,
    rows: Sequence[Mapping[str, Any]] | None = None,
    /,
    **values: Any,
) -> CursorResult[Any]:
    """Runs SQL in a transaction.

    Args:
        db: The transaction.
        statement: `:name` stands for a value, after `IN` for all of a list; `:now` for the time in seconds since 1970:
            PostgreSQL's own, so that the clocks of its clients do not matter.
        owner: Whose rows: the values of `OWN`.
        rows: More values by name; the statement runs once for each.
        **values: By name.
    """
    if owner is not None:
        values |= vars(owner)
    if ":now" in statement:
        if db.dialect.name == "postgresql":
            statement = statement.replace(":now", _SERVER_NOW)
        else:
            values["now"] = time.time()
    lists = tuple(name for name, value in values.items() if isinstance(value, list | tuple))
    return db.execute(_text(statement, lists), values if rows is None else [{**values, **row} for row in rows])


@lru_cache(256)
def _text(statement: str, lists: tuple[str, ...]) -> TextClause:
    made: list[Any] = [bindparam(name, expanding=True) for name in lists]
    return text(statement).bindparams(*made)


def put(
    db: Connection,
    table: str,
    owner: Owner | None,
    rows: Sequence[Mapping[str, Any]],
    key: Sequence[str] | None = None,
    now: Sequence[str] = (),
) -> None:
    """Writes rows, all of the same columns; with a `key`, in the place of those that are there; `now` are columns."""
    if not rows:
        return
    own = ["tenant", "user"] if owner else []
    names = {name: f":{name}" for name in (*own, *rows[0])} | dict.fromkeys(now, ":now")
    columns = ", ".join(f'"{name}"' for name in names)
    statement = f"INSERT INTO mempiler_{table} ({columns}) VALUES ({', '.join(names.values())})"
    if key is not None:
        kept = ", ".join(f'"{name}"' for name in (*own, *key))
        new = ", ".join(f'"{name}" = excluded."{name}"' for name in names if name not in (*own, *key))
        statement += f" ON CONFLICT ({kept}) DO UPDATE SET {new}"
    run(db, statement, owner, rows)


def select_in(db: Connection, statement: str, owner: Owner, values: Sequence[Any]) -> list[Any]:
    """The rows of a statement that looks for some values of a user (`IN :these`), of any number of them."""
    return [row for part in batches(values) for row in run(db, statement, owner, these=part)]


def batches(values: Sequence[T]) -> Iterator[list[T]]:
    """The values of a list in parts that a database takes."""
    return (list(values[n : n + BATCH]) for n in range(0, len(values), BATCH))


def read_row(table: str, owner: Owner, row: Any, read: Callable[[Any], T], key: str = "position") -> T:
    """Reads a row of a user; a damaged one is a `StoreError` that names it by `key` and does not say what it holds."""
    try:
        return read(row)
    except (ValueError, TypeError, LookupError, RecursionError):
        named = f"mempiler_{table}: user {owner.user!r}, {key} {getattr(row, key)!r}"
        raise StoreError(f"{named}: the row is damaged; restore a backup, or delete the row") from None
