"""Connections that cannot keep others out: slow requests, idle sockets and clients that do not read are closed.

    connection ──> headers ──────────> body ─────────> answer ──> next request
                   `header_timeout`    `BodyLimit`     is read    `keep_alive`

uvicorn has a limit for the last of these only. Where `connections` are open and one more comes, the one that waits
longest for its client is closed; a request that is being answered is not.
"""

from __future__ import annotations

import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import UserError
from .settings import Settings

FILES = 256
"""Files and sockets besides clients' connections: store, language model, program, log."""


def protocol(settings: Settings) -> type[H11Protocol]:
    """The HTTP/1.1 protocol of a service."""
    return type("Protocol", (Protocol,), {"settings": settings})


def check_files(connections: int) -> None:
    """Lets this process open as many files as connections need.

    Raises:
        UserError: The system does not allow so many.
    """
    needed = connections + FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise UserError(
                f"--connections {connections} needs {needed} open files, the system allows {hard}; give at most "
                f"{max(1, hard - FILES)}, or raise the limit (ulimit -n)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class Protocol(H11Protocol):
    """One connection; `protocol` makes the class for a service."""

    settings = Settings()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.since = self.loop.time()
        self._reading: Any = None
        self._writing: Any = None

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= self.settings.connections:
            waiting = [other for other in self.connections if isinstance(other, Protocol) and other.waits]
            if not waiting:
                transport.abort()
                return
            min(waiting, key=lambda other: other.since).transport.abort()
        super().connection_made(transport)
        self._reading = self._closing(self._reading, self.settings.header_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading, self._writing = self._closing(self._reading), self._closing(self._writing)
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._reading = self._closing(self._reading)
        elif self._reading is None:
            self._reading = self._closing(None, self.settings.header_timeout)

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self._closing(self._writing, self.settings.timeout)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writing = self._closing(self._writing)

    @property
    def waits(self) -> bool:
        """Whether the client is to send something before there is anything to do."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _closing(self, timer: Any, seconds: float | None = None) -> Any:
        """Replaces a timer by one that closes the connection after so many seconds, or by none."""
        if timer is not None:
            timer.cancel()
        return None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
