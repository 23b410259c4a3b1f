"""Events over HTTP: what became of sessions, as server-sent events of a tenant that resume where they broke off.

    id: 17
    event: session
    data: {"user": "ada", "session": "chat-17", "state": "remembered", "time": "2025-03-05T18:20:00Z"}

They are read from the store, whoever wrote them: any process of the service tells all of them, and a client that comes
back with `Last-Event-ID` misses none. A stream holds no thread while nothing happens.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from ..errors import StoreError
from ..memory.stored import Event, Events
from .access import GUARD, Served, Tenant, token_of
from .refusals import OVERLOADED, TENANT_OVERLOADED, Refusal
from .service import Service

router = APIRouter(prefix="/v1", tags=["memories"], dependencies=[GUARD])

MOST_STREAMS = 128
"""Streams of one process."""
MOST_OF_TENANT = 32
"""Streams of one tenant in one process."""
LONGEST = 3600.0
"""Most seconds of a stream; its client comes back then."""
LOOK = 1.0
"""Seconds between two looks at the store."""
ALIVE = 15.0
"""Seconds after which a stream without news says that it is alive."""
AT_ONCE = 500
_SCHEMA = {"type": "object", "properties": {name: {"type": "string"} for name in ("id", "event", "data")}}
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Number = Annotated[int | None, Header(ge=0, lt=2**31)]


@router.get(
    "/events",
    summary="Hear what becomes of sessions",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": _SCHEMA}}}},
)
async def hear(
    request: Request,
    service: Served,
    tenant: Tenant,
    last_event_id: Number = None,
    seconds: Annotated[float, Query(ge=0, le=LONGEST, description="How long the stream is open")] = LONGEST,
) -> StreamingResponse:
    """Sends an event for each session of the tenant that is remembered, in parts (partial), or given up (failed).

    With `Last-Event-ID` those come first that happened since; 0 begins with the oldest that is kept. An event `missed`
    says that some since then are not kept any more: ask for the sessions' states.
    """
    if service.listening.total() >= MOST_STREAMS:
        raise OVERLOADED()
    if service.listening[tenant] >= MOST_OF_TENANT:
        raise TENANT_OVERLOADED()

    def known() -> bool:
        return service.tenant_of(token_of(request.scope["headers"])) == tenant

    first = await _read(service, tenant, last_event_id)
    stream = _stream(service, tenant, first, known, time.monotonic() + seconds)
    return StreamingResponse(stream, media_type="text/event-stream", headers=_HEADERS)


async def _read(service: Service, tenant: str, after: int | None) -> Events:
    return await service.storing.run(lambda _: service.store.events(tenant, after, AT_ONCE), tenant)


async def _stream(
    service: Service, tenant: str, found: Events, known: Callable[[], bool], until: float
) -> AsyncIterator[str]:
    """The text of a stream.

    Args:
        service: Whose store is looked at.
        tenant: Whose events.
        found: The first of them.
        known: Whether the token still is one of the tenant.
        until: When it ends.
    """
    service.listening[tenant] += 1
    try:
        # So that who hears nothing before the connection breaks knows where to go on.
        yield f"id: {found.last if not found.events else found.events[0].number - 1}\n: hello\n\n"
        spoke = time.monotonic()
        while True:
            if found.missed:
                yield f"event: missed\ndata: {json.dumps({'kept': 'the newest only'})}\n\n"
            if found.events:
                yield "".join(map(_text, found.events))
            if found.events or found.missed:
                spoke = time.monotonic()
            elif time.monotonic() - spoke > ALIVE:
                yield ": alive\n\n"
                spoke = time.monotonic()
            if len(found.events) < AT_ONCE:
                if time.monotonic() >= until or service.stopping or not known():
                    return
                await asyncio.sleep(min(LOOK, max(0.0, until - time.monotonic())))
            found = await _further(service, tenant, found.last)
    except StoreError:
        return
    finally:
        service.listening[tenant] -= 1


async def _further(service: Service, tenant: str, after: int) -> Events:
    """What has happened since; nothing yet, while others hold all threads."""
    try:
        return await _read(service, tenant, after)
    except Refusal:
        return Events((), after, missed=False)


def _text(event: Event) -> str:
    at = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    told = {"user": event.user, "session": event.session, "state": event.state, "time": at}
    return f"id: {event.number}\nevent: session\ndata: {json.dumps(told)}\n\n"
