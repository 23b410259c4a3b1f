"""A collector of spans that is gone, fails or never answers delays no request.

Spans are records of requests and of what was done for them. A service sends them to a server of its
operator, the collector, by OpenTelemetry.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store

from .conftest import service_over, serving, within

pytest.importorskip("opentelemetry.instrumentation.fastapi")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult


class Collector(SpanExporter):
    """Keeps spans as JSON in place of sending them.

    Args:
        behaviour: What happens to each batch that is sent: "hangs", "refuses" or "fails".
    """

    def __init__(self, behaviour: str) -> None:
        self.spans: list[str] = []
        self.may_go_on = threading.Event()
        """Ends the hanging."""
        self._behaviour = behaviour

    def export(self, spans: Any) -> SpanExportResult:
        self.spans.extend(span.to_json() for span in spans)
        if self._behaviour == "hangs":
            self.may_go_on.wait(60)
            return SpanExportResult.SUCCESS
        if self._behaviour == "refuses":
            raise ConnectionRefusedError("the collector is gone")
        return SpanExportResult.FAILURE


@pytest.fixture(params=["hangs", "refuses", "fails"])
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    """A collector that does not take the spans, in each of three ways."""
    bad_collector = Collector(request.param)
    yield bad_collector
    bad_collector.may_go_on.set()


@pytest.fixture
def provider(collector: Collector) -> TracerProvider:
    """Sends spans to the collector in the background, for a service.

    Its queue is so small that spans have to be thrown away while requests come.
    """
    processor = BatchSpanProcessor(
        collector, max_queue_size=4, schedule_delay_millis=10, max_export_batch_size=2
    )
    provider = TracerProvider()
    provider.add_span_processor(processor)
    return provider


def test_requests_are_answered_whatever_the_collector_does(
    store: Store, tmp_path: Path, provider: TracerProvider, collector: Collector
) -> None:
    """The collector, to which spans are sent, hangs, refuses the connection, or fails.

    A single request that waited for a collector that hangs would take up to a minute.
    """
    with serving(service_over(store, tmp_path, spans=provider)) as client:
        client.add("I moved to Lisbon.")
        started = time.monotonic()
        for _ in range(20):
            assert client.get("/v1/users/ada/sessions").status_code == 200
        assert client.ask("Where did Ada move?").status_code == 200
        seconds = time.monotonic() - started
        # Otherwise the collector would have had nothing to hang or to fail at.
        assert within(10, lambda: collector.spans != [])
        collector.may_go_on.set()

    assert seconds < 10
