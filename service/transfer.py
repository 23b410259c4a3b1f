"""The route for many sessions at once: JSON lines in, what became of them out."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect

from .access import GUARD, Served, Tenant
from .importing import EXAMPLE, Imported, Importing, Lines
from .refusals import GONE, SLOW_BODY, Refusal
from .service import Service

router = APIRouter(prefix="/v1", tags=["memories"], dependencies=[GUARD])

PAUSE = 0.5
"""Seconds between two attempts to get a place, while others hold all of them."""
_BODY = {
    "requestBody": {
        "required": True,
        "description": "A session a line.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}, "example": json.dumps(EXAMPLE)}},
    }
}


@router.post("/import", summary="Add sessions of many users", openapi_extra=_BODY)
async def import_sessions(request: Request, service: Served, tenant: Tenant) -> Imported:
    """Stores sessions of JSON lines as they come: objects of `user`, `id`, `messages` and perhaps `metadata`.

    Lines that cannot be stored are told by number and reason, and the others are stored. An import that was cut off is
    repeated as a whole: what was stored before is `known`.
    """
    limits = service.settings
    importing = await anyio.to_thread.run_sync(Importing, service.store, tenant, limits.max_body, limits.max_turns)
    lines, pieces = Lines(limits.max_body), request.stream()
    try:
        while True:
            async with asyncio.timeout(limits.timeout):
                piece = await anext(pieces, None)
            for number, line in lines.end() if piece is None else lines.feed(piece):
                importing.take(number, line)
                if importing.full:
                    await _stored(service, tenant, importing.store)
            if piece is None:
                await _stored(service, tenant, importing.store)
                return importing.found
    except TimeoutError:
        raise SLOW_BODY() from None
    except ClientDisconnect:
        raise GONE() from None


async def _stored(service: Service, tenant: str, store: Callable[[], None]) -> None:
    """Stores a batch; waits for a place where there is none."""
    until = time.monotonic() + service.settings.timeout
    while True:
        try:
            await service.storing.run(lambda _: store(), tenant)
        except Refusal as refusal:
            if refusal.status not in (429, 503) or time.monotonic() > until:
                raise
            await asyncio.sleep(PAUSE)
        else:
            service.worker.wake()
            return
