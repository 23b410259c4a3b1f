"""What asks an endpoint for one model, one attempt at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from dspy.lm15 import (
    AsyncOpenAIChatLM,
    ProviderError,
    Request,
    Response,
    StreamAssemblyError,
    StreamDeltaEvent,
    StreamEndEvent,
    StreamErrorEvent,
    StreamStartEvent,
    UnsupportedFeatureError,
    amaterialize_response,
)

from ...secret_values import Secrets
from ..call_context import ChunkCallback, current_context
from ..dspy_internals import unpack_body_fields

StreamEvent = StreamStartEvent | StreamDeltaEvent | StreamEndEvent | StreamErrorEvent


@dataclass(frozen=True)
class Client:
    """Ask for one model; an error shows no secret that the endpoint was sent."""

    provider: str
    model: str
    """What the provider calls the model. The names of litellm begin with the provider."""
    lm: Any
    """The provider's client: one of `dspy.lm15`, or an `AsyncLiteLLMEngine`. Both have `complete`
    and `stream`, but no type in common."""
    secrets: Secrets = field(repr=False)
    """What the endpoint is sent, and no error may show."""

    async def complete(self, request: Request) -> Response:
        """Return one answer.

        If somebody wants its text while it comes (`CallContext.on_text`), it is streamed.

        Raises:
            LM15Error: There is no answer.
        """
        with self.secrets.hiding():
            on_text = current_context().on_text
            if on_text is not None:
                # Each attempt has a callback of its own, which begins with an empty text.
                response = await self._complete_in_pieces(request, on_text())
                if response is not None:
                    return response
            return await self._complete_whole(request)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """Yield the events of one answer."""
        with self.secrets.hiding():
            async with aclosing(self.lm.stream(self._adapt(request))) as events:
                async for event in events:
                    yield self._without_secrets(event) if event.type == "error" else event

    async def _complete_whole(self, request: Request) -> Response:
        """Return an answer that comes in one piece."""
        response = await self.lm.complete(self._adapt(request))

        has_choices = bool((response.provider_data or {}).get("choices"))
        if self._speaks_openai_chat and not response.text and not has_choices:
            # The client would return it as an empty answer.
            raise ProviderError("the answer has no choices")
        return response

    async def _complete_in_pieces(
        self, request: Request, on_text: ChunkCallback
    ) -> Response | None:
        """Return an answer whose text a callback gets while it comes.

        None if no event comes, because an endpoint does not stream though it is asked to.
        """
        tap = _TextTap(self.stream(request), on_text)
        try:
            return await amaterialize_response(tap.events(), request)
        except (StreamAssemblyError, UnsupportedFeatureError):
            if tap.has_begun:
                raise
            return None

    def _adapt(self, request: Request) -> Request:
        """Return a request as the provider takes it, with its name of the model."""
        config = request.config
        extensions = unpack_body_fields(config.extensions or {})
        if config.top_k is not None and self._speaks_openai_chat:
            # The client would drop it, because OpenAI does not know it. Many other servers do.
            extensions["top_k"] = config.top_k
            config = replace(config, top_k=None)

        config = replace(config, extensions=extensions or None)
        return replace(request, model=self.model, config=config)

    def _without_secrets(self, event: StreamErrorEvent) -> StreamErrorEvent:
        message = self.secrets.hide(event.error.message)
        return replace(event, error=replace(event.error, message=message))

    @property
    def _speaks_openai_chat(self) -> bool:
        return isinstance(self.lm, AsyncOpenAIChatLM)


class _TextTap:
    """Pass the events of an answer on, and give its text to a callback."""

    def __init__(self, events: AsyncGenerator[StreamEvent], on_text: ChunkCallback) -> None:
        self._events = events
        self._on_text = on_text
        self.has_begun = False
        """Whether an event came."""

    async def events(self) -> AsyncIterator[StreamEvent]:
        """Yield the events."""
        async with aclosing(self._events) as events:
            async for event in events:
                self.has_begun = True
                if event.type == "delta" and event.delta.type == "text" and event.delta.text:
                    self._on_text(event.delta.text)
                yield event
