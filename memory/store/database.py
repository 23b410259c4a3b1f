"""The database of a store, and the transactions in which it is read and written.

Statements stand in `queries.sql` and are run by their names:

    with database.write_transaction() as transaction:
        transaction.execute("pause_user", owner, seconds=30)

What the database raises comes out as a `StoreError` of one line, and the transaction is rolled
back. `sqlite.py` and `postgresql.py` know how each of the two kinds is connected to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, CursorResult, Engine, Row
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from ...errors import DamagedRowError, StoreError, UserError
from ...records.shared_by_copies import SharedByCopies
from ...secret_values import Secrets, hide_password, secrets_of_address
from .owner import Owner
from .postgresql import PostgreSQL
from .queries import load_queries
from .records import Erasure
from .schema import check_read_only_tables, create_tables
from .sqlite import SQLite

T = TypeVar("T")

BATCH_SIZE = 500
"""Values of one list in a statement; SQLite takes some 30,000."""

_SERVER_SCHEMES = ("postgres:", "postgresql:", "postgresql+")
"""Beginnings of addresses of servers; without `://` behind them, they are malformed."""

_FIXES = {
    "database is locked": (
        "another process holds the file; try again, or use PostgreSQL for several workers"
    ),
    "disk is full": "free some space on the disk of {disk} and try again",
    "disk I/O error": "look after the disk of {disk}: it is full, or failing",
    "No space left": "free some space on the disk of the server and try again",
    "readonly database": "make the file and its folder writable",
    "unable to open": (
        "make its folder, and make it writable, or copy the file and its -wal to a folder that is"
    ),
    "not a database": "give another --store: this file is none",
    "codec can't decode": "restore a backup",
    "malformed": "restore a backup, or export what can be read and import it anew",
    "refused": "start the server, or give another --store",
}
"""What to do about an error of the database, by words of its message."""


class Backend(Protocol):
    """What `SQLite` and `PostgreSQL` have in common."""

    engine: Engine
    is_server: bool
    writable: bool

    def write(self) -> AbstractContextManager[Connection]: ...
    def read(self) -> AbstractContextManager[Connection]: ...
    def read_without_transaction(self) -> AbstractContextManager[Connection]: ...
    def erase_deleted_bytes(self) -> Erasure: ...


class Transaction:
    """Runs the named statements of `queries.sql` on one connection.

    Args:
        connection: An open connection.
        is_server: True for PostgreSQL, False for SQLite.
    """

    def __init__(self, connection: Connection, is_server: bool) -> None:
        self.connection = connection
        self.is_server = is_server
        self._queries = load_queries("postgresql" if is_server else "sqlite")

    def execute(
        self, query: str, owner: Owner | None = None, /, **values: object
    ) -> CursorResult[Any]:
        """Run a statement of `queries.sql`.

        Args:
            query: Its name.
            owner: The user whose rows it is about: `:tenant` and `:user`.
            **values: Its other parameters by name; a list for one behind `IN`.
        """
        return self.connection.execute(self._queries[query], self._parameters(owner, values))

    def execute_many(
        self, query: str, owner: Owner | None, rows: Sequence[Mapping[str, object]]
    ) -> None:
        """Run a statement once for each row of parameters."""
        if not rows:
            return
        parameters = [self._parameters(owner, row) for row in rows]
        self.connection.execute(self._queries[query], parameters)

    def select_in_batches(
        self, query: str, owner: Owner, values: Sequence[object]
    ) -> list[Row[Any]]:
        """Return the rows that a statement with `IN :values` selects, for any number of values.

        The values are passed in several batches, because a statement takes a limited number.
        """
        rows: list[Row[Any]] = []
        for batch in batches(values):
            rows.extend(self.execute(query, owner, values=batch))
        return rows

    def _parameters(self, owner: Owner | None, values: Mapping[str, object]) -> dict[str, object]:
        """Return the parameters of a statement: the caller's values, the user and the time."""
        parameters = dict(values)
        if owner is not None:
            parameters["tenant"] = owner.tenant
            parameters["user"] = owner.user
        if not self.is_server:
            # For SQLite. In the SQL for PostgreSQL a call of the server's clock replaces `:now`.
            parameters["now"] = time.time()
        return parameters


