"""Forgetting in a store: users, or one session of theirs; what was deleted is refused a way back.

The bytes go from an SQLite file too: its log is emptied, the file rewritten, the log emptied again. While somebody
reads, that would hold up every writer: what is left to do is noted, and whoever erases next does it. What PostgreSQL
keeps in its pages and logs is PostgreSQL's business.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from ..errors import StoreError
from ..records import Turn
from . import store_tables as t
from .database import OWN, Database, among, batches, put, run
from .entries import Receipt
from .incoming import name_of
from .store_queue import any_session_of, changed, forgotten_as, lock, make, reset
from .store_reading import amendments_of
from .stored import Owner

KEPT = 86_400.0
"""Seconds for which it is known who was forgotten; no write takes longer."""
MOST = 256 * 2**20
"""Largest SQLite file that is rewritten; writers wait about a second per 100 MB."""
WAIT, TRIES = 50, 5
"""Milliseconds for which emptying the log waits for readers, as long as which writers wait; and how often it does."""
SERVER = "PostgreSQL keeps deleted rows in its pages until it needs the place, or VACUUM FULL; and in logs and backups"
READER = "somebody reads the store, so its log cannot be emptied; run it again later, or leave it to a running service"
LARGE = "the file is too large to be rewritten while others write; when nobody does, run: sqlite3 FILE VACUUM"


class Forgetting(Database):
    """What a `Store` does to forget."""

    def forget(self, owner: Owner) -> Receipt:
        """Deletes everything of a user, and returns when its bytes are gone or with what holds them.

        Whatever was under way for the user, in any process, is refused from now on: a worker will find its claim void.
        """
        with self._write() as db:
            # Made even for an unknown user: the first write of a new one may be under way in another process.
            known = lock(db, owner) or _pending(db, owner)
            make(db, owner)
            sessions, turns = _sizes(db, owner)
            delete_all(db, owner)
            record(db, owner)
        return self._receipt(owner.user, known or sessions > 0, sessions, turns)

    def forget_item(self, owner: Owner, id: str) -> Receipt:
        """Deletes one item or open session of a user.

        If the memory holds something of it, the memory is deleted too, and all other items are queued anew.
        """
        id = name_of("session", id)
        with self._write() as db:
            lock(db, owner)
            _, before = _sizes(db, owner)
            known = _drop_item(db, owner, id) | drop_open(db, owner, id)
            left = before - _sizes(db, owner)[1]
            name = Owner.stored(f"{owner.user}\0{id}", owner.tenant)
            known |= _pending(db, name)
            if known:
                # Which of them are of that session's texts, nobody knows.
                run(db, f"DELETE FROM mempiler_vectors WHERE {OWN}", owner)
                run(db, f"DELETE FROM mempiler_metadata WHERE {OWN} AND session = :id", owner, id=id)
                _drop_unfounded(db, owner)
                record(db, name, any_session_of(owner))
        return self._receipt(id, known, int(left > 0), left)

    def _receipt(self, name: str, known: bool, sessions: int, turns: int) -> Receipt:
        erased, held_by = self.erase()
        return Receipt(forgotten=name, known=known, sessions=sessions, turns=turns, erased=erased, held_by=held_by)

    def erase(self) -> tuple[bool | None, str]:
        """Removes the bytes of what was forgotten from an SQLite store, as far as nobody reads it at the moment.

        Returns:
            Whether they are gone, and what holds them; None where a database server decides that.
        """
        if self._server:
            return None, SERVER
        try:
            with self._read() as db:
                number = run(db, "SELECT max(number) FROM mempiler_forgotten WHERE erased = 0").scalar()
            if number is None:
                return True, ""
            with self._turn, self._look() as connection:
                # What is set on it must not come to another call from the pool.
                connection.detach()
                held = _rewritten(connection)
            if held in ("", LARGE):
                done = "UPDATE mempiler_forgotten SET erased = 1 WHERE number <= :number AND erased = 0"
                with self._write() as db:
                    run(db, done, number=number)
        except StoreError as error:
            return False, str(error)
        return not held, held


def delete_all(db: Connection, owner: Owner) -> None:
    """Deletes every row of a user."""
    for table in t.OWNED:
        run(db, f"DELETE FROM {table.name} WHERE {OWN}", owner)


def record(db: Connection, *owners: Owner) -> None:
    """Notes that somebody was forgotten under the next number of the store, by all the names asked for afterwards."""
    count = """INSERT INTO mempiler_meta (name, value) VALUES ('forgets', '1') ON CONFLICT (name) DO UPDATE
        SET value = CAST(CAST(mempiler_meta.value AS INTEGER) + 1 AS VARCHAR) RETURNING value"""
    about = {"number": int(run(db, count).scalar_one()), "erased": int(db.dialect.name != "sqlite")}
    put(db, "forgotten", None, [{"name": forgotten_as(owner), **about} for owner in owners], ["name"], ["at"])
    run(db, "DELETE FROM mempiler_forgotten WHERE at < :now - :kept AND erased = 1", kept=KEPT)


def drop_open(db: Connection, owner: Owner, session: str) -> bool:
    """Deletes the turns of an open session; False if there are none."""
    where = f"{OWN} AND session = :session"
    found = run(db, f"SELECT json FROM mempiler_open_turns WHERE {where}", owner, session=session).scalars()
    ids = [Turn.model_validate_json(row).id for row in found]
    for part in batches(ids):
        run(db, f"DELETE FROM mempiler_turns WHERE {OWN} AND turn IN :ids", owner, ids=part)
    run(db, f"DELETE FROM mempiler_open_turns WHERE {where}", owner, session=session)
    return bool(ids)


def _drop_item(db: Connection, owner: Owner, id: str) -> bool:
    """Deletes an item, and the memory if it is in it; False if there is none of that id."""
    statement = f"DELETE FROM mempiler_items WHERE {OWN} AND id = :id RETURNING position, state"
    found = run(db, statement, owner, id=id).first()
    if found is None:
        return False
    run(db, f"DELETE FROM mempiler_turns WHERE {OWN} AND position = :position", owner, position=found.position)
    if found.state in ("remembered", "partial"):
        reset(db, owner)
    else:
        # A concurrent writer must find the version changed.
        changed(db, owner)
    return True


def _drop_unfounded(db: Connection, owner: Owner) -> None:
    """Deletes the amendments of entries that rest on a turn that is not there any more."""
    rows = amendments_of(db, owner)
    sources = sorted({turn for row in rows for turn in row.sources})
    found = among(db, f"SELECT turn FROM mempiler_turns WHERE {OWN} AND turn IN :these", owner, sources)
    there = {row.turn for row in found}
    for part in batches([row.number for row in rows if not there.issuperset(row.sources)]):
        run(db, f"DELETE FROM mempiler_amendments WHERE {OWN} AND number IN :numbers", owner, numbers=part)


def _pending(db: Connection, owner: Owner) -> bool:
    """Whether a user was forgotten before, and bytes of theirs are still to be erased."""
    statement = "SELECT name FROM mempiler_forgotten WHERE name = :name AND erased = 0"
    return run(db, statement, name=forgotten_as(owner)).first() is not None


def _sizes(db: Connection, owner: Owner) -> tuple[int, int]:
    """How many sessions a user has, open ones included, and how many turns."""
    statement = f"""SELECT (SELECT count(*) FROM mempiler_items WHERE {OWN})
        + (SELECT count(DISTINCT session) FROM mempiler_open_turns WHERE {OWN}) AS sessions,
        (SELECT count(*) FROM mempiler_turns WHERE {OWN}) AS turns"""
    row = run(db, statement, owner).one()
    return row.sessions, row.turns


def _rewritten(connection: Connection) -> str:
    """Removes deleted data from the files of an SQLite database; returns what holds it, "" if nothing does."""
    try:
        if not _log_emptied(connection):
            return READER
        if Path(connection.engine.url.database or "").stat().st_size > MOST:
            return LARGE
        # Waits as every writer does, and holds up nobody until it is its turn.
        connection.exec_driver_sql("PRAGMA busy_timeout=10000")
        connection.exec_driver_sql("VACUUM")
        return "" if _log_emptied(connection) else READER
    except OperationalError as error:
        return f"the file could not be rewritten: {error.orig}; run it again later"


def _log_emptied(connection: Connection) -> bool:
    connection.exec_driver_sql(f"PRAGMA busy_timeout={WAIT}")
    for _ in range(TRIES):
        with suppress(OperationalError):
            if not connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]:
                return True
        time.sleep(WAIT / 1000)
    return False
