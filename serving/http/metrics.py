"""Prometheus metrics of a service.

The processes of one service (`serve --workers`) share a folder of files, which the variable
PROMETHEUS_MULTIPROC_DIR names. Any process reports the sums over all, and what a process counted
stays when it dies. The values of labels are routes, statuses and kinds: no tenant, user or text.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from ...engines.usage import UsageReport
from ...errors import StoreError
from ...memory.store.states import State
from ...memory.store.store import Store
from .auth import METRICS
from .schemas import ERRORS
from .service import Service
from .store_call import StoreCall

router = APIRouter(tags=["state"], responses=ERRORS)

UPDATE_INTERVAL = 2.0
"""Seconds after which a process writes again what other processes report of it."""
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the shared folder; prometheus-client reads it when it is imported."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds, the upper bounds of the histogram of latencies."""


class Metrics:
    """The counters of one process.

    Args:
        store: The store whose users and sessions are reported, too.
    """

    def __init__(self, store: Store) -> None:
        self._store_counts = StoreCall(lambda: store.users.counts())
        self._reported_usage = UsageReport()
        """What of the model's usage is in the counters."""
        self._reported_refusals = Counts[str]()
        """What of the refusals by limits of tenants is in the counters."""

        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "mempiler_requests",
            "Requests by route, method and status.",
            ("route", "method", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "mempiler_request_seconds",
            "Time from the first byte of a request to the end of its answer.",
            ("route",),
            buckets=BUCKETS,
            registry=registry,
        )
        self._in_progress = Gauge(
            "mempiler_requests_in_progress",
            "Requests that are worked on or wait, by pool.",
            ("pool",),
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._refusals = Counter(
            "mempiler_tenant_refusals",
            "Requests, and calls of the language model (usd), above a limit of their tenant.",
            ("limit",),
            registry=registry,
        )
        self._calls = Counter(
            "mempiler_lm_calls",
            "Calls of the language model, by how they ended.",
            ("outcome",),
            registry=registry,
        )
        self._tokens = Counter(
            "mempiler_lm_tokens",
            "Tokens of the language model, by direction.",
            ("direction",),
            registry=registry,
        )
        self._cost = Counter(
            "mempiler_lm_cost_dollars",
            "US dollars of calls whose price is known.",
            registry=registry,
        )
        self._answers = Counter(
            "mempiler_lm_answers",
            "Answers of the language model, by how they could be read.",
            ("outcome",),
            registry=registry,
        )

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended.

        Args:
            method: Its method, one of a few.
            route: Its route as it is declared, without the names in its path.
            status: The status of its answer.
            seconds: How long it took.
        """
        self._requests.labels(route, method, status).inc()
        self._seconds.labels(route).observe(seconds)

    def update(self, service: Service) -> None:
        """Add what the pools, the model and the limits have counted since the last call."""
        pools = {
            "asking": service.model_pool,
            "storing": service.store_pool,
            "requests": service.request_pool,
        }
        for name, pool in pools.items():
            self._in_progress.labels(name).set(pool.held.total())

        refusals = service.tenant_limiter.refusals.copy()
        for limit, count in (refusals - self._reported_refusals).items():
            self._refusals.labels(limit).inc(count)
        self._reported_refusals = refusals

        if service.lm is not None:
            usage = service.lm.meter.read()
            self._add_usage(usage - self._reported_usage)
            self._reported_usage = usage

    def _add_usage(self, usage: UsageReport) -> None:
        """Add what the language model has used."""
        self._calls.labels("answered").inc(usage.calls.total())
        self._calls.labels("cached").inc(usage.cached)
        self._calls.labels("failed").inc(usage.failed)
        self._tokens.labels("input").inc(usage.input_tokens)
        self._tokens.labels("output").inc(usage.output_tokens)
        self._cost.inc(usage.cost)
        for (_, outcome), count in usage.answers.items():
            self._answers.labels(outcome).inc(count)

    async def publish(self, service: Service) -> None:
        """Update the counters again and again, for the other processes of the service."""
        while True:
            self.update(service)
            await asyncio.sleep(UPDATE_INTERVAL)

    async def report(self) -> bytes:
        """Return all values in Prometheus' text format, with those of the other processes."""
        try:
            store_counts = await self._store_counts.result()
        except (TimeoutError, StoreError):
            # That the store does not answer is reported itself, as `mempiler_store_up 0`.
            store_counts = None

        # With a shared folder prometheus-client writes the values of every process, this one
        # included, into files. Without one they are in the registry of this process alone.
        folder = os.environ.get(SHARED_FOLDER)
        if folder:
            _delete_gauges_of_dead_processes(Path(folder))
            shared_files = _files_with_values(Path(folder))
            values_of_process = b""
        else:
            shared_files = []
            values_of_process = generate_latest(self._registry)

        shared = CollectorRegistry()
        shared.register(_SharedValues(shared_files, store_counts))
        return values_of_process + generate_latest(shared)


def _delete_gauges_of_dead_processes(folder: Path) -> None:
    """Delete the files with gauges of processes that are gone.

    Counters of such a process still count, but its gauges would show requests in progress for ever.
    """
    for path in folder.glob("gauge_live*.db"):
        process = int(path.stem.rpartition("_")[2])
        try:
            os.kill(process, 0)  # signal 0 does nothing if the process is there
        except (ProcessLookupError, PermissionError):
            # PermissionError: another user's process has the number by now.
            # The file may be missing, since all processes of the service delete such files.
            path.unlink(missing_ok=True)


def _files_with_values(folder: Path) -> list[str]:
    """Return the files of the processes, without those that are empty, as each is at first."""
    files: list[str] = []
    for path in folder.glob("*.db"):
        # Another process may have deleted it since the folder was listed.
        with suppress(FileNotFoundError):
            if path.stat().st_size > 0:
                files.append(str(path))
    return files


class _SharedValues(Collector):
    """What the processes of a service have counted, and what the store holds.

    Args:
        files: The files into which prometheus-client writes the values of processes; none where the
            processes share no folder.
        store_counts: Users, and items by state; None if the store does not answer.
    """

    def __init__(self, files: Sequence[str], store_counts: dict[str, int] | None) -> None:
        self._files = files
        self._store_counts = store_counts

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that the processes have counted, summed up, and those of the store."""
        yield from MultiProcessCollector.merge(self._files)

        # For a `Gauge` object, prometheus-client would write the value into the files of this
        # process, and the sum over the processes would contain it. A `GaugeMetricFamily` is only
        # passed on.
        is_up = self._store_counts is not None
        yield GaugeMetricFamily("mempiler_store_up", "Whether the store answered.", is_up)
        if self._store_counts is None:
            return

        yield GaugeMetricFamily(
            "mempiler_users", "Users of the store.", self._store_counts["users"]
        )

        sessions = GaugeMetricFamily(
            "mempiler_sessions", "Sessions of the store, by state.", labels=["state"]
        )
        for state in get_args(State):
            sessions.add_metric([state], self._store_counts[state])
        yield sessions


@router.get(METRICS, include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Answer with what the service counted, for Prometheus."""
    service_metrics: Metrics = request.app.state.metrics
    service_metrics.update(request.app.state.service)
    return Response(await service_metrics.report(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
