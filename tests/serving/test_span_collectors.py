"""A collector of spans that is gone, fails or never answers delays no request.

Spans are records of requests and of what was done for them. A service sends them to a server of its
operator, the collector, by OpenTelemetry.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store

from .conftest import TOKENS, service_over, serving

pytest.importorskip("opentelemetry.instrumentation.fastapi")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

SECRET_WORD = "the-secret-word"


class Collector(SpanExporter):
    """Keeps spans as JSON in place of sending them.

    Args:
        send: Called for each batch in place of sending it.
    """

    def __init__(self, send: Callable[[], SpanExportResult]) -> None:
        self.spans: list[str] = []
        self._send = send

    def export(self, spans: Any) -> SpanExportResult:
        self.spans.extend(span.to_json() for span in spans)
        return self._send()


@pytest.fixture
def end_of_test() -> Iterator[threading.Event]:
    """An event that is set when the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("behaviour", ["hangs", "refuses", "fails"])
def test_requests_are_answered_whatever_the_collector_does(
    store: Store, tmp_path: Path, end_of_test: threading.Event, behaviour: str
) -> None:
    """Spans are sent in the background. They hold no token, no tenant and nothing of a user."""

    def send() -> SpanExportResult:
        if behaviour == "hangs":
            end_of_test.wait(60)
            return SpanExportResult.SUCCESS
        if behaviour == "refuses":
            raise ConnectionRefusedError(f"the collector is gone: {SECRET_WORD}")
        return SpanExportResult.FAILURE

    collector = Collector(send)
    # The queue is so small that spans have to be thrown away while requests come.
    processor = BatchSpanProcessor(
        collector, max_queue_size=4, schedule_delay_millis=10, max_export_batch_size=2
    )
    provider = TracerProvider()
    provider.add_span_processor(processor)

    with serving(service_over(store, tmp_path, spans=provider)) as client:
        client.add(f"I moved to {SECRET_WORD}.", user=SECRET_WORD, id="s")

        started = time.monotonic()
        for _ in range(20):
            assert client.get(f"/v1/users/{SECRET_WORD}/sessions").status_code == 200
        # A single request that waited for the collector would take up to a minute.
        assert time.monotonic() - started < 10

        assert client.ask(f"Where is {SECRET_WORD}?", user=SECRET_WORD).status_code == 200
        end_of_test.set()

    with suppress(Exception):
        provider.force_flush(5_000)
    assert collector.spans, "no span came to the collector"
    all_spans = "".join(collector.spans)
    assert SECRET_WORD not in all_spans
    assert "I moved" not in all_spans
    assert "acme" not in all_spans
    for token in TOKENS.values():
        assert token not in all_spans
