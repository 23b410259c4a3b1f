"""Spans of OpenTelemetry (extra `otel`): of requests, and of calls of the language model.

    provider = make_tracer_provider()
    instrument(app, lm, provider)

No tenant, user or text is in a name or an attribute. A request continues the trace that its client
names. Where spans are sent, and how many, OpenTelemetry's own variables say.
"""

from __future__ import annotations

from typing import Any

import dspy
from dspy.utils.callback import BaseCallback
from fastapi import FastAPI
from starlette.types import Scope

from ... import __version__
from ...optional_import import require_package

with require_package("opentelemetry-instrumentation-fastapi", "otel"):
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode

_ATTRIBUTES_WITH_NAMES = ("http.target", "http.url", "url.path", "url.full", "url.query")
"""Attributes of a request that hold names of users."""


def make_tracer_provider() -> TracerProvider:
    """Return a provider whose spans are sent as OpenTelemetry's variables say.

    Raises:
        MissingDependencyError: There is no exporter.
    """
    with require_package("opentelemetry-exporter-otlp-proto-http", "otel"):
        from opentelemetry.exporter.otlp.proto.http import (  # pyright: ignore[reportMissingImports]
            trace_exporter,
        )

    # What is merged last wins: the variables.
    resource = Resource({"service.name": "mempiler"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(trace_exporter.OTLPSpanExporter()))
    return provider


def instrument(app: FastAPI, lm: dspy.BaseLM | None, provider: TracerProvider) -> None:
    """Trace an application: one span for each request, and one for each call of its language model.

    Args:
        app: The application.
        lm: Its language model; its callbacks are extended. None leaves model calls untraced.
        provider: Sends the spans.
    """
    FastAPIInstrumentor.instrument_app(
        app,
        tracer_provider=provider,
        # Paths of requests hold names of users, and spans must not.
        server_request_hook=_remove_names,
        # Otherwise every part of a stream would have a span of its own.
        exclude_spans=["receive", "send"],
    )
    if lm is not None:
        lm.callbacks = [*lm.callbacks, _CallSpans(provider)]


def _remove_names(span: Any, scope: Scope) -> None:
    """Replace the path of a request in the attributes of its span by the route."""
    attributes = span.attributes or {}
    for name in _ATTRIBUTES_WITH_NAMES:
        if name in attributes:
            span.set_attribute(name, attributes.get("http.route", "none"))


class _CallSpans(BaseCallback):
    """Makes a span for each call of a language model, with its retries."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("mempiler", __version__)
        self._open_spans: dict[str, Span] = {}
        """By DSPy's id of the call."""

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Begin the span of a call."""
        span = self._tracer.start_span("call of the model", kind=SpanKind.CLIENT)
        span.set_attribute("gen_ai.operation.name", "chat")
        span.set_attribute("gen_ai.request.model", str(instance.model))
        self._open_spans[call_id] = span

    def on_lm_end(
        self, call_id: str, outputs: Any | None, exception: BaseException | None = None
    ) -> None:
        """End the span of a call."""
        span = self._open_spans.pop(call_id)
        if exception is not None:
            # Only the type of the error: its text may quote a user.
            span.set_attribute("error.type", type(exception).__name__)
            span.set_status(Status(StatusCode.ERROR))
        span.end()
