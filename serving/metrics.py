"""What a service counts, in the text that Prometheus reads: requests, latencies, queues, calls of the model.

    requests ── counted ──┐
    pools, meter ── read ─┴─ snapshot of this process ──┐
                             snapshots of the others ───┴─ added up ──> text

The processes of one service (`serve --workers`) share a folder, into which each writes its snapshot every two seconds
and before it answers for all: whichever is asked tells the sums, and what a process counted stays when it dies. Values
of labels are routes, statuses and kinds; no tenant, user or text is one.

Example:
    >>> from mempiler.serving.metrics import Metrics
    >>> metrics = Metrics()
    >>> metrics.request("/v1/users", "GET", 200, 0.003)
    >>> metrics.text().splitlines()[2]
    'mempiler_requests_total{method="GET",route="/v1/users",status="200"} 1'
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import uuid
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

SHARED_EVERY = 2.0
"""Seconds between two snapshots of a process that shares a folder."""
FRESH = 10.0
"""Seconds after which the gauges of a snapshot count no more: its process has ended."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds, the upper bounds of the histogram of latencies."""
FAMILIES = {
    "mempiler_requests_total": ("counter", "Requests by route, method and status."),
    "mempiler_request_seconds": ("histogram", "Time from the first byte of a request to the end of its answer."),
    "mempiler_requests_in_progress": ("gauge", "Requests that are worked on or wait, by pool of threads."),
    "mempiler_lm_calls_total": ("counter", "Calls of the language model, by how they ended."),
    "mempiler_lm_tokens_total": ("counter", "Tokens of the language model, by direction."),
    "mempiler_lm_cost_dollars_total": ("counter", "US dollars of calls whose price is known."),
    "mempiler_lm_answers_total": ("counter", "Answers of the language model, by how they could be read."),
    "mempiler_users": ("gauge", "Users of the store."),
    "mempiler_sessions": ("gauge", "Sessions of the store, by state."),
    "mempiler_store_bytes": ("gauge", "Size of the store."),
    "mempiler_store_up": ("gauge", "Whether the store answered this request."),
}
"""Kind and meaning of every family, in the order of the text."""
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})

Sample = tuple[str, tuple[tuple[str, str], ...]]
"""The name and the labels of a value."""
Values = Mapping[Sample, float]


def sample(name: str, **labels: str) -> Sample:
    """Names one value."""
    return name, tuple(sorted(labels.items()))


class Metrics:
    """The counters of one process, and what the others of its service shared.

    Args:
        folder: Shared by the processes of one service; None for one that is alone.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = None if folder is None else folder / f"{os.getpid()}-{uuid.uuid4().hex}.json"
        self._lock = threading.Lock()
        self._answered: Counter[tuple[str, str, int]] = Counter()
        self._latencies: dict[str, _Latencies] = defaultdict(_Latencies)

    @property
    def shared(self) -> bool:
        """Whether other processes are asked for what this one counts."""
        return self._file is not None

    def request(self, route: str | None, method: str, status: int, seconds: float) -> None:
        """Counts a request that was answered."""
        route, method = route or "none", method if method in METHODS else "other"
        with self._lock:
            self._answered[route, method, status] += 1
            self._latencies[route].add(seconds)

    def share(self, counters: Values | None = None, gauges: Values | None = None) -> None:
        """Writes the snapshot of this process for the others.

        Args:
            counters: What is counted elsewhere in this process.
            gauges: What is true of it now.
        """
        if self._file is None:
            return
        part = self._file.with_suffix(".part")
        # A full disk must cost no request.
        with suppress(OSError):
            part.write_text(json.dumps([list(self._own(counters).items()), list((gauges or {}).items())]))
            part.replace(self._file)

    def text(self, counters: Values | None = None, gauges: Values | None = None, whole: Values | None = None) -> str:
        """All values, those of the other processes added.

        Args:
            counters: What is counted elsewhere in this process.
            gauges: What is true of it now.
            whole: What is true of all processes together, e.g. of their store.
        """
        self.share(counters, gauges)
        sums: dict[Sample, float] = defaultdict(float)
        for values in (self._own(counters), gauges or {}, *self._others(), whole or {}):
            for key, value in values.items():
                sums[key] += value
        return "".join(f"{line}\n" for line in _lines(sums))

    def _own(self, counters: Values | None) -> Values:
        found: dict[Sample, float] = dict(counters or {})
        with self._lock:
            for (route, method, status), count in self._answered.items():
                found[sample("mempiler_requests_total", route=route, method=method, status=str(status))] = count
            for route, latencies in self._latencies.items():
                found.update(latencies.values(route))
        return found

    def _others(self) -> Iterator[Values]:
        if self._file is None:
            return
        for path in self._file.parent.glob("*.json"):
            if path != self._file:
                counters, gauges = json.loads(path.read_text())
                yield _values(counters)
                if time.time() - path.stat().st_mtime < FRESH:
                    yield _values(gauges)


class _Latencies:
    """How long the requests of a route took."""

    def __init__(self) -> None:
        # By the smallest bound that each kept, and those beyond all.
        self._within, self._sum = [0] * (len(BUCKETS) + 1), 0.0

    def add(self, seconds: float) -> None:
        self._within[bisect_left(BUCKETS, seconds)] += 1
        self._sum += seconds

    def values(self, route: str) -> Iterator[tuple[Sample, float]]:
        name, counts = "mempiler_request_seconds", list(accumulate(self._within))
        for bound, count in zip((*(f"{most:g}" for most in BUCKETS), "+Inf"), counts, strict=True):
            yield sample(f"{name}_bucket", route=route, le=bound), count
        yield sample(f"{name}_count", route=route), counts[-1]
        yield sample(f"{name}_sum", route=route), self._sum


def _values(rows: Iterable[tuple[tuple[str, list[tuple[str, str]]], float]]) -> Values:
    return {(name, tuple((label, value) for label, value in labels)): number for (name, labels), number in rows}


def _lines(values: Values) -> Iterator[str]:
    for family, (kind, about) in FAMILIES.items():
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found = [(key, value) for key, value in values.items() if key[0] in {family + end for end in ends}]
        if found:
            yield f"# HELP {family} {about}"
            yield f"# TYPE {family} {kind}"
        for (name, labels), value in sorted(found, key=_order):
            shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
            yield f"{name}{{{shown}}} {value:.12g}" if shown else f"{name} {value:.12g}"


def _order(found: tuple[Sample, float]) -> tuple[object, ...]:
    """Buckets of a histogram stand together, in the order of their bounds."""
    (name, labels), _ = found
    bound = dict(labels).get("le", "")
    rest = tuple(label for label in labels if label[0] != "le")
    return rest, name, math.inf if bound in ("", "+Inf") else float(bound)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
