"""Connections to PostgreSQL that do not wait forever for a server that has stopped answering.

The server's own limits (`lock_timeout`, `statement_timeout`) hold while it runs; where its process is stopped or its
machine is gone, only the client can end the wait.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DisconnectionError

CONNECTIONS = 16
"""Most connections of a process, which are kept; PostgreSQL takes 100 if nobody says otherwise."""
WATCH = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""Seconds of silence, and between signs of life of a server that is gone, and how many."""


def connecting(engine: Engine, timeout: float) -> Engine:
    """Bounds every connection of an engine, and each of its statements.

    Args:
        engine: Over psycopg.
        timeout: Seconds.
    """
    milliseconds = round(timeout * 1000)
    options = {
        "connect_timeout": max(2, round(timeout)),
        "options": f"-c lock_timeout={milliseconds} -c statement_timeout={milliseconds}",
        "tcp_user_timeout": milliseconds,
        **WATCH,
    }
    kind: Any = type("Connection", (_Connection,), {"seconds": timeout + 1})

    @event.listens_for(engine, "checkout")
    def _checked(connection: Any, record: Any, proxy: Any) -> None:
        # Silent means usable; to ask each time whether the server is there would be one more trip for every request.
        if connection.closed or _readable(connection.fileno()):
            raise DisconnectionError("the server has ended this connection")

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, record: Any, given: Any, named: Any) -> Any:
        return kind.connect(*given, **{**options, **named})

    return engine


@contextmanager
def unbounded(db: Connection) -> Generator[None]:
    """Lets the statements of a transaction take as long as they need."""
    connection: Any = db.connection.driver_connection
    db.execute(text("SET LOCAL statement_timeout = 0"))
    before, connection.seconds = connection.seconds, math.inf
    try:
        yield
    finally:
        connection.seconds = before


def _readable(file: int) -> bool:
    """Whether there is something to read where nothing was asked: the end, or a notice of it."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))


class _Connection(psycopg.Connection[Any]):
    seconds = 31.0

    def wait(self, gen: Any, *given: Any, **named: Any) -> Any:
        return super().wait(self._bounded(gen), *given, **named)

    def _bounded(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same steps; psycopg goes on with "nothing" several times a second while the server is silent."""
        until = time.monotonic() + self.seconds
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > until:
                    # Its answer may still come, and would be taken for that of another statement.
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the server has not answered for {self.seconds:g} s")
                wanted = steps.send(ready)
        except StopIteration as done:
            return done.value
