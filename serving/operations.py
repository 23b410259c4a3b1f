"""For whoever runs a service: a line of the log for each request, counts for Prometheus, and whether it serves.

The processes of one service (`serve --workers`) share a folder, PROMETHEUS_MULTIPROC_DIR: whichever is asked tells the
sums, and what a process counted stays when it dies. Values of labels are routes, statuses and kinds; no tenant, user or
text is one.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from ..engines.meter import Usage
from ..errors import StoreError
from ..memory.store import Store
from ..memory.stored import Measures, Owner
from .auth import METRICS
from .logs import failure, log
from .refusals import BUG, Refusal, response_of
from .service import Service

router = APIRouter(tags=["state"])

WAIT = 2.0
"""Seconds to wait for the store."""
WRITES_EVERY = 10.0
"""Seconds between two looks whether the store can be written."""
METERED_EVERY = 2.0
"""Seconds between two looks at what a process is at, which the others of its service tell of."""
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that prometheus-client looks at, when it is imported."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds, the upper bounds of the histogram of latencies."""
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


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
        self._look: asyncio.Future[tuple[bool, bool]] | None = None
        self._written = -WRITES_EVERY

    async def look(self) -> tuple[bool, bool]:
        """Whether it can be read, and written; what is not known in time is taken for failed."""
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(anyio.to_thread.run_sync(self._run, limiter=CapacityLimiter(1)))
        await asyncio.wait({self._look}, timeout=WAIT)
        if self._look.done():
            return self._look.result()
        log.error("the store does not answer", extra={"cause": f"nothing for {WAIT:g} s"})
        return False, False

    def _run(self) -> tuple[bool, bool]:
        read = _works(lambda: self._store.read(Owner("ready", "ready")), "the store cannot be read")
        if time.monotonic() - self._written < WRITES_EVERY:
            return read, read
        written = _works(self._store.check, "the store cannot be written")
        if written:
            self._written = time.monotonic()
        return read, written


def _works(call: Callable[[], object], otherwise: str) -> bool:
    try:
        call()
    except Exception as error:
        log.error(otherwise, extra=failure(error))
        return False
    return True


class Metrics:
    """The counters of one process."""

    def __init__(self) -> None:
        self._own = own = CollectorRegistry()
        self._requests = Counter(
            "mempiler_requests", "Requests by route, method and status.", ("route", "method", "status"), registry=own
        )
        self._seconds = Histogram(
            "mempiler_request_seconds",
            "Time from the first byte of a request to the end of its answer.",
            ("route",),
            buckets=BUCKETS,
            registry=own,
        )
        self._working = Gauge(
            "mempiler_requests_in_progress",
            "Requests that are worked on or wait, by pool of threads.",
            ("pool",),
            multiprocess_mode="livesum",
            registry=own,
        )
        self._calls = Counter(
            "mempiler_lm_calls", "Calls of the language model, by how they ended.", ("outcome",), registry=own
        )
        self._tokens = Counter(
            "mempiler_lm_tokens", "Tokens of the language model, by direction.", ("direction",), registry=own
        )
        self._cost = Counter("mempiler_lm_cost_dollars", "US dollars of calls whose price is known.", registry=own)
        self._answers = Counter(
            "mempiler_lm_answers",
            "Answers of the language model, by how they could be read.",
            ("outcome",),
            registry=own,
        )
        self._used = Usage()

    def request(self, route: str | None, method: str, status: int, seconds: float) -> None:
        """Counts a request that was answered."""
        route = route or "none"
        self._requests.labels(route, method if method in METHODS else "other", status).inc()
        self._seconds.labels(route).observe(seconds)

    def update(self, service: Service) -> None:
        """Counts what is known of the pools and of the model since this was last called."""
        for pool in ("asking", "storing"):
            self._working.labels(pool).set(getattr(service, pool).busy)
        used = service.used or self._used
        new, self._used = used - self._used, used
        for outcome, count in (("answered", new.calls.total()), ("cached", new.cached), ("failed", new.failed)):
            self._calls.labels(outcome).inc(count)
        self._tokens.labels("input").inc(new.input_tokens)
        self._tokens.labels("output").inc(new.output_tokens)
        self._cost.inc(new.cost)
        for (_, outcome), count in new.answers.items():
            self._answers.labels(outcome).inc(count)

    async def keep(self, service: Service) -> None:
        """Does so now and then, for the other processes of the service."""
        while True:
            self.update(service)
            await asyncio.sleep(METERED_EVERY)

    def text(self, measures: Measures | None) -> bytes:
        """All values, those of the other processes added.

        Args:
            measures: What the store holds; None where it does not answer.
        """
        own, held = self._own, CollectorRegistry()
        if folder := os.environ.get(SHARED_FOLDER):
            _leave_out_the_dead(Path(folder))
            own = CollectorRegistry()
            multiprocess.MultiProcessCollector(own, folder)
        held.register(_Held(measures))
        return generate_latest(own) + generate_latest(held)


