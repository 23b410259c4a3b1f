"""Who wants the text of a call piece by piece, while the model writes it.

    with in_pieces(begin):
        lm(prompt)          begin() ──> take("I m") take("oved") ...      begun anew at each attempt

The endpoint is then asked for a stream of events, its usage included, which makes the response that it gives otherwise:
meters, budgets, caches and recordings see a call like any other.

An endpoint that sends no event, though asked for a stream, is asked once more without. A call that is repeated begins
anew; whoever takes its pieces has to compare them with those of the attempt before.

Limits: models of this process and answers from a cache or a recording give no pieces, but the whole answer as ever. The
sampled candidates of a call with `n` are attempts of their own.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing
from typing import Any

from dspy.lm15 import (
    AsyncOpenAIChatLM,
    ProviderError,
    StreamAssemblyError,
    UnsupportedFeatureError,
    amaterialize_response,
)

from ...records.scope import holding

Take = Callable[[str], None]
"""Takes the next piece of the text of one attempt; it must not block."""
Begin = Callable[[], Take]

_begin: contextvars.ContextVar[Begin | None] = contextvars.ContextVar("pieces", default=None)


def in_pieces(begin: Begin) -> AbstractContextManager[None]:
    """Lets the attempts of the block's calls give their text while it comes.

    Args:
        begin: Called at the beginning of each attempt, in the thread of the endpoints.
    """
    return holding(_begin, begin)


async def completed(client: Any, request: Any) -> Any:
    """The response of a client of `dspy.lm15`; its pieces are handed on while they come, where they are wanted.

    Raises:
        LM15Error: There is none.
    """
    begin = _begin.get()
    if begin is None:
        return await _whole(client, request)
    take, any_came = begin(), False

    async def passing() -> AsyncIterator[Any]:
        nonlocal any_came
        async with aclosing(client.stream(request)) as events:
            async for event in events:
                any_came = True
                if event.type == "delta" and event.delta.type == "text" and event.delta.text:
                    take(event.delta.text)
                yield event

    try:
        return await amaterialize_response(passing(), request)
    except (StreamAssemblyError, UnsupportedFeatureError):
        if any_came:
            raise
    return await _whole(client, request)


async def _whole(client: Any, request: Any) -> Any:
    response = await client.complete(request)
    if isinstance(client, AsyncOpenAIChatLM) and not (response.text or (response.provider_data or {}).get("choices")):
        raise ProviderError("the answer has no choices")  # or else it would be an empty one
    return response
