"""Makes the tables of a store, or brings those of an earlier version up to this one, when it is opened.

    no tables ──> made ── tables of version 1 or 2 ──> Alembic runs `memory/migrations` ── newer ones ──> refused

All of it is one transaction that holds the store's lock: SQLite's own, and an advisory one of PostgreSQL. Other
processes wait, and find the tables as they should be; one that is killed has changed nothing.
"""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from ..errors import StoreError
from . import store_tables as t

_LOCK = 0x7265636F
"""PostgreSQL's advisory lock."""
_ONE_BY_ONE = threading.Lock()
"""What a revision calls (`alembic.op`) is the process's, and not a thread's."""
EARLIER = ("1", "2")
"""Versions of before Alembic, which stand in the table `meta`."""


def bring_up(db: Connection, url: str) -> None:
    """Sees to it that the tables are there, as this version has them.

    Args:
        db: A transaction that writes.
        url: Names the store.

    Raises:
        StoreError: A newer version made them.
    """
    if db.dialect.name == "postgresql":
        db.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    found = _version(db)
    if found is None:
        t.tables.create_all(db)
        db.execute(text("INSERT INTO mempiler_version VALUES (:version)"), {"version": t.SCHEMA})
        # What earlier versions look for, and refuse.
        db.execute(text("INSERT INTO mempiler_meta VALUES ('schema', :version)"), {"version": t.SCHEMA})
    elif found in EARLIER and db.dialect.name == "postgresql":
        from .postgres import unbounded

        with unbounded(db):
            _upgrade(db)
    elif found in EARLIER:
        _upgrade(db)
    elif found != t.SCHEMA:
        raise StoreError(
            f"store {url}: its tables are of version {found}, this Mempiler reads {t.SCHEMA}; install the newer one "
            "that made them, or run its `mempiler memories export` and import that into a new store with this one"
        )


def _version(db: Connection) -> str | None:
    """The version of the tables; None where there are none."""
    there = inspect(db)
    if there.has_table(t.version.name):
        return db.execute(text("SELECT version_num FROM mempiler_version")).scalar()
    if there.has_table(t.meta.name):
        return db.execute(text("SELECT value FROM mempiler_meta WHERE name = 'schema'")).scalar()
    return None


def _upgrade(db: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": db})
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    with _ONE_BY_ONE:
        command.upgrade(config, "head")
