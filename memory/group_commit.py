"""Group commit: writes to an SQLite file that come at the same time share one transaction, and one flush of the disk.

    writes that wait ──> whoever has the turn begins ── each under a savepoint ── commits ──> all of them return

The file has one writer at a time. Who gets its turn writes for all who wait, so a flush is shared by as many as came
during the last one. A write returns after the commit that has it. One that raises is undone alone; where the whole
transaction fails (the disk is full), each is tried once more by itself, and only those that cannot be written fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

T = TypeVar("T")
Write = tuple[Callable[[Connection], Any], "Future[Any]"]

MOST = 64
"""Most writes of one transaction; other processes wait for it."""


class GroupCommit:
    """The writes of one process to one SQLite file.

    Args:
        engine: Its `begin` takes the file's lock.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Who waits for SQLite's own lock sleeps and tries again, and among many threads may never be lucky.
        self.turn = threading.Lock()
        """Who holds it is the only one of this process who writes."""
        self._guard = threading.Lock()
        self._waiting: list[Write] = []

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs a write, together with others that wait; returns after its commit.

        Args:
            work: Writes; may run in another caller's thread, and a second time after the first was undone.
        """
        outcome: Future[T] = Future()
        mine = (work, outcome)
        with self._guard:
            self._waiting.append(mine)
        try:
            with self.turn:
                while not outcome.done():
                    with self._guard:
                        writes = [write for write in self._waiting if not write[1].done()][:MOST]
                    self._write(writes)
        finally:
            # Whoever was interrupted meanwhile writes nothing any more.
            with self._guard:
                self._waiting.remove(mine)
        return outcome.result()

    def _write(self, writes: Sequence[Write]) -> None:
        if len(writes) > 1 and self._together(writes):
            return
        for work, outcome in writes:
            try:
                with self._engine.begin() as db:
                    made = work(db)
                outcome.set_result(made)
            except Exception as error:
                outcome.set_exception(error)

    def _together(self, writes: Sequence[Write]) -> bool:
        """Whether all of them came to an end; if not, nothing of them is written."""
        made: list[tuple[Any, Exception | None]] = []
        begun = False
        try:
            with self._engine.begin() as db:
                begun = True
                for work, _ in writes:
                    made.append(_tried(db, work))
        except SQLAlchemyError as error:
            if begun:
                return False
            # Nobody has the file, and to wait for it once more for each would take as long each time.
            made = [(None, error)] * len(writes)
        for (_, outcome), (value, error) in zip(writes, made, strict=True):
            if error is None:
                outcome.set_result(value)
            else:
                outcome.set_exception(error)
        return True


def _tried(db: Connection, work: Callable[[Connection], T]) -> tuple[T | None, Exception | None]:
    """What a write returned or raised, under a savepoint."""
    point = db.begin_nested()
    try:
        value = work(db)
    except Exception as error:
        point.rollback()
        return None, error
    point.commit()
    return value, None
