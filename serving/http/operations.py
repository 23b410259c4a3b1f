"""Request log, Prometheus metrics and health checks of a service.

The processes of one service (`serve --workers`) share a folder, PROMETHEUS_MULTIPROC_DIR: whichever is asked tells the
sums, and what a process counted stays when it dies. Values of labels are routes, statuses and kinds; no tenant, user or
text is one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException

from ...engines.usage import UsageReport
from ...errors import StoreError
from ...memory.store.owner import Owner
from ...memory.store.states import State
from ...memory.store.store import Store
from .auth import METRICS
from .errors import BUG, cause_of, failure, log, response_of
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
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class Probe:
    """Looks whether a store can be read and written; a database that does not answer holds one thread in all.

    Whether the disk has room shows in a write only, so a row that means nothing is written, every ten seconds at most.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._look: asyncio.Future[tuple[bool, bool]] | None = None
        self._written = -WRITES_EVERY
        self.failed: int | None = None
        """Sessions that are set aside since they could not be read or written; None before that was counted."""

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
        return read, _works(self._write, "the store cannot be written")

    def _write(self) -> None:
        self._store.check()
        self.failed = self._store.users.failed_count()
        self._written = time.monotonic()


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
        counter = partial(Counter, registry=own)
        self.requests = counter(
            "mempiler_requests", "Requests by route, method and status.", ("route", "method", "status")
        )
        about = "Time from the first byte of a request to the end of its answer."
        self.seconds = Histogram("mempiler_request_seconds", about, ("route",), buckets=BUCKETS, registry=own)
        about = "Requests that are worked on or wait, by pool of threads."
        self._working = Gauge(
            "mempiler_requests_in_progress", about, ("pool",), multiprocess_mode="livesum", registry=own
        )
        self._calls = counter("mempiler_lm_calls", "Calls of the language model, by how they ended.", ("outcome",))
        self._tokens = counter("mempiler_lm_tokens", "Tokens of the language model, by direction.", ("direction",))
        self._cost = counter("mempiler_lm_cost_dollars", "US dollars of calls whose price is known.")
        about = "Answers of the language model, by how they could be read."
        self._answers = counter("mempiler_lm_answers", about, ("outcome",))
        self._used = UsageReport()

    def update(self, service: Service) -> None:
        """Counts what is known of the pools and of the model since this was last called."""
        pools = {"asking": service.model_pool, "storing": service.store_pool, "requests": service.request_pool}
        for name, pool in pools.items():
            self._working.labels(name).set(pool.held.total())
        meter = getattr(service.lm, "meter", None)
        used = meter.read() if meter else self._used
        new, self._used = used - self._used, used
        for outcome, count in (("answered", new.calls.total()), ("cached", new.cached), ("failed", new.failed)):
            self._calls.labels(outcome).inc(count)
        self._tokens.labels("input").inc(new.input_tokens)
        self._tokens.labels("output").inc(new.output_tokens)
        self._cost.inc(new.cost)
        for (_, outcome), count in new.answers.items():
            self._answers.labels(outcome).inc(count)

    async def publish(self, service: Service) -> None:
        """Does so now and then, for the other processes of the service."""
        while True:
            self.update(service)
            await asyncio.sleep(METERED_EVERY)

    def text(self, counts: dict[str, int] | None) -> bytes:
        """All values, those of the other processes added.

        Args:
            counts: What the store holds; None where it does not answer.
        """
        folder, told = os.environ.get(SHARED_FOLDER), CollectorRegistry()
        shared = [str(path) for path in Path(folder).glob("*.db") if _readable(path)] if folder else []
        # Values of their own would be written where other processes look.
        told.register(_Told(shared, counts))
        return (b"" if folder else generate_latest(self._own)) + generate_latest(told)


class RequestLog:
    """ASGI middleware: one line per request, an id in `X-Request-ID`, and 500 for unforeseen errors."""

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
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.requests.labels(route or "none", method, status).inc()
            self._metrics.seconds.labels(route or "none").observe(seconds)
            line = {"request": request, "method": method, "route": route, "status": status}
            line |= {"ms": round(seconds * 1000, 1), "tenant": scope["state"].get("tenant")}
            log.info("request", extra=line)


class JsonLines(logging.Formatter):
    """Formats records as JSON objects without user content.

    Of other libraries' lines only the place in the code is kept, and of exceptions the types and places: their texts
    may quote what was said.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        # A template without its arguments holds no user content; a formatted text may.
        event = str(record.msg) if record.args else "message left out"
        if record.name.startswith(("mempiler.serving", "uvicorn.error")):
            event = record.getMessage()
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower(), "event": event}
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.name != log.name:
            line |= {"logger": record.name, "where": f"{record.module}:{record.lineno}"}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            frames = [f"{one.filename}:{one.lineno} {one.name}" for one in traceback.extract_tb(error.__traceback__)]
            line["error"] = {"type": type(error).__name__, "cause": cause_of(error), "trace": frames[-8:]}
        return json.dumps(line, default=str)


def set_up(level: str = "info") -> None:
    """Sends every log line of this process through `JsonLines`; for the service's own process only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("mempiler", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())
    for name in list(logging.root.manager.loggerDict):
        # Handlers of their own would write past the formatter.
        found = logging.getLogger(name)
        found.handlers.clear()
        found.propagate = True
    # Its lines hold names and queries. uvicorn writes them wherever this logger reaches a handler, whatever it is told.
    logging.getLogger("uvicorn.access").propagate = False


def _readable(path: Path) -> bool:
    """Whether a file of a process can be read: it is empty at first. Gauges of a process that is gone are removed."""
    try:
        if path.stem.startswith("gauge_live"):
            os.kill(int(path.stem.rpartition("_")[2]), 0)
        return path.stat().st_size > 0
    except (ProcessLookupError, PermissionError, FileNotFoundError):  # Its number may be of another's process by now.
        path.unlink(missing_ok=True)
        return False


class _Told(Collector):
    """What the processes of a service counted, by their files, and what the store holds."""

    def __init__(self, shared: list[str], counts: dict[str, int] | None) -> None:
        self._shared, self._counts = shared, counts

    def collect(self) -> Iterator[Metric]:
        yield from MultiProcessCollector.merge(self._shared)
        yield GaugeMetricFamily("mempiler_store_up", "Whether the store answered.", self._counts is not None)
        if self._counts is not None:
            yield GaugeMetricFamily("mempiler_users", "Users of the store.", self._counts["users"])
            sessions = GaugeMetricFamily("mempiler_sessions", "Sessions of the store, by state.", labels=["state"])
            for state in get_args(State):
                sessions.add_metric([state], self._counts[state])
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
        "room": not any(pool.is_full for pool in (service.model_pool, service.store_pool, service.request_pool)),
        "tokens": service.tokens is None or service.tokens.works,
        "serving": not service.is_stopping,
        "model": all(breaker.is_responding for breaker in service.breakers),
    }
    fine = all(works for part, works in parts.items() if part != "model")
    return JSONResponse({"ready": fine, "parts": parts, "failed": request.app.state.probe.failed}, 200 if fine else 503)


@router.get(METRICS, include_in_schema=False)
async def metrics(request: Request) -> Response:
    """What the service counted, for Prometheus."""
    service: Service = request.app.state.service
    counted: Metrics = request.app.state.metrics
    counted.update(service)
    try:
        async with asyncio.timeout(WAIT):
            held = await service.store_pool.run_call(service.store.users.counts, "", request.receive)
    except (TimeoutError, HTTPException, StoreError):
        held = None
    return Response(counted.text(held), media_type=CONTENT_TYPE_PLAIN_0_0_4)
