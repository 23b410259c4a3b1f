"""PostgreSQL: how a store connects to a server, and how long it waits for one."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Connection, create_engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import NoSuchModuleError

from ...errors import MissingDependencyError
from .records import Erasure

MAX_CONNECTIONS = 16
"""Most connections of one process, which are kept open; a server takes 100 unless configured."""

_KEPT_BY_SERVER = (
    "PostgreSQL keeps deleted rows in its pages until it needs the place, or VACUUM FULL; "
    "and in logs and backups"
)


class PostgreSQL:
    """A database on a server. Waits for connections and locks end after `timeout` seconds.

    Raises:
        MissingDependencyError: The driver is not installed.
    """

    is_server = True
    writable = True

    def __init__(self, url: URL, timeout: float) -> None:
        milliseconds = round(timeout * 1000)
        connect_args: dict[str, object] = {
            "connect_timeout": max(2, round(timeout)),
            "options": f"-c lock_timeout={milliseconds} -c statement_timeout={milliseconds}",
            "tcp_user_timeout": milliseconds,
            # After 10 silent seconds the server is probed 3 times; without an answer it is gone.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            # Options in the address of the store, as in `?connect_timeout=5`, override all these.
            **url.query,
        }
        try:
            self.engine = create_engine(
                url.set(drivername="postgresql+psycopg"),
                pool_size=MAX_CONNECTIONS,
                max_overflow=0,
                pool_timeout=timeout,
                pool_use_lifo=True,
                pool_pre_ping=True,
                connect_args=connect_args,
            )
        except (ModuleNotFoundError, NoSuchModuleError) as error:
            raise MissingDependencyError("psycopg", "postgres") from error

        self._snapshot_engine = self.engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._autocommit_engine = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def write(self) -> Generator[Connection]:
        """Run a transaction that writes; it is committed when the block ends."""
        with self.engine.connect() as connection:
            yield connection
            connection.commit()

    @contextmanager
    def read(self) -> Generator[Connection]:
        """Run a transaction that reads one state of the database."""
        with self._snapshot_engine.connect() as connection:
            yield connection
            connection.commit()

    @contextmanager
    def read_without_transaction(self) -> Generator[Connection]:
        """Open a connection for one statement that reads, without a transaction."""
        with self._autocommit_engine.connect() as connection:
            yield connection
            connection.commit()

    def erase_deleted_bytes(self) -> Erasure:
        """Erase nothing: the server decides by itself when the bytes of deleted rows go.

        Returns:
            `erased` is None, which stands for "unknown", and `held_by` tells the user why.
        """
        return Erasure(erased=None, held_by=_KEPT_BY_SERVER)
