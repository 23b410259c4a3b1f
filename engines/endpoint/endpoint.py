"""An endpoint of language models: who answers for a name there, and what a call may take in time, retries and waits.

Names that `dspy.lm15` knows are asked by its clients, over `http.Transport`. All others are asked by litellm: what it
reads is bounded in time, not in bytes, and waits that such a provider asks for are not heard of.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import math
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, replace
from typing import Any

from dspy.lm15 import (
    RETRYABLE_ERRORS,
    AsyncLMRouter,
    AsyncOpenAIChatLM,
    ProviderError,
    Request,
    Response,
    RouterConfig,
    StreamAssemblyError,
    UnknownModelError,
    UnsupportedFeatureError,
    amaterialize_response,
    registered_providers,
)

from ...records.scope import holding
from ..spending import litellm_module
from .deadline import DEADLINE, RETRIES, TIMEOUT

BODY = "metadata"
"""The setting of a request that DSPy hands on as it is: here it holds those fields of the body that DSPy refuses."""
LONGEST_WAIT = 60.0
"""Most seconds that an endpoint may ask to wait; a call that is to wait longer has failed."""

Take = Callable[[str], None]
"""Takes the next piece of the text of one attempt; it must not block."""
_begin: contextvars.ContextVar[Callable[[], Take] | None] = contextvars.ContextVar("pieces", default=None)


def in_pieces(begin: Callable[[], Take]) -> AbstractContextManager[None]:
    """Lets the attempts of the block's calls give their text while it comes.

    Models of this process and answers from a cache give no pieces.

    Args:
        begin: Called at the beginning of each attempt, in the thread of the endpoints.
    """
    return holding(_begin, begin)


@dataclass(frozen=True)
class Client:
    """What asks for one model: `lm` is a client of `dspy.lm15`, or litellm's like of it."""

    provider: str
    model: str
    """What the provider calls the model; litellm has both in it."""
    lm: Any

    def stream(self, request: Request) -> Any:
        """The events of one answer."""
        return self.lm.stream(self._routed(request))

    async def complete(self, request: Request) -> Response:
        """One answer; its pieces are handed on while they come, where they are wanted (`in_pieces`).

        Raises:
            LM15Error: There is none.
        """
        begin = _begin.get()
        if begin is not None:
            take, any_came = begin(), False

            async def passing() -> AsyncIterator[Any]:
                nonlocal any_came
                async with aclosing(self.stream(request)) as events:
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
        # Also where an endpoint sends no event, though asked for a stream.
        response = await self.lm.complete(self._routed(request))
        empty = not (response.text or (response.provider_data or {}).get("choices"))
        if empty and isinstance(self.lm, AsyncOpenAIChatLM):
            raise ProviderError("the answer has no choices")  # or else it would be an empty one
        return response

    def _routed(self, request: Request) -> Request:
        """The request as its provider takes it, with the fields of the body that are no settings of DSPy's."""
        config = request.config
        fields: dict[str, Any] = dict(config.extensions or {})
        fields |= fields.pop(BODY, {})
        if config.top_k is not None and isinstance(self.lm, AsyncOpenAIChatLM):
            fields["top_k"] = config.top_k  # its client would drop it, though many servers take it
            config = replace(config, top_k=None)
        return replace(request, model=self.model, config=replace(config, extensions=fields or None))


class Endpoint:
    """An address, a key, and the bounds of every call there; shared by the copies of a model.

    Args:
        address: Up to and including its /v1; None takes the provider's own.
        key: What it is shown; None takes the provider's variable.
        silence: Seconds without a byte after which an attempt has failed.
        seconds: For a call, its retries and waits included.
        retries: How often a call is repeated that could not reach its model.
        server: What answers there, if it runs in this process: it runs as long as anybody holds the endpoint.
    """

    def __init__(
        self,
        address: str | None = None,
        key: str | None = None,
        silence: float = TIMEOUT,
        seconds: float = DEADLINE,
        retries: int = RETRIES,
        server: Any = None,
    ) -> None:
        self.address, self.key, self.server = address, key, server
        self.silence, self.seconds, self.retries = silence, seconds, retries
        self._clients: dict[str, Client] = {}

    def route(self, name: str) -> tuple[str, str] | None:
        """Provider and model of a name as `dspy.LM` takes it; None where litellm has to ask for it."""
        head, slash, rest = name.partition("/")
        if head != "openai" and any(os.environ.get(f"{head.upper()}_{end}") for end in ("API_BASE", "BASE_URL")):
            return None
        try:
            # What the provider calls its model may hold a colon, at which the router would part it.
            found = _router(env={}).resolve_openai_chat(f"{head}/any" if slash else name)
        except (UnknownModelError, UnsupportedFeatureError):
            return None
        if found.provider.startswith("azure") and self.address:
            return None
        return found.provider, rest if slash else found.model

    def client(self, name: str) -> Client:
        """What asks for a model.

        Raises:
            LM15Error: Its provider cannot be asked as this process is set up, e.g. for want of a key.
        """
        if name not in self._clients:
            route = self.route(name)
            self._clients[name] = self._other(name) if route is None else self._known(*route)
        return self._clients[name]

    async def complete(self, client: Client, request: Request) -> Response:
        """The answer to a request, retries and waits included; runs in the loop, for `seconds` at most.

        Raises:
            LM15Error: The last attempt failed.
        """
        end = time.monotonic() + self.seconds
        for number in itertools.count():
            try:
                return await client.complete(request)
            except RETRYABLE_ERRORS as error:
                await asyncio.sleep(self._pause(error, number, end - time.monotonic()))
        raise AssertionError

    def _pause(self, error: Any, number: int, left: float) -> float:
        """Seconds until the next attempt; raises the error if there is none."""
        if number >= self.retries:
            raise error
        asked = error.retry_after
        pause = asked if asked is not None and math.isfinite(asked) else min(2.0**number, LONGEST_WAIT)
        if pause >= left or pause > LONGEST_WAIT:
            if asked is not None:
                error.message = f"the endpoint asks for a wait of {asked:.0f} s: {error.message}"
            raise error
        return pause

    def _known(self, provider: str, model: str) -> Client:
        from .http import Transport  # takes a tenth of a second

        base = self.address
        if provider == "openai-chat":
            base = base or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
        keys, bases = ({provider: each} if each else None for each in (self.key, base))
        router = _router(transport=Transport(self.silence), api_keys=keys, base_urls=bases)
        return Client(provider, model, router.lm(f"{provider}:{model}"))

    def _other(self, name: str) -> Client:
        from dspy.clients.engines import AsyncLiteLLMEngine

        litellm_module()  # here, lest its import hold up the loop
        settings = {"api_key": self.key, "api_base": self.address, "timeout": self.silence}
        given = {setting: value for setting, value in settings.items() if value is not None}
        return Client(name.partition("/")[0], name, AsyncLiteLLMEngine(**given))

    def __deepcopy__(self, memo: object = None) -> Endpoint:
        return self

    def __reduce__(self) -> tuple[type[Endpoint], tuple[Any, ...]]:
        return Endpoint, (self.address, self.key, self.silence, self.seconds, self.retries)


def _router(**settings: Any) -> AsyncLMRouter:
    declared = tuple(each.definition for each in registered_providers())
    return AsyncLMRouter(RouterConfig(providers=declared, **settings))
