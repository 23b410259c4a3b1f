"""Group commit: writes to an SQLite file that come at the same time share one transaction, and one flush of the disk.

    writes that wait ──> whoever has the turn begins ── each under a savepoint ── commits ──> all of them return

The file has one writer at a time. Who gets its turn writes for all who wait, so a flush is shared by as many as came
during the last one, and a write that comes alone costs what it did. A write returns after the commit that has it. One
that raises is undone alone; where the whole transaction fails (the disk is full), each is tried once more by itself,
and only those that cannot be written fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

T = TypeVar("T")

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
        self._turn = threading.Lock()
        self._guard = threading.Lock()
        self._waiting: list[_Write[Any]] = []

    @contextmanager
    def alone(self) -> Generator[None]:
        """Keeps the writes of this process waiting, for one that has a transaction of its own."""
        with self._turn:
            yield

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs a write, together with others that wait; returns after its commit.

        Args:
            work: Writes; may run in another caller's thread, and a second time after the first was undone.
        """
        mine = _Write(work)
        with self._guard:
            self._waiting.append(mine)
        try:
            with self._turn:
                while not mine.done:
                    self._write_all()
        finally:
            # Whoever was interrupted meanwhile writes nothing any more.
            with self._guard:
                self._waiting = [write for write in self._waiting if not write.done and write is not mine]
        return mine.result()

    def _write_all(self) -> None:
        with self._guard:
            writes = [write for write in self._waiting if not write.done][:MOST]
        if len(writes) > 1 and self._together(writes):
            return
        for write in writes:
            write.alone(self._engine)

    def _together(self, writes: list[_Write[Any]]) -> bool:
        """Whether all of them came to an end; if not, nothing of them is written."""
        begun = False
        try:
            with self._engine.begin() as db:
                begun = True
                for write in writes:
                    write.within(db)
        except SQLAlchemyError as error:
            if begun:
                return False
            # Nobody has the file, and to wait for it once more for each would take as long each time.
            for write in writes:
                write.failed(error)
        for write in writes:
            write.done = True
        return True


class _Write(Generic[T]):
    """One write: what is to be done, and what came of it."""

    def __init__(self, work: Callable[[Connection], T]) -> None:
        self._work = work
        self._made: list[T] = []
        self._error: Exception | None = None
        self.done = False

    def within(self, db: Connection) -> None:
        """Runs under a savepoint; what the work itself raises is kept for its caller.

        Raises:
            SQLAlchemyError: The transaction is lost.
        """
        self._made, self._error, point = [], None, db.begin_nested()
        try:
            self._made = [self._work(db)]
        except Exception as error:
            point.rollback()
            self.failed(error)
        else:
            point.commit()

    def alone(self, engine: Engine) -> None:
        """Runs in a transaction of its own."""
        try:
            with engine.begin() as db:
                made = self._work(db)
            self._made, self._error = [made], None
        except Exception as error:
            self.failed(error)
        self.done = True

    def failed(self, error: Exception) -> None:
        """Keeps an error for the caller."""
        self._made, self._error = [], error

    def result(self) -> T:
        """What the work returned, or raised."""
        if self._error is not None:
            raise self._error
        return self._made[0]
