"""The routes for whoever runs a service: whether it runs, whether it serves, what it counted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from ..errors import StoreError
from ..memory.store import Store
from ..memory.stored import Measures, Owner
from .auth import METRICS
from .bodies import Health, Readiness
from .logs import failure, log
from .refusals import Refusal
from .service import Service

router = APIRouter(tags=["state"])

WAIT = 2.0
"""Seconds to wait for the store."""
WRITES_EVERY = 10.0
"""Seconds between two looks whether the store can be written."""
METERED_EVERY = 2.0
"""Seconds between two looks at what a process is at, which the others of its service tell of."""


@dataclass
class Seen:
    """What a look at a store has come to so far."""

    store: bool = False
    """Whether it can be read."""
    disk: bool = False
    """Whether it can be written."""
    counts: dict[str, int] = field(default_factory=dict[str, int])


class Probe:
    """Looks whether a store can be read and written, without waiting for one that hangs.

    One look is under way at a time: whoever asks meanwhile shares it, and a database that does not answer holds one
    thread, not one per question. Whether the disk has room shows in a write only, so a row that means nothing is
    written, not more often than every ten seconds.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = CapacityLimiter(1)
        self._seen, self._look = Seen(), None
        self._written = -WRITES_EVERY

    async def look(self) -> Seen:
        """What the store is like; what is not known in time is taken for failed."""
        if self._look is None or self._look.done():
            self._seen = Seen()
            self._look = asyncio.ensure_future(anyio.to_thread.run_sync(self._run, self._seen, limiter=self._thread))
        await asyncio.wait({self._look}, timeout=WAIT)
        if not self._look.done():
            log.error("the store does not answer", extra={"cause": f"nothing for {WAIT:g} s"})
        return self._seen

    def _run(self, seen: Seen) -> None:
        seen.store = self._tried(lambda: self._read(seen), "the store cannot be read")
        if time.monotonic() - self._written < WRITES_EVERY:
            seen.disk = seen.store
        elif self._tried(self._store.check, "the store cannot be written"):
            self._written, seen.disk = time.monotonic(), True

    def _read(self, seen: Seen) -> None:
        self._store.read(Owner("ready", "ready"))
        seen.counts = self._store.states()

    def _tried(self, call: Callable[[], object], told: str) -> bool:
        try:
            call()
        except Exception as error:
            log.error(told, extra=failure(error))
            return False
        return True


@router.get("/health", summary="Whether the process runs")
async def health(request: Request) -> Health:
    """Answers as long as the process runs."""
    service, counts = _service(request), (await request.app.state.probe.look()).counts
    answers = Counter[str]()
    for (_, outcome), count in service.used.answers.items() if service.used else ():
        answers[outcome] += count
    return Health(partial=counts.get("partial"), failed=counts.get("failed"), answers=dict(answers))


@router.get("/ready", summary="Whether requests are served", responses={503: {"model": Readiness}})
async def ready(request: Request) -> Any:
    """200 while each part works, the model apart; 503 otherwise and while the service stops."""
    service, seen = _service(request), await request.app.state.probe.look()
    parts = {
        "store": seen.store,
        "disk": seen.disk,
        "worker": service.worker.alive,
        "room": not (service.asking.full or service.storing.full),
        "tokens": service.tokens is None or service.tokens.works,
        "serving": not service.stopping,
        "model": not service.model_down,
    }
    fine = all(works for part, works in parts.items() if part != "model")
    return JSONResponse(Readiness(ready=fine, parts=parts).model_dump(), 200 if fine else 503)


@router.get(METRICS, include_in_schema=False)
async def metrics(request: Request) -> Response:
    """What the service counted, for Prometheus."""
    service = _service(request)
    update_metrics(service)
    return Response(service.metrics.text(await _measures(service)), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def update_metrics(service: Service) -> None:
    """Counts what is known of the model and the pools."""
    service.metrics.update(service.used, {"asking": service.asking.busy, "storing": service.storing.busy})


async def keep_metrics(service: Service) -> None:
    """Does so now and then, for the other processes of the service."""
    while True:
        update_metrics(service)
        await asyncio.sleep(METERED_EVERY)


async def _measures(service: Service) -> Measures | None:
    """How much the store holds; None where it does not answer."""
    try:
        async with asyncio.timeout(WAIT):
            return await service.storing.run(lambda _: service.store.measures(), "")
    except (TimeoutError, Refusal, StoreError):
        return None


def _service(request: Request) -> Service:
    return request.app.state.service
