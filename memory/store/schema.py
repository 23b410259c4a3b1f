"""What happens to the tables when a store is opened.

A new store gets its tables from Alembic's revisions in `migrations/versions`. A store of an older
version (`_OLDER_VERSIONS`) gets the tables that it lacks, from the later revisions; what is stored
in it stays. A store with the tables of any other version is refused.
"""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from ...errors import StoreError

SCHEMA_VERSION = "2"
"""The last revision in `migrations/versions`."""

_OLDER_VERSIONS = ("1",)
"""The revisions before it, from which a store is upgraded."""

_ADVISORY_LOCK = 0x7265636F
"""A number by which processes that open a store on one PostgreSQL server wait for one another."""

_alembic_lock = threading.Lock()
"""Alembic's `op`, which revisions call, belongs to the process and not to a thread."""


def create_tables(connection: Connection, url: str) -> None:
    """Create the tables that a store lacks, which in a new store are all; check their version.

    If several processes open a new store at the same time, one creates the tables and the others
    wait. A process that is killed meanwhile has changed nothing: it is all one transaction.

    Args:
        connection: A connection in a transaction that writes.
        url: The address of the store, for the error.

    Raises:
        StoreError: Another version made the tables.
    """
    if connection.dialect.name == "postgresql":
        # SQLite's transaction holds the lock of the whole file already.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ADVISORY_LOCK})

    version = _stored_version(connection)
    if version is None or version in _OLDER_VERSIONS:
        _run_migrations(connection)
    else:
        _refuse_other_version(version, url)


def check_read_only_tables(connection: Connection, url: str) -> None:
    """Check the tables of a store that can only be read: they must exist and be of this version.

    Raises:
        StoreError: There are no tables, or another version made them.
    """
    version = _stored_version(connection)
    if version is None:
        # In a store that can be written, they would be created now.
        raise StoreError(
            f"store {url}: there are no memories in it, and it cannot be written; "
            "give another --store"
        )
    if version in _OLDER_VERSIONS:
        raise StoreError(
            f"store {url}: its tables are of version {version}, and it cannot be written; "
            "open it once where it can be written, which adds the tables that it lacks"
        )
    _refuse_other_version(version, url)


def _stored_version(connection: Connection) -> str | None:
    """Return the version of the tables; None if there are none."""
    if not inspect(connection).has_table("mempiler_version"):
        return None
    return connection.execute(text("SELECT version_num FROM mempiler_version")).scalar()


def _refuse_other_version(version: str, url: str) -> None:
    """Raise a `StoreError` if the tables are of another version than this code reads."""
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"store {url}: its tables are of version {version}, "
            f"this Mempiler reads {SCHEMA_VERSION} and does not convert them; "
            "install the Mempiler that made them, or add the sessions to a new store"
        )


def _run_migrations(connection: Connection) -> None:
    """Create the tables that are missing: run Alembic's revisions in a connection's transaction."""
    # Only a new or older store needs Alembic, which takes a while to import.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    # Alembic works with globals of the process, so only one thread may run it.
    with _alembic_lock:
        command.upgrade(config, "head")
