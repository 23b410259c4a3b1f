"""A collector of spans that is gone, fails or never answers delays no request, and no span tells a secret."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from mempiler import Store

from .conftest import TOKENS, service_over, serving

pytest.importorskip("opentelemetry.instrumentation.fastapi")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

SECRET = "the-secret-word"


class Collector(SpanExporter):
    """An exporter that does what `answer` does with each batch, and keeps the spans as JSON."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.spans = list[str]()
        self._answer = answer

    def export(self, spans: Any) -> SpanExportResult:
        self.spans += [span.to_json() for span in spans]
        return self._answer() or SpanExportResult.SUCCESS


def refuse_connection() -> None:
    raise ConnectionRefusedError(f"the collector is gone: {SECRET}")


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set when the test is over: a collector that waits for it answers nothing before."""
    event = threading.Event()
    yield event
    event.set()


ANSWERS = ["hangs", "refuses", "fails"]


@pytest.mark.parametrize("kind", ANSWERS)
def test_requests_are_answered_whatever_the_collector_does(
    store: Store, tmp_path: Any, never: threading.Event, kind: str
) -> None:
    answers: dict[str, Callable[[], Any]] = {
        "hangs": lambda: never.wait(60) and None,
        "refuses": refuse_connection,
        "fails": lambda: SpanExportResult.FAILURE,
    }
    collector = Collector(answers[kind])
    # Small enough that the queue is full, and spans must be thrown away, while requests come.
    processor = BatchSpanProcessor(
        collector, max_queue_size=4, schedule_delay_millis=10, max_export_batch_size=2
    )
    provider = TracerProvider()
    provider.add_span_processor(processor)
    with serving(service_over(store, tmp_path, spans=provider)) as client:
        client.add(f"I moved to {SECRET}.", user=SECRET, id="s")
        began = time.monotonic()
        statuses = [client.get(f"/v1/users/{SECRET}/sessions").status_code for _ in range(20)]
        assert time.monotonic() - began < 10
        assert client.ask(f"Where is {SECRET}?", user=SECRET).status_code == 200
        assert statuses == [200] * 20
        never.set()
    with suppress(Exception):
        provider.force_flush(5_000)
    assert collector.spans, "no span came to the collector"
    told = "".join(collector.spans)
    hidden = (SECRET, *TOKENS.values(), "acme", "I moved")
    assert [word for word in hidden if word in told] == []
