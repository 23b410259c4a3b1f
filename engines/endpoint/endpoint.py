"""An endpoint of language models: who answers for a name there, and what a call may take in time, retries and waits.

    call ──> attempt ──> too many requests, wait 2 s ──> attempt ──> answer
    └──────────────────────────── deadline ───────────────────────┘

Names that `dspy.lm15` knows are asked by its clients, over `http.Transport`. All others are asked by litellm.

Limits: what litellm reads is bounded in time, not in bytes, and waits that such a provider asks for are not heard of.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import time
from dataclasses import dataclass, replace
from typing import Any

from dspy.lm15 import (
    RETRYABLE_ERRORS,
    AsyncLMRouter,
    AsyncOpenAIChatLM,
    Request,
    Response,
    RouterConfig,
    UnknownModelError,
    UnsupportedFeatureError,
    registered_providers,
)

from ..prices import litellm_module
from .deadline import DEADLINE, RETRIES, TIMEOUT
from .loop import in_time
from .pieces import completed

BODY = "metadata"
"""The setting of a request that DSPy hands on as it is: here it holds those fields of the body that DSPy refuses."""
LONGEST_WAIT = 60.0
"""Most seconds that an endpoint may ask to wait; a call that is to wait longer has failed."""


@dataclass(frozen=True)
class Client:
    """What asks for one model: `complete` and `stream` of `lm` take requests that `routed` gives."""

    model: str
    """What the provider calls the model."""
    lm: Any

    def routed(self, request: Request) -> Request:
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
    """

    def __init__(
        self,
        address: str | None = None,
        key: str | None = None,
        silence: float = TIMEOUT,
        seconds: float = DEADLINE,
        retries: int = RETRIES,
    ) -> None:
        self.address, self.key = address, key
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
        found = self._clients.get(name)
        if found is None:
            route = self.route(name)
            found = self._clients[name] = Client(name, self._other()) if route is None else self._known(*route)
        return found

    async def complete(self, client: Client, request: Request) -> Response:
        """The answer to a request, retries and waits included; runs in the loop of the endpoints.

        Raises:
            LM15Error: The last attempt failed, or the time is over.
        """
        return await in_time(self._tried(client.lm, client.routed(request)), self.seconds)

    async def _tried(self, lm: Any, request: Request) -> Response:
        end = time.monotonic() + self.seconds
        for number in itertools.count():
            try:
                return await completed(lm, request)
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
        return Client(model, router.lm(f"{provider}:{model}"))

    def _other(self) -> Any:
        from dspy.clients.engines import AsyncLiteLLMEngine

        litellm_module()  # here, lest its import hold up the loop

        settings = {"api_key": self.key, "api_base": self.address, "timeout": self.silence}
        return AsyncLiteLLMEngine(**{name: value for name, value in settings.items() if value is not None})

    def __deepcopy__(self, memo: object = None) -> Endpoint:
        return self

    def __reduce__(self) -> tuple[type[Endpoint], tuple[Any, ...]]:
        return Endpoint, (self.address, self.key, self.silence, self.seconds, self.retries)


def _router(**settings: Any) -> AsyncLMRouter:
    declared = tuple(each.definition for each in registered_providers())
    return AsyncLMRouter(RouterConfig(providers=declared, **settings))
