"""uvicorn, which serves the application in one process or in several.

On SIGTERM or SIGINT no further connection is accepted, and no writer begins another session. What
is being answered or written has `grace` seconds to finish. What has not finished by then is stored
and queued, and the next worker does it again.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from ...errors import MempilerError, UserError
from ..failure_log import log
from ..settings import Settings
from .app import STOP_SIGNALS, make_app
from .auth import LOOPBACK
from .connection import bounded_protocol
from .service import Service

MAX_WAITING_CONNECTIONS = 512
"""Connections that wait for a process to accept them."""
ALIVE_SECONDS = 30
"""Seconds within which each of several processes must answer that it is alive."""


def listen(host: str, port: int, has_tokens: bool) -> socket.socket:
    """Open the port and return its socket.

    Args:
        host: The address to listen at.
        port: 0 lets the system choose one.
        has_tokens: Whether requests need a token.

    Raises:
        UserError: The port is taken, or is not this machine's to take; or other machines would be
            served without tokens.
    """
    if not has_tokens and host not in LOOPBACK:
        raise UserError(
            f"--host {host} serves other machines; give --token-file, or serve 127.0.0.1"
        )

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only if the protocol is named. Otherwise every answer may
    # wait for 40 ms.
    listening_socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening_socket.bind((host, port))
        listening_socket.listen(MAX_WAITING_CONNECTIONS)
    except OSError as error:
        listening_socket.close()
        raise UserError(
            f"cannot listen at {host}, port {port}: {error.strerror or error}; give another"
        ) from error
    return listening_socket


def serve(service: Service, listening_socket: socket.socket) -> None:
    """Serve in this process, until a signal comes; then end the process.

    Args:
        service: The service. Its store is closed in the end.
        listening_socket: From `listen`.

    Raises:
        UserError: The service did not start.
    """
    server = uvicorn.Server(uvicorn_config(make_app(service), service.settings))
    for signal_number in STOP_SIGNALS:
        # uvicorn handles signals while it serves, and raises them again afterwards. By then the
        # service has ended in order, so they must not end the process in another way.
        signal.signal(signal_number, server.handle_exit)

    _log_address(listening_socket, workers=1)
    _keep_loaded_objects()
    server.run([listening_socket])

    service.store.close()
    if not server.started:
        raise UserError("the service did not start; the log says why")

    # At an ordinary exit Python would wait, maybe for minutes, for threads that still wait for a
    # language model.
    sys.stderr.flush()
    os._exit(0)


def serve_with_workers(
    make_service: Callable[[], Service],
    settings: Settings,
    listening_socket: socket.socket,
    workers: int,
) -> None:
    """Serve with several processes until a signal comes; one that dies is replaced.

    Args:
        make_service: Makes the service of each process. It is pickled, so a function must be
            importable by its name.
        settings: Those of the service.
        listening_socket: From `listen`; all processes accept connections from it.
        workers: How many processes.

    Raises:
        UserError: A process could not start.
    """
    config = uvicorn_config(
        partial(_make_app_of_worker, make_service),
        settings,
        factory=True,
        workers=workers,
        timeout_worker_healthcheck=ALIVE_SECONDS,
    )
    supervisor = Multiprocess(config, [listening_socket])
    _log_address(listening_socket, workers)
    supervisor.run()

    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise UserError("the service did not start; the line before this one says why")


def uvicorn_config(
    app: FastAPI | Callable[[], FastAPI], settings: Settings, **options: Any
) -> uvicorn.Config:
    """Return how uvicorn serves an application.

    Args:
        app: The application; with the option `factory`, what makes it.
        settings: Those of the service.
        **options: Further options of `uvicorn.Config`.
    """
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        http=bounded_protocol(settings.max_body),
        ws="none",
        backlog=MAX_WAITING_CONNECTIONS,
        # uvicorn counts whole seconds.
        timeout_keep_alive=max(1, round(settings.keep_alive)),
        timeout_graceful_shutdown=max(1, round(settings.grace)),
        **options,
    )


def _make_app_of_worker(make_service: Callable[[], Service]) -> FastAPI:
    """Make the application of one of several processes.

    A process that cannot start says why, and ends with `STARTUP_FAILURE`.
    """
    # Ctrl-C goes to all processes of the terminal's group. This one leaves the group, because the
    # process that started it says when to end.
    os.setpgrp()
    supervisor = multiprocessing.parent_process()
    threading.Thread(target=_end_with_supervisor, args=(supervisor,), daemon=True).start()

    try:
        app = make_app(make_service())
    except MempilerError as error:
        print(f"mempiler: {error}", file=sys.stderr, flush=True)
        sys.exit(STARTUP_FAILURE)
    _keep_loaded_objects()
    return app


def _end_with_supervisor(supervisor: BaseProcess) -> None:
    """End this process in order as soon as the process that started it is gone."""
    supervisor.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _log_address(listening_socket: socket.socket, workers: int) -> None:
    host, port = listening_socket.getsockname()[:2]
    log.info("listening", extra={"host": host, "port": port, "workers": workers})


def _keep_loaded_objects() -> None:
    """Exempt all that is loaded by now from garbage collection.

    A full collection would look through all of it, and hold up every request for .1 s.
    """
    gc.collect()
    gc.freeze()
    # The memories of users come later. They are not to be looked through often, either.
    gc.set_threshold(50_000, 20, 50)