class RequestLog:
    """ASGI middleware: one line per request, an id in `X-Request-ID`, and 500 for unforeseen errors.

    Args:
        app: The application behind it.
        metrics: Where requests are counted.
    """

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves a request and logs it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, request, status = time.perf_counter(), uuid.uuid4().hex, 0
        scope.setdefault("state", {})["request"] = request

        async def sent(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request.encode())]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception:
            log.error("a request failed for an unforeseen reason", exc_info=True, extra={"request": request})
            if not status:
                await response_of(BUG())(scope, receive, sent)
        finally:
            seconds, route = time.perf_counter() - begun, getattr(scope.get("route"), "path", None)
            self._metrics.request(route, scope["method"], status, seconds)
            line = {"request": request, "method": scope["method"], "route": route, "status": status}
            line |= {"ms": round(seconds * 1000, 1), "tenant": scope["state"].get("tenant")}
            log.info("request", extra=line)


def _leave_out_the_dead(folder: Path) -> None:
    """Takes back what processes that were killed are at."""
    for path in folder.glob("gauge_live*.db"):
        pid = int(path.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError):  # of the latter another's process has the number by now
            multiprocess.mark_process_dead(pid, str(folder))


class _Held(Collector):
    def __init__(self, measures: Measures | None) -> None:
        self._measures = measures

    def collect(self) -> Iterator[Metric]:
        found = self._measures
        yield GaugeMetricFamily("mempiler_store_up", "Whether the store answered this request.", found is not None)
        if found is None:
            return
        yield GaugeMetricFamily("mempiler_users", "Users of the store.", found.users)
        yield GaugeMetricFamily("mempiler_store_bytes", "Size of the store.", found.bytes)
        sessions = GaugeMetricFamily("mempiler_sessions", "Sessions of the store, by state.", labels=["state"])
        for state, count in found.sessions.items():
            sessions.add_metric([state], count)
        yield sessions


@router.get("/health", summary="Whether the process runs")
async def health() -> dict[str, str]:
    """Answers as long as the process runs."""
    return {"status": "ok"}


@router.get(
    "/ready", summary="Whether requests are served", responses={503: {"description": "Some part does not work."}}
)
async def ready(request: Request) -> Any:
    """200 while each part works, the model apart; 503 otherwise and while the service stops."""
    service: Service = request.app.state.service
    read, written = await request.app.state.probe.look()
    parts = {
        "store": read,
        "disk": written,
        "worker": service.worker.alive,
        "room": not (service.asking.full or service.storing.full),
        "tokens": service.tokens is None or service.tokens.works,
        "serving": not service.stopping,
        "model": not service.model_down,
    }
    fine = all(works for part, works in parts.items() if part != "model")
    return JSONResponse({"ready": fine, "parts": parts}, 200 if fine else 503)


@router.get(METRICS, include_in_schema=False)
async def metrics(request: Request) -> Response:
    """What the service counted, for Prometheus."""
    service: Service = request.app.state.service
    counted: Metrics = request.app.state.metrics
    counted.update(service)
    try:
        async with asyncio.timeout(WAIT):
            held = await service.storing.run(lambda _: service.store.measures(), "")
    except (TimeoutError, Refusal, StoreError):
        held = None
    return Response(counted.text(held), media_type=CONTENT_TYPE_PLAIN_0_0_4)
