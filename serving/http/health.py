"""Health checks: whether the process runs (`/health`) and whether it serves requests (`/ready`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from ...memory.store.owner import Owner
from ...memory.store.store import Store
from ..failure_log import failure, log
from .schemas import ERRORS
from .service import Service
from .store_call import WAIT, StoreCall

router = APIRouter(tags=["state"], responses=ERRORS)

WRITE_INTERVAL = 10.0
"""Seconds between two tests whether the store can be written."""

_NOBODY = Owner("ready", "ready")
"""A user who need not exist; reading the user's memory shows whether the store can be read."""


class StoreState(NamedTuple):
    """Whether a store works."""

    is_readable: bool
    is_writable: bool


class Probe:
    """Finds out whether a store can be read and written.

    Whether the disk has room shows only when something is written. So a row without a meaning is
    written, every ten seconds at most.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state = StoreCall(self._find_state)
        self._written_at = -WRITE_INTERVAL
        """When the store was written last, by `time.monotonic`."""
        self.failed_items: int | None = None
        """Sessions that could not be read or written and are set aside; None if not counted yet."""

    async def state(self) -> StoreState:
        """Return whether the store works; if it does not answer in time, it does not."""
        try:
            return await self._state.result()
        except TimeoutError:
            log.error("the store does not answer", extra={"cause": f"nothing for {WAIT:g} s"})
            return StoreState(is_readable=False, is_writable=False)

    def _find_state(self) -> StoreState:
        is_readable = _succeeds(lambda: self._store.read(_NOBODY), "the store cannot be read")
        if time.monotonic() - self._written_at < WRITE_INTERVAL:
            return StoreState(is_readable, is_writable=is_readable)
        return StoreState(is_readable, _succeeds(self._write, "the store cannot be written"))

    def _write(self) -> None:
        self._store.check()
        self.failed_items = self._store.users.failed_count()
        self._written_at = time.monotonic()


def _succeeds(call: Callable[[], object], failure_message: str) -> bool:
    """Make a call; if it raises an error, log that and return False."""
    try:
        call()
    except Exception as error:
        log.error(failure_message, extra=failure(error))
        return False
    return True


@router.get("/health", summary="Whether the process runs")
async def health() -> dict[str, str]:
    """Answer as long as the process runs."""
    return {"status": "ok"}


@router.get(
    "/ready",
    summary="Whether requests are served",
    responses={503: {"description": "Some part does not work."}},
)
async def ready(request: Request) -> Any:
    """Answer 200 while each part works, and 503 if one does not; the model does not count."""
    service: Service = request.app.state.service
    probe: Probe = request.app.state.probe
    store = await probe.state()

    pools = (service.model_pool, service.store_pool, service.request_pool)
    parts = {
        "store": store.is_readable,
        "disk": store.is_writable,
        "worker": service.worker.alive,
        "room": not any(pool.is_full for pool in pools),
        "tokens": service.tokens is None or service.tokens.works,
        "serving": not service.is_stopping,
        "model": all(breaker.is_responding for breaker in service.breakers),
    }
    is_ready = all(works for part, works in parts.items() if part != "model")
    return JSONResponse(
        {"ready": is_ready, "parts": parts, "failed": probe.failed_items},
        status_code=200 if is_ready else 503,
    )