class Database(SharedByCopies):
    """An open database with the tables of a store.

    Args:
        url: The path of an SQLite file, or `postgresql://user:password@host/database`.
        timeout: Seconds to wait for a connection, or a lock of another program.
        connect: Whether to connect now. Without, its transactions fail until it can be reached.

    Raises:
        UserError: There is no such kind of database.
        StoreError: It cannot be opened.
        MissingDependencyError: PostgreSQL's driver is not installed.
    """

    def __init__(self, url: str | Path, timeout: float = 30.0, connect: bool = True) -> None:
        self._backend = _backend(url, timeout)
        self.engine = self._backend.engine
        self.url = self.engine.url.render_as_string(hide_password=True)
        """The address, without a password."""
        self.is_server = self._backend.is_server
        self.writable = self._backend.writable

        self._has_tables = False
        self._table_creation = threading.Lock()
        if connect:
            try:
                self._ensure_tables()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def write_transaction(self) -> Generator[Transaction]:
        """Run a transaction that writes; it is committed, and on the disk, when the block ends."""
        self._ensure_tables()
        with self._errors_as_store_errors(), self._backend.write() as connection:
            yield Transaction(connection, self.is_server)

    @contextmanager
    def read_transaction(self) -> Generator[Transaction]:
        """Run a transaction that reads one state of the database."""
        self._ensure_tables()
        with self._errors_as_store_errors(), self._backend.read() as connection:
            yield Transaction(connection, self.is_server)

    @contextmanager
    def read_without_transaction(self) -> Generator[Transaction]:
        """Let the block run one statement that reads; no transaction is begun for it."""
        self._ensure_tables()
        with self._errors_as_store_errors(), self._backend.read_without_transaction() as connection:
            yield Transaction(connection, self.is_server)

    def erase_deleted_bytes(self) -> Erasure:
        """Remove the bytes of deleted rows from the files of the database, where it can."""
        self._ensure_tables()
        with self._errors_as_store_errors():
            return self._backend.erase_deleted_bytes()

    def _ensure_tables(self) -> None:
        """Create the tables before the first transaction; if that fails, before the next one.

        In a store that can only be read, the tables are checked instead.
        """
        if self._has_tables:
            return

        with self._table_creation:
            # Another thread may have created them while this one waited.
            if self._has_tables:
                return
            with self._errors_as_store_errors():
                if self.writable:
                    with self._backend.write() as connection:
                        create_tables(connection, self.url)
                else:
                    with self._backend.read() as connection:
                        check_read_only_tables(connection, self.url)
            self._has_tables = True

    @contextmanager
    def _errors_as_store_errors(self) -> Generator[None]:
        """Turn what the database raises in the block into a `StoreError` of one line."""
        try:
            yield
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            # In PostgreSQL's errors the lines after the first one show values of a row: texts of
            # users, which do not belong in a log.
            first_line = str(cause).partition("\n")[0]
            reason = " ".join(first_line.split())
            raise StoreError(
                f"store {self.url}: {reason}; nothing was half written; {self._advice(reason)}"
            ) from error

    def _advice(self, reason: str) -> str:
        """Return what a user can do about an error of the database.

        Args:
            reason: The message of the database.
        """
        for words, fix in _FIXES.items():
            if words in reason:
                folder = Path(self.engine.url.database or ".").resolve().parent
                return fix.format(disk=folder)
        return "put that right and try again"


def _backend(url: str | Path, timeout: float) -> Backend:
    """Return the SQLite file or PostgreSQL server at an address; nothing connects to it yet.

    Raises:
        UserError: The address is malformed, or of another kind of database.
    """
    address = str(url)
    # An address may hold a password, which must not get into an error message.
    shown_address = hide_password(Secrets(secrets_of_address(address)).hide(address))
    refusal = (
        f"store {shown_address!r} is no address; give a path or postgresql://user@host/database"
    )

    is_path = "://" not in address
    if is_path and address.startswith(_SERVER_SCHEMES):
        # As a path it would be created as a file, and shown with its password.
        raise UserError(refusal)
    if is_path:
        address = f"sqlite:///{Path(address).expanduser()}"
    try:
        parsed = make_url(address)
    except (ArgumentError, ValueError):
        raise UserError(refusal) from None

    kind = parsed.get_backend_name()
    if kind == "sqlite":
        return SQLite(parsed, timeout)
    if kind == "postgresql":
        return PostgreSQL(parsed, timeout)
    raise UserError(
        f"store {shown_address!r}: {kind} is not supported; "
        "give a path (SQLite) or postgresql://..."
    )


def batches(values: Sequence[T]) -> Iterator[list[T]]:
    """Yield the values in lists that are short enough for one statement."""
    for start in range(0, len(values), BATCH_SIZE):
        yield list(values[start : start + BATCH_SIZE])


def read_row(
    table: str,
    owner: Owner,
    row: Row[Any],
    read: Callable[[Row[Any]], T],
    key: str = "position",
) -> T:
    """Parse a row of a user; if that fails, raise an error that names the row.

    Args:
        table: The table of the row, without `mempiler_`, for the error.
        owner: The user, for the error.
        row: The row.
        read: Parses the row.
        key: The column that identifies the row in the error.

    Raises:
        DamagedRowError: The row is damaged. The message does not quote it: it holds texts of the
            user.
    """
    try:
        return read(row)
    except (ValueError, TypeError, LookupError, RecursionError):
        raise DamagedRowError(
            f"mempiler_{table}: user {owner.user!r}, {key} {getattr(row, key)!r}: "
            "the row is damaged; restore a backup, or delete the row"
        ) from None
