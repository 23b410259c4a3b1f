"""The application: routes, error forms and middleware around one `Service`.

log ──> tokens ──> body limit ──> routes ──> pools ──> UserMemory
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from .. import __version__
from . import chat, routes, state
from .auth import Access
from .bodies import ERRORS
from .limits import BodyLimit
from .logs import RequestLog, cause_of, log
from .metrics import SHARED_EVERY
from .refusals import CAUGHT, Refusal, malformed, refusal_of
from .service import Service


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
    app.state.service = service
    for router in (state.router, routes.router, routes.entries, chat.router):
        app.include_router(router)
    if service.settings.mcp:
        from . import agents  # an extra

        app.state.tools = agents.agent_tools(service)
        app.router.routes.extend(agents.routes(app.state.tools))
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _refused_by_framework)
    for kind in CAUGHT:
        app.add_exception_handler(kind, _refused)
    # The last one added is the first to see a request.
    app.add_middleware(BodyLimit, most=service.settings.max_body, seconds=service.settings.timeout)
    app.add_middleware(Access, service=service)
    app.add_middleware(RequestLog, metrics=service.metrics)
    if service.spans is not None:
        from .spans import TracedRequests  # an extra

        app.add_middleware(TracedRequests, spans=service.spans)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.worker.start()
    log.info("serving", extra={"program": service.name, "tokens": service.tokens is not None})
    tools = getattr(app.state, "tools", None)
    sharing = asyncio.create_task(_share(service))
    try:
        async with tools.session_manager.run() if tools else nullcontext():
            yield
    finally:
        sharing.cancel()
        begun, left = time.monotonic(), service.begin_stop()
        ended = await anyio.to_thread.run_sync(service.worker.stop, left)
        if service.spans is not None:
            await anyio.to_thread.run_sync(service.spans.close)
        about = {"finished": ended, "seconds": round(time.monotonic() - begun, 1), "requests": service.busy}
        log.info("stopped", extra=about)


async def _share(service: Service) -> None:
    """Tells the other processes of the service, now and then, what this one counted."""
    while service.metrics.shared:
        service.metrics.share(service.counted(), service.gauges())
        await asyncio.sleep(SHARED_EVERY)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    refusal = refusal_of(error)
    if refusal.status >= 500 and not isinstance(error, Refusal):
        about = {"kind": type(error).__name__, "cause": cause_of(error), "reason": str(error)}
        about["request"] = request.scope["state"].get("request")
        log.error("a request failed", extra=about)
    return _response(refusal)


async def _malformed(request: Request, error: Any) -> JSONResponse:
    return _response(malformed(error.errors()))


async def _refused_by_framework(request: Request, error: Any) -> JSONResponse:
    return _response(Refusal(error.status_code, str(error.detail), dict(error.headers or {})))


def _response(refusal: Refusal) -> JSONResponse:
    return JSONResponse(refusal.body, refusal.status, refusal.headers)
