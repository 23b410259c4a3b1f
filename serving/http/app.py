"""The application: routes, error forms and middleware around one `Service`, and uvicorn, which runs it.

On SIGTERM or SIGINT no further connection is taken, and no writer begins another session. What is answered and written
gets `grace` seconds. What has not ended by then is stored and queued, and the next worker does it again.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import anyio.to_thread
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from ... import __version__
from ...errors import MempilerError, UserError
from . import chat, health, metrics, routes
from .auth import LOOPBACK, AuthMiddleware
from .schemas import ERRORS
from .connection import bounded_protocol
from .errors import CAUGHT, failure, log, refusal_of, response_of
from .json_check import JsonCheck
from .request_log import RequestLog
from .service import Service
from ..settings import Settings

BACKLOG = 512
"""Connections that wait for a process to take them."""
PING = 30
"""Seconds for a process of several to say that it is alive."""


def make_app(service: Service) -> FastAPI:
    """Makes the ASGI application of a service; its worker runs while the application does."""
    app = FastAPI(
        title="Mempiler",
        version=__version__,
        description="Long-term memory for chats, per user.",
        lifespan=_lifespan,
        redoc_url=None,
        responses=ERRORS,
        # A redirect would turn an address that is slightly wrong into another one that deletes more.
        redirect_slashes=False,
    )
    app.state.service, app.state.probe = service, health.Probe(service.store)
    app.state.metrics = metrics.Metrics(service.store)
    for router in (health.router, metrics.router, routes.router, routes.entries, chat.router):
        app.include_router(router)
    if service.settings.mcp:
        app.state.tools, route = routes.tools_route(service)
        app.router.routes.append(route)
    for kind in (RequestValidationError, *CAUGHT):
        app.add_exception_handler(kind, _refused)
    # The last one added is the first to see a request.
    limits = service.settings
    json_check = JsonCheck(limits.max_values)
    app.add_middleware(
        AuthMiddleware,
        service.tokens,
        limits.max_body,
        limits.timeout,
        service.request_pool.place,
        json_check,
        service.tenant_limiter,
    )
    app.add_middleware(RequestLog, metrics=app.state.metrics)
    if service.spans is not None:
        from .tracing import instrument  # an extra

        instrument(app, service.lm, service.spans)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    _stop_writers_on_signals(service)
    service.worker.start()
    log.info("serving", extra={"program": service.name, "tokens": service.tokens is not None})
    tools = getattr(app.state, "tools", None)
    counting = asyncio.create_task(app.state.metrics.publish(service))
    try:
        async with tools.session_manager.run() if tools else nullcontext():
            yield
    finally:
        counting.cancel()
        begun, left = time.monotonic(), service.begin_stop()
        ended = await anyio.to_thread.run_sync(service.worker.stop, left)
        if service.spans is not None:
            await anyio.to_thread.run_sync(service.spans.shutdown)
        log.info("stopped", extra={"finished": ended, "seconds": round(time.monotonic() - begun, 1)})


def _stop_writers_on_signals(service: Service) -> None:
    """Tells the service at once of a signal, of which uvicorn tells the application when all requests have ended."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        before: Any = signal.getsignal(number)

        def stop(number: int, frame: Any, before: Any = before) -> None:
            service.begin_stop()
            before(number, frame)

        signal.signal(number, stop)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    refusal = refusal_of(error)
    if refusal.status_code >= 500 and refusal is not error:
        log.error("a request failed", extra={**failure(error), "request": request.scope["state"].get("request")})
    return response_of(refusal)


def listen(host: str, port: int, tokens: bool) -> socket.socket:
    """Opens the port.

    Raises:
        UserError: It is taken, or is not this machine's to take; or others would be served without tokens.
    """
    if not tokens and host not in LOOPBACK:
        raise UserError(f"--host {host} serves other machines; give --token-file, or serve 127.0.0.1")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off; otherwise every answer may wait for 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise UserError(f"cannot listen at {host}, port {port}: {error.strerror or error}; give another") from error
    return bound


def _say_where(bound: socket.socket, workers: int = 1) -> None:
    host, port = bound.getsockname()[:2]
    log.info("listening", extra={"host": host, "port": port, "workers": workers})


def uvicorn_config(app: Any, settings: Settings, **more: Any) -> uvicorn.Config:
    """How uvicorn serves an application, or what makes one with `factory`."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=max(1, round(settings.grace)),
        http=bounded_protocol(settings.max_body),
        ws="none",
        # uvicorn counts whole seconds.
        timeout_keep_alive=max(1, round(settings.keep_alive)),
        backlog=BACKLOG,
        **more,
    )


def serve(service: Service, bound: socket.socket) -> None:
    """Serves in this process, on a port of `listen`, until a signal comes."""
    server = uvicorn.Server(uvicorn_config(make_app(service), service.settings))
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn handles both while it serves, and raises them again afterwards; the end is in order by then.
        signal.signal(number, server.handle_exit)
    _say_where(bound)
    _freeze()
    server.run([bound])
    service.store.close()
    if not server.started:
        raise UserError("the service did not start; the log says why")
    # Python would wait for minutes for threads that still wait for a language model.
    sys.stderr.flush()
    os._exit(0)


def serve_with_workers(make: Callable[[], Service], settings: Settings, bound: socket.socket, workers: int) -> None:
    """Serves with several processes of uvicorn's until a signal comes; one that dies is replaced.

    Args:
        make: Makes the service in each process, where it is found by its name.
        settings: Of the service.
        bound: All take connections from it.
        workers: How many processes.

    Raises:
        UserError: A process could not start.
    """
    more = {"factory": True, "workers": workers, "timeout_worker_healthcheck": PING}
    supervisor = Multiprocess(uvicorn_config(partial(_app_of_process, make), settings, **more), [bound])
    _say_where(bound, workers)
    supervisor.run()
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise UserError("the service did not start; the line before this one says why")


def _app_of_process(make: Callable[[], Service]) -> FastAPI:
    """The application of one of several processes, which says itself why it could not start."""
    # Ctrl-C goes to the whole group of a terminal; the process that started this one says when to end.
    os.setpgrp()
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    try:
        app = make_app(make())
    except MempilerError as error:
        print(f"mempiler: {error}", file=sys.stderr, flush=True)
        sys.exit(STARTUP_FAILURE)
    _freeze()
    return app


def _end_with(owner: Any) -> None:
    owner.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _freeze() -> None:
    """What is loaded stays; each full collection would look through it, and hold up all that is asked for .1 s."""
    gc.collect()
    gc.freeze()
    # Nor often through the memories of users, which come later.
    gc.set_threshold(50_000, 20, 50)
