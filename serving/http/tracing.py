"""Spans of OpenTelemetry, by option (extra `otel`): requests, and calls of the language model.

No tenant, user or text is in a name or an attribute. A request goes on with the trace that its client names. Where
spans are sent, and how many, say OpenTelemetry's own variables.
"""

from __future__ import annotations

from typing import Any

from dspy.utils.callback import BaseCallback
from fastapi import FastAPI

from ... import __version__
from ...optional_import import require_package

with require_package("opentelemetry-instrumentation-fastapi", "otel"):
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode

_NAMING = ("http.target", "http.url", "url.path", "url.full", "url.query")
"""Attributes of a request in which names of users stand."""


def exported() -> TracerProvider:
    """Spans that are sent as OpenTelemetry's variables say.

    Raises:
        MissingDependencyError: There is no exporter.
    """
    with require_package("opentelemetry-exporter-otlp-proto-http", "otel"):
        from opentelemetry.exporter.otlp.proto.http import trace_exporter  # pyright: ignore[reportMissingImports]
    # What is merged last wins: the variables.
    told = Resource({"service.name": "mempiler"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=told)
    provider.add_span_processor(BatchSpanProcessor(trace_exporter.OTLPSpanExporter()))
    return provider


def instrument(app: FastAPI, lm: Any, provider: TracerProvider) -> None:
    """Makes spans of the requests of an application, and of the calls of a language model."""
    FastAPIInstrumentor.instrument_app(
        app, tracer_provider=provider, server_request_hook=_without_names, exclude_spans=["receive", "send"]
    )
    lm.callbacks = [*lm.callbacks, _Calls(provider)]


def _without_names(span: Any, scope: Any) -> None:
    for name in _NAMING:
        if name in (span.attributes or {}):
            span.set_attribute(name, span.attributes.get("http.route", "none"))


class _Calls(BaseCallback):
    """A span for each call of a language model, its retries among it."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("mempiler", __version__)
        self._open: dict[str, Span] = {}

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        span = self._open[call_id] = self._tracer.start_span("call of the model", kind=SpanKind.CLIENT)
        span.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": str(instance.model)})

    def on_lm_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        span = self._open.pop(call_id)
        if exception is not None:
            # By its kind alone, for its text may quote a user.
            span.set_attribute("error.type", type(exception).__name__)
            span.set_status(Status(StatusCode.ERROR))
        span.end()
