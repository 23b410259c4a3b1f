"""Spans of OpenTelemetry, by option: requests, questions, searches, the writing of memories, calls of the model.

    request ──> ask ──────> call of the model
            └─> search                              remember ──> call of the model

They say how long each took and what kind of error ended it: no tenant, user or text is in a name or an attribute. A
request goes on with the trace that its client names (`traceparent`). Where they are sent, and how many of them, say
OpenTelemetry's own variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, ...

Needs the extra `otel`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from dspy.utils.callback import BaseCallback

from .. import __version__
from ..errors import MissingDependencyError
from .user_memory import UserMemory
from .writers import Threads
from .writing import Remembered

try:
    from opentelemetry import propagate
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ImportError as error:
    raise MissingDependencyError("opentelemetry-sdk", "otel") from error


class Spans:
    """Where spans go.

    Args:
        provider: Keeps or sends them.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider, self._tracer = provider, provider.get_tracer("mempiler", __version__)

    @contextmanager
    def span(self, name: str, kind: SpanKind = SpanKind.INTERNAL, context: Any = None) -> Generator[Span]:
        """A span around the block; what the block raises is told by its kind, for its text may quote a user."""
        with self._tracer.start_as_current_span(
            name, context, kind, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                failed(span, error)
                raise

    def begin(self, name: str) -> Span:
        """A span within the current one, which its caller ends."""
        return self._tracer.start_span(name, kind=SpanKind.CLIENT)

    def close(self) -> None:
        """Sends what was not sent yet."""
        self._provider.shutdown()


def failed(span: Span, error: BaseException) -> None:
    """Says of a span that an error ended it."""
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR))


def exported() -> Spans:
    """Spans that are sent as OpenTelemetry's variables say.

    Raises:
        MissingDependencyError: There is no exporter.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http import trace_exporter  # pyright: ignore[reportMissingImports]
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingDependencyError("opentelemetry-exporter-otlp-proto-http", "otel") from error
    # What is merged last wins: the variables.
    told = Resource({"service.name": "mempiler"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=told)
    provider.add_span_processor(BatchSpanProcessor(trace_exporter.OTLPSpanExporter()))
    return Spans(provider)


class TracedRequests:
    """ASGI middleware: a span a request.

    Args:
        app: The application behind it.
        spans: Where they go.
    """

    def __init__(self, app: Any, spans: Spans) -> None:
        self._app, self._spans = app, spans

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves a request under a span."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with self._spans.span("request", SpanKind.SERVER, propagate.extract(given)) as span:

            async def sent(message: Any) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            try:
                await self._app(scope, receive, sent)
            finally:
                route = getattr(scope.get("route"), "path", None) or "none"
                span.update_name(f"{scope['method']} {route}")
                span.set_attributes({"http.request.method": scope["method"], "http.route": route})


class TracedMemory(UserMemory):
    """A memory whose questions and searches have spans; arguments as `UserMemory`, after where they go."""

    def __init__(self, spans: Spans, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._spans = spans

    def ask(self, *given: Any, **named: Any) -> Any:
        with self._spans.span("ask"):
            return super().ask(*given, **named)

    def search(self, *given: Any, **named: Any) -> Any:
        with self._spans.span("search") as span:
            found = super().search(*given, **named)
            span.set_attributes({"mempiler.entries": len(found.entries), "mempiler.waiting": len(found.waiting)})
            return found


class TracedThreads(Threads[Remembered]):
    """Writers of memories, a span for what each does for a user; arguments as `Threads`, after where they go."""

    def __init__(self, spans: Spans, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._spans = spans

    def begin(self, job: Callable[[], Remembered]) -> Future[Remembered]:
        def traced() -> Remembered:
            with self._spans.span("remember") as span:
                done = job()
                span.set_attributes({"mempiler.sessions": done.items, "mempiler.failures": len(done.failures)})
                return done

        return super().begin(traced)


class TracedCalls(BaseCallback):
    """A span for each call of a language model, its retries among it.

    Args:
        spans: Where they go.
    """

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._open: dict[str, Span] = {}

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Called before a call."""
        span = self._open[call_id] = self._spans.begin("call of the model")
        span.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": str(instance.model)})

    def on_lm_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        """Called after a call."""
        span = self._open.pop(call_id)
        if exception is not None:
            failed(span, exception)
        span.end()
