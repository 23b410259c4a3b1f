"""The routes that tell of the service itself: whether it runs, what it counts, what its routes are."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from ..errors import StoreError
from .auth import METRICS
from .bodies import Health, Readiness
from .metrics import Values, sample
from .refusals import Refusal
from .service import Service

router = APIRouter(tags=["state"])

LOOK = 2.0
"""Seconds for the store to say how much it holds; without it the rest is told."""


@router.get("/health", summary="Whether the process runs")
async def health(request: Request) -> Health:
    """Answers as long as the process runs."""
    service = _service(request)
    return service.health(await service.probe.look())


@router.get("/ready", summary="Whether requests are served", responses={503: {"model": Readiness}})
async def ready(request: Request) -> Any:
    """200 while each part works, the model apart; 503 otherwise and while the service stops."""
    service = _service(request)
    parts = service.ready(await service.probe.look())
    fine = all(works for part, works in parts.items() if part != "model")
    return JSONResponse(Readiness(ready=fine, parts=parts).model_dump(), 200 if fine else 503)


@router.get(METRICS, include_in_schema=False)
async def metrics(request: Request) -> Any:
    """What the service counted, for Prometheus."""
    service = _service(request)
    text = service.metrics.text(service.counted(), service.gauges(), await _held(service))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _service(request: Request) -> Service:
    return request.app.state.service


async def _held(service: Service) -> Values:
    """How much the store holds; that it does not answer, where it does not."""
    try:
        async with asyncio.timeout(LOOK):
            found = await service.storing.run(lambda _: service.store.measures(), "")
    except (TimeoutError, Refusal, StoreError):
        return {sample("mempiler_store_up"): 0}
    states = {sample("mempiler_sessions", state=state): count for state, count in found.sessions.items()}
    about = {sample("mempiler_users"): found.users, sample("mempiler_store_bytes"): found.bytes}
    return {sample("mempiler_store_up"): 1, **about, **states}
