"""What a service counts, for Prometheus: requests, latencies, pools, calls of the model, what the store holds.

The processes of one service (`serve --workers`) share a folder, PROMETHEUS_MULTIPROC_DIR: whichever is asked tells the
sums, and what a process counted stays when it dies. Values of labels are routes, statuses and kinds; no tenant, user or
text is one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ..engines.meter import Usage
from ..memory.stored import Measures

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that prometheus-client looks at, when it is imported."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds, the upper bounds of the histogram of latencies."""
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


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

    def update(self, used: Usage | None, working: Mapping[str, int]) -> None:
        """Takes what is counted elsewhere in this process.

        Args:
            used: What the language model was asked since the start.
            working: Requests in progress by pool.
        """
        for pool, count in working.items():
            self._working.labels(pool).set(count)
        if used is None:
            return
        new, self._used = used - self._used, used
        for outcome, count in (("answered", new.calls.total()), ("cached", new.cached), ("failed", new.failed)):
            self._calls.labels(outcome).inc(count)
        self._tokens.labels("input").inc(new.input_tokens)
        self._tokens.labels("output").inc(new.output_tokens)
        self._cost.inc(new.cost)
        for (_, outcome), count in new.answers.items():
            self._answers.labels(outcome).inc(count)

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
