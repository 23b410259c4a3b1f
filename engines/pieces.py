"""Who wants the text of a call piece by piece, while the model writes it.

    with in_pieces(begin):
        lm(prompt)          begin() ──> take("I m") take("oved") ...      begun anew at each attempt

The client that DSPy has for the endpoint is then asked for a stream of events, its usage included, and makes of them
the response that it gives otherwise: meters, budgets, caches and recordings see a call like any other.

An endpoint that sends no event, though asked for a stream, is asked once more without. A call that is repeated begins
anew; whoever takes its pieces has to compare them with those of the attempt before.

Limits: models of this process, answers from a cache or a recording, and endpoints that DSPy reaches through LiteLLM
give no pieces, but the whole answer as ever. The sampled candidates of a call with `n` are attempts of their own.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, closing
from typing import Any

from dspy._vendor.lm15.result import amaterialize_response, materialize_response
from dspy.clients.engines.lm15_engine import AsyncLM15Engine, LM15Engine
from dspy.lm15 import StreamAssemblyError, UnsupportedFeatureError

from ..records.scope import holding

Take = Callable[[str], None]
"""Takes the next piece of the text of one attempt."""
Begin = Callable[[], Take]

_begin: contextvars.ContextVar[Begin | None] = contextvars.ContextVar("pieces", default=None)


def in_pieces(begin: Begin) -> AbstractContextManager[None]:
    """Lets the attempts of the block's calls give their text while it comes.

    Args:
        begin: Called at the beginning of each attempt, in the thread that makes it.
    """
    return holding(_begin, begin)


class PieceEngine(LM15Engine):
    """DSPy's client of an endpoint, which streams to whoever wants the pieces."""

    def complete(self, request: Any) -> Any:
        """The whole answer; its pieces are handed on while they come."""
        begin = _begin.get()
        if begin is None:
            return super().complete(request)
        pieces = _Pieces(begin())
        try:
            return materialize_response(pieces.passing(self.stream(request)), request)
        except (StreamAssemblyError, UnsupportedFeatureError):
            if pieces.any:
                raise
        return super().complete(request)


class AsyncPieceEngine(AsyncLM15Engine):
    """The same for asyncio."""

    async def complete(self, request: Any) -> Any:
        """The whole answer; its pieces are handed on while they come."""
        begin = _begin.get()
        if begin is None:
            return await super().complete(request)
        pieces = _Pieces(begin())
        try:
            return await amaterialize_response(pieces.apassing(self.stream(request)), request)
        except (StreamAssemblyError, UnsupportedFeatureError):
            if pieces.any:
                raise
        return await super().complete(request)


class _Pieces:
    """The events of one attempt, on their way."""

    def __init__(self, take: Take) -> None:
        self.any = False
        self._take = take

    def passing(self, events: Any) -> Iterator[Any]:
        with closing(events):
            for event in events:
                self._pass(event)
                yield event

    async def apassing(self, events: Any) -> AsyncIterator[Any]:
        async with aclosing(events):
            async for event in events:
                self._pass(event)
                yield event

    def _pass(self, event: Any) -> None:
        self.any = True
        if event.type == "delta" and event.delta.type == "text" and event.delta.text:
            self._take(event.delta.text)
