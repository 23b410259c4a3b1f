"""Forgetting: what was deleted is refused a way back, and its bytes go from the files.

    record      notes who was forgotten, by a digest of the name, under the next number of the store
    refuse      a write that began before that number: a chat that was being answered, a worker, another process
    erase       SQLite: log emptied, file rewritten, log emptied again

Deleted text stays in an SQLite log until the log is emptied, and pieces of it stay between the rows of pages that were
rearranged, however secure the deletion: only a file that is written anew is free of them. Neither is done while
somebody reads: that would hold up every writer. What is left to do is noted in the store, and whoever erases next does
it.

Limits: what PostgreSQL keeps in its pages and logs is PostgreSQL's business. A file of more than `MOST` bytes is not
rewritten here, since writers wait for that.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from sqlalchemy import Connection, Engine, delete, func, select, update
from sqlalchemy.exc import OperationalError

from ..errors import ConflictError
from . import store_tables as t
from .store_tables import given
from .stored import Owner

MOST = 256 * 2**20
"""Largest SQLite file that is rewritten; writers wait about a second per 100 MB."""
WAIT, TRIES = 50, 5
"""Milliseconds for which emptying the log waits for readers, as long as which writers wait; and how often it does."""
KEPT = 86_400.0
"""Seconds for which it is known who was forgotten; no write takes longer."""
SERVER = "PostgreSQL keeps deleted rows in its pages until it needs the place, or VACUUM FULL; and in logs and backups"
READER = "somebody reads the store, so its log cannot be emptied; run it again later, or leave it to a running service"
LARGE = "the file is too large to be rewritten while others write; when nobody does, run: sqlite3 FILE VACUUM"


_FORGETS = select(t.meta.c.value).where(t.meta.c.name == "forgets")


def forgets(db: Connection) -> int:
    """How often anybody was forgotten."""
    return int(db.execute(_FORGETS).scalar() or 0)


def name_of(owner: Owner) -> str:
    """By what a user who was forgotten is known."""
    return hashlib.sha256(f"{owner.tenant}\0{owner.user}".encode()).hexdigest()


def pending(db: Connection, owner: Owner) -> bool:
    """Whether a user was forgotten before, and bytes of theirs are still to be erased."""
    c = t.forgotten.c
    return db.execute(select(c.name).where(c.name == name_of(owner), c.erased == 0)).first() is not None


def a_session_of(owner: Owner) -> Owner:
    """Stands for any session of a user, where one was forgotten."""
    return Owner.stored(f"{owner.user}\0", owner.tenant)


def record(db: Connection, *owners: Owner) -> None:
    """Notes that somebody was forgotten, by all the names that are asked for afterwards."""
    from .store_rows import upsert

    c = t.meta.c
    upsert(db, t.meta, {"name": "forgets"}, {})
    # Locked: two users who are forgotten at once must not get one number.
    last = db.execute(select(c.value).where(c.name == "forgets").with_for_update()).scalar()
    number = int(last or 0) + 1
    upsert(db, t.meta, {"name": "forgets"}, {"value": str(number)})
    about = {"number": number, "at": t.clock(db), "erased": int(db.dialect.name != "sqlite")}
    for owner in owners:
        upsert(db, t.forgotten, {"name": name_of(owner)}, about)
    db.execute(delete(t.forgotten).where(t.forgotten.c.at < t.clock(db) - KEPT, t.forgotten.c.erased == 1))


def refuse(db: Connection, owner: Owner, since: int) -> None:
    """Refuses what began before its user was forgotten.

    Args:
        db: A transaction that writes.
        owner: Whose.
        since: What `forgets` was when it began.

    Raises:
        ConflictError: The user was forgotten since.
    """
    if forgotten_since(db, since, owner):
        raise refusal(owner)


_SINCE = select(t.forgotten.c.number).where(t.forgotten.c.name == given("name"), t.forgotten.c.number > given("since"))


def forgotten_since(db: Connection, since: int, *owners: Owner) -> bool:
    """Whether one of them was forgotten after that number of the store."""
    return any(db.execute(_SINCE, {"name": name_of(owner), "since": since}).first() for owner in owners)


def refusal(owner: Owner) -> ConflictError:
    """What such a write is refused with."""
    return ConflictError(f"user {owner.user!r} was forgotten while this was under way; nothing of it was stored")


def to_erase(db: Connection) -> bool:
    """Whether there is something left to erase."""
    return bool(db.execute(select(func.count()).where(t.forgotten.c.erased == 0)).scalar())


def done(db: Connection, number: int) -> None:
    """Notes that everything is erased that was forgotten up to a number."""
    c = t.forgotten.c
    db.execute(update(t.forgotten).where(c.number <= number, c.erased == 0).values(erased=1))


def erase(engine: Engine) -> str:
    """Removes deleted data from the files of an SQLite database; returns what holds it, "" if nothing does."""
    with t.outside_transactions(engine) as connection:
        if not _log_emptied(connection):
            return READER
        if Path(engine.url.database or "").stat().st_size > MOST:
            return LARGE
        try:
            # Waits as every writer does, and holds up nobody until it is its turn.
            connection.exec_driver_sql("PRAGMA busy_timeout=10000")
            connection.exec_driver_sql("VACUUM")
        except OperationalError as error:
            return f"the file could not be rewritten: {error.orig}; run it again later"
        return "" if _log_emptied(connection) else READER


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
