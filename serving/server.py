"""Running a service: uvicorn on one address until a signal, then an orderly end.

On SIGTERM or SIGINT no further connection is taken, and no writer begins another session. Requests that are being
answered and sessions that are being written get `grace` seconds together. What has not ended by then is left where it
is: it is stored and queued, and the next worker does it again.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn

from ..errors import UserError
from ..memory.store import Store
from .app import make_app
from .auth import LOOPBACK
from .connections import check_files, protocol
from .logs import log, set_up
from .service import Service

MOST_HEADERS = 32_768
"""Most bytes of the headers of a request."""
BACKLOG = 512
"""Connections that wait for the process to take them."""


def check_address(host: str, tokens: bool) -> None:
    """Refuses to serve other machines without tokens.

    Raises:
        UserError: The host is not this machine, and there are no tokens.
    """
    if not tokens and host not in LOOPBACK:
        raise UserError(f"--host {host} serves other machines; give --token-file, or serve 127.0.0.1")


def serve(
    service: Service,
    listening: Callable[[], socket.socket],
    level: str = "info",
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serves until a signal comes; a second one ends it at once.

    Args:
        service: What is served.
        listening: Opens the port, see `listen`.
        level: `debug`, `info`, `warning` or `error`.
        started: Called as soon as requests are answered.
    """
    check_files(service.settings.connections)
    bound = listening()
    set_up(service.settings.log_contents, level)
    config = uvicorn_config(service)
    # uvicorn's own lines come through the same formatter.
    logging.getLogger("uvicorn").setLevel(level.upper())
    server = _Server(config, service, started)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn handles both while it serves, and raises them again afterwards; the end is in order by then.
        signal.signal(number, server.handle_early)
    host, port = bound.getsockname()[:2]
    log.info("listening", extra={"host": host, "port": port})
    # What is loaded stays; each full collection would look through it, and hold up all that is asked for .1 s.
    gc.collect()
    gc.freeze()
    server.run([bound])
    _end(service, service.store, server.started)


def uvicorn_config(service: Service) -> uvicorn.Config:
    """How uvicorn serves a service."""
    grace = max(1, round(service.settings.grace))
    return uvicorn.Config(
        make_app(service),
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=grace,
        http=protocol(service.settings),
        ws="none",
        # uvicorn counts whole seconds.
        timeout_keep_alive=max(1, round(service.settings.keep_alive)),
        h11_max_incomplete_event_size=MOST_HEADERS,
        # Fewer than may be open: who has just come is not closed for those who come with it.
        backlog=max(1, min(BACKLOG, service.settings.connections // 2)),
    )


def listen(host: str, port: int, shared: bool = False) -> socket.socket:
    """Opens the port first.

    Args:
        host: The address.
        port: The port; 0 for a free one.
        shared: Whether others may listen there, who are shared as well: each connection goes to one of those that
            serve by then.

    Raises:
        UserError: It is taken, or is not this machine's to take.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off; otherwise every answer may wait for 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
        if not shared:
            bound.listen(BACKLOG)
        return bound
    except OSError as error:
        bound.close()
        raise UserError(f"cannot listen at {host}, port {port}: {error.strerror or error}; give another") from error


class _Server(uvicorn.Server):
    """Passes the termination signal to the service: from then on writers start no new session."""

    def __init__(self, config: uvicorn.Config, service: Service, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._told = service, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called before the first request."""
        await super().startup(sockets)
        if self.started:
            self._told()

    def handle_early(self, sig: int, frame: Any) -> None:
        """Called when a signal comes while uvicorn does not handle it: it ends as soon as it has started."""
        if not self.started:
            self.handle_exit(sig, frame)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Called in the main thread when a signal comes."""
        self._service.begin_stop()
        super().handle_exit(sig, frame)


def _end(service: Service, store: Store, started: bool) -> None:
    """Ends the process even if threads still wait for a language model: Python would wait for them for minutes."""
    if service.busy or any(thread.is_alive() for thread in service.worker.threads):
        log.warning("work is left behind, stored and queued", extra={"requests": service.busy})
        sys.stderr.flush()
        os._exit(0 if started else 1)
    store.close()
    if not started:
        raise UserError("the service did not start; the log says why")
