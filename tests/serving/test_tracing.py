"""Spans of OpenTelemetry: what belongs to what, by the in-memory exporter, and nobody's names or words in them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mempiler import Store

from .conftest import service_over, serving, within

pytest.importorskip("opentelemetry.instrumentation.fastapi")


class Traced:
    """A service whose spans are kept."""

    def __init__(self, store: Store, folder: Path, lm: Any) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.kept, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.kept))
        self.service = service_over(store, folder, lm, spans=provider)

    def named(self, name: str) -> Any:
        """The span of a name, once there is one."""
        found = within(10, lambda: [span for span in self.kept.get_finished_spans() if span.name == name])
        assert found, [span.name for span in self.kept.get_finished_spans()]
        return found[0]


@pytest.fixture
def traced(store: Store, tmp_path: Path) -> Callable[..., Traced]:
    return lambda lm=None: Traced(store, tmp_path, lm)


def test_a_question_is_one_trace_and_nobody_is_named(traced: Any) -> None:
    made = traced()
    with serving(made.service) as client:
        client.add("I moved to Lisbon.", user="ada-lovelace", id="chat-17")
        parent = f"00-{'1' * 32}-{'2' * 16}-01"
        body = {"question": "Where did Ada move?"}
        client.post("/v1/users/ada-lovelace/ask", json=body, headers={"traceparent": parent})
        client.get("/v1/users/ada-lovelace/entries", params={"where": '{"channel": "lovelace"}'})
        client.get("/v1/lovelace")
        request, call = made.named("POST /v1/users/{user}/ask"), made.named("call of the model")
        made.named("GET /v1/users/{user}/entries")
    assert (request.context.trace_id, request.parent.span_id) == (int("1" * 32, 16), int("2" * 16, 16))
    assert call.parent.span_id == request.context.span_id
    assert request.attributes["http.status_code"] == 200
    assert call.attributes["gen_ai.request.model"] == "offline/extractive-1"
    told = "".join(span.to_json() for span in made.kept.get_finished_spans())
    assert [word for word in ("lovelace", "chat-17", "Lisbon", "acme") if word in told] == []


def test_errors_are_told_by_their_kind(traced: Any, scripted: Any) -> None:
    def fails(kind: str, text: str, n: int) -> Any:
        raise ValueError(f"the secret word is {text}")

    made = traced(scripted(fails))
    with serving(made.service) as client:
        client.add("I moved to Lisbon.")
        assert client.ask("Where did Ada move?").status_code == 502
        call, request = made.named("call of the model"), made.named("POST /v1/users/{user}/ask")
    assert call.attributes["error.type"] == "LMUnexpectedError"
    assert (call.status.is_ok, request.status.is_ok) == (False, False)
    assert "secret" not in call.to_json() + request.to_json()
    assert call.events == ()
