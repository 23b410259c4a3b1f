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
        """Make one attempt, and return its answer.

        If somebody wants its text while it comes (`CallContext.on_text`), it is streamed.

        Raises:
            LM15Error: There is no answer.
        """
        with self.secrets.hiding():
            make_callback = current_context().on_text
            if make_callback is not None:
                # Each attempt has a callback of its own, which begins with an empty text.
                response = await self._complete_in_pieces(request, make_callback())
                if response is not None:
                    return response
                # The endpoint does not stream, so it is asked again for the whole answer.
            return await self._complete_whole(request)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """Yield the events of one answer."""
        with self.secrets.hiding():
            async with aclosing(self.lm.stream(self._adapt(request))) as events:
                async for event in events:
                    yield self._without_secrets(event) if event.type == "error" else event

    async def _complete_whole(self, request: Request) -> Response:
        """Return an answer that comes in one piece.

        Raises:
            ProviderError: The answer lacks the list of `choices` that OpenAI's chat has.
            LM15Error: There is no answer.
        """
        response = await self.lm.complete(self._adapt(request))

        # For a reply without choices, such as {}, `AsyncOpenAIChatLM` returns an empty answer.
        if self._speaks_openai_chat and not response.text:
            reply = response.provider_data or {}
            if not reply.get("choices"):
                raise ProviderError("the answer has no choices")
        return response

    async def _complete_in_pieces(
        self, request: Request, on_text: ChunkCallback
    ) -> Response | None:
        """Stream an answer, and return the whole of it, or None if the endpoint does not stream.

        Args:
            request: What is asked.
            on_text: Called with each piece of the text when it comes.

        Raises:
            LM15Error: The answer broke off, or there is none.
        """
        tap = _TextTap(self.stream(request), on_text)
        try:
            return await amaterialize_response(tap.events(), request)
        except (StreamAssemblyError, UnsupportedFeatureError):
            # An endpoint that cannot stream sends no event at all, or refuses the request. If there
            # were events, it can, and the answer broke off.
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
        """Yield the events as they come; the callback gets each piece of the answer's text."""
        async with aclosing(self._events) as events:
            async for event in events:
                self.has_begun = True
                if event.type == "delta" and event.delta.type == "text" and event.delta.text:
                    self._on_text(event.delta.text)
                yield event
