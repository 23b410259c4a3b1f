"""The bytes of what was forgotten go from an SQLite file: log emptied, file rewritten, log emptied again.

Deleted text stays in the log until it is emptied, and pieces of it stay between the rows of pages that were rearranged,
however secure the deletion: only a file that is written anew is free of them. Neither is done while somebody reads:
that would hold up every writer. What is left to do is noted in the store, and whoever erases next does it.

Limits: what PostgreSQL keeps in its pages and logs is PostgreSQL's business. A file of more than `MOST` bytes is not
rewritten here, since writers wait for that.
"""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

MOST = 256 * 2**20
"""Largest SQLite file that is rewritten; writers wait about a second per 100 MB."""
WAIT, TRIES = 50, 5
"""Milliseconds for which emptying the log waits for readers, as long as which writers wait; and how often it does."""
SERVER = "PostgreSQL keeps deleted rows in its pages until it needs the place, or VACUUM FULL; and in logs and backups"
READER = "somebody reads the store, so its log cannot be emptied; run it again later, or leave it to a running service"
LARGE = "the file is too large to be rewritten while others write; when nobody does, run: sqlite3 FILE VACUUM"


def erase(engine: Engine) -> str:
    """Removes deleted data from the files of an SQLite database; returns what holds it, "" if nothing does.

    Args:
        engine: Begins no transactions.
    """
    with engine.connect() as connection:
        try:
            if not _log_emptied(connection):
                return READER
            if Path(engine.url.database or "").stat().st_size > MOST:
                return LARGE
            # Waits as every writer does, and holds up nobody until it is its turn.
            connection.exec_driver_sql("PRAGMA busy_timeout=10000")
            connection.exec_driver_sql("VACUUM")
            return "" if _log_emptied(connection) else READER
        except OperationalError as error:
            return f"the file could not be rewritten: {error.orig}; run it again later"
        finally:
            # What was set on it must not come to another call from the pool.
            connection.invalidate()


def _log_emptied(connection: Connection) -> bool:
    connection.exec_driver_sql(f"PRAGMA busy_timeout={WAIT}")
    for _ in range(TRIES):
        # An old reader is seen without a lock; only where there is none is it worth to have writers wait.
        if _moved(connection, "PASSIVE") and _moved(connection, "TRUNCATE"):
            return True
        time.sleep(WAIT / 1000)
    return False


def _moved(connection: Connection, how: str) -> bool:
    """Whether all of the log is in the file now."""
    try:
        busy, frames, moved = connection.exec_driver_sql(f"PRAGMA wal_checkpoint({how})").one()
    except OperationalError:
        return False
    return not busy and frames <= moved
