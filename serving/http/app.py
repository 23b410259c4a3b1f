"""The ASGI application: routes, error responses and middleware around one `Service`."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from types import FrameType
from typing import cast

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ... import __version__
from ..failure_log import failure, log
from . import chat, entry_routes, health, metrics, user_routes
from .auth import AuthMiddleware
from .errors import CAUGHT, refusal_of, response_of
from .json_check import JsonCheck
from .request_log import RequestLog
from .service import Service

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that stop a service."""

CANCELLED_WORK_SECONDS = 2.0
"""Seconds for requests that were cut off at the end of `grace`, to count what their calls cost."""

_ROUTERS = (
    health.router,
    metrics.router,
    user_routes.router,
    entry_routes.router,
    chat.router,
)
"""The routes of all applications."""

SignalHandler = Callable[[int, FrameType | None], object]


def make_app(service: Service) -> FastAPI:
    """Make the ASGI application of a service; its worker runs while the application does."""
    app = FastAPI(
        title="Mempiler",
        version=__version__,
        description="Long-term memory for chats, per user.",
        lifespan=_lifespan,
        redoc_url=None,
        # A redirect would turn an address that is slightly wrong into another one that deletes
        # more.
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.probe = health.Probe(service.store)
    app.state.metrics = metrics.Metrics(service.store)
    app.state.mcp_server = None

    # `include_router` would analyse all functions again, at the first requests of each application.
    for router in _ROUTERS:
        app.router.routes.extend(router.routes)
    if service.settings.mcp:
        # Needs an extra.
        from .mcp_route import mcp_endpoint

        endpoint = mcp_endpoint(service)
        app.state.mcp_server = endpoint.server
        app.router.routes.append(endpoint.route)

    for error_type in (RequestValidationError, *CAUGHT):
        app.add_exception_handler(error_type, _respond_to_error)

    # The middleware that is added last sees a request first.
    app.add_middleware(
        AuthMiddleware,
        service.tokens,
        service.settings.max_body,
        service.settings.timeout,
        service.request_pool.place,
        JsonCheck(service.settings.max_values),
        service.tenant_limiter,
    )
    app.add_middleware(RequestLog, metrics=app.state.metrics)

    if service.spans is not None:
        # Needs an extra.
        from .tracing import instrument

        instrument(app, service.lm, service.spans)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the worker of a service while the application runs, and stop it in time."""
    service: Service = app.state.service
    _begin_stop_on_signals(service)
    service.worker.start()
    log.info("serving", extra={"program": service.name, "tokens": service.tokens is not None})

    mcp_server = app.state.mcp_server
    mcp_sessions = nullcontext() if mcp_server is None else mcp_server.session_manager.run()
    metrics_task = asyncio.create_task(app.state.metrics.publish(service))
    try:
        async with mcp_sessions:
            yield
    finally:
        metrics_task.cancel()
        await _stop(service)


async def _stop(service: Service) -> None:
    """Let the worker finish what it is writing, within the seconds that are left.

    Requests that uvicorn has cut off by now have a moment to end in order.
    """
    started = time.monotonic()
    grace = service.begin_stop()
    try:
        has_finished = await anyio.to_thread.run_sync(service.worker.stop, grace)
        # A process of several is ended by a signal as soon as this returns.
        await service.model_pool.wait_until_work_ends(CANCELLED_WORK_SECONDS)
    finally:
        # Before the spans are sent: a collector that hangs must not keep calls from being counted.
        await anyio.to_thread.run_sync(service.tenant_limiter.count_cut_off_calls)
        await anyio.to_thread.run_sync(service.tenant_limiter.count_earlier_calls)
    if service.spans is not None:
        await anyio.to_thread.run_sync(service.spans.shutdown)
    seconds = round(time.monotonic() - started, 1)
    log.info("stopped", extra={"finished": has_finished, "seconds": seconds})


def _begin_stop_on_signals(service: Service) -> None:
    """Let a signal stop the service at once.

    uvicorn tells the application of a signal only after all requests have ended.
    """
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread can handle signals; here somebody else runs the application.
        return

    for signal_number in STOP_SIGNALS:
        _begin_stop_on_signal(signal_number, service)


def _begin_stop_on_signal(signal_number: signal.Signals, service: Service) -> None:
    """Handle a signal by beginning the stop of a service, then as it was handled so far."""
    # uvicorn has set a function for each signal by now (`Server.handle_exit`).
    uvicorn_handler = cast(SignalHandler, signal.getsignal(signal_number))

    def handle(number: int, frame: FrameType | None) -> None:
        service.begin_stop()
        uvicorn_handler(number, frame)

    signal.signal(signal_number, handle)


async def _respond_to_error(request: Request, error: Exception) -> JSONResponse:
    """Answer a request whose route raised an error, and log a failure of this service."""
    refusal = refusal_of(error)
    is_our_fault = refusal.status_code >= 500
    # An HTTPException of status 500 or more is raised on purpose, e.g. when the service is full.
    # The log line of the request has its status.
    is_on_purpose = isinstance(error, HTTPException)
    if is_our_fault and not is_on_purpose:
        request_id = request.scope["state"].get("request")
        log.error("a request failed", extra={**failure(error), "request": request_id})
    return response_of(refusal)
