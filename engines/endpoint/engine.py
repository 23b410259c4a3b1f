"""An endpoint of a language model behind DSPy's engine interface.

    engine = Engine("openai/qwen3", address="http://localhost:8000/v1", retries=0)
    lm = dspy.LM("openai/qwen3", **engines(engine))

Models of a provider that `dspy.lm15` knows are asked by its clients, through `transport`. All
others are asked by litellm. What litellm reads is bounded in time, but not in bytes, and how long
such a provider asks to wait is not known.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import dspy
from dspy.clients.call_result import CallResult
from dspy.lm15 import LM15Error, Request, Response

from ...records.shared_by_copies import SharedByCopies
from ...secret_values import Secrets, secrets_of_address, secrets_of_environment
from ...text import one_line
from ..prices import litellm_module
from .address import address_in_environment, endpoint_digest
from .client import Client, StreamEvent
from .costs import add_cost
from .errors import UnreachableError
from .loop import aiterate, arun, iterate, run
from .remote_engine import RemoteEngine
from .reported_usage import UsageFilter
from .retry import with_retries
from .routing import OPENAI_CHAT, Route, find_route, provider_client
from .waits import DEADLINE, RETRIES, TIMEOUT

if TYPE_CHECKING:
    from ..gguf import GgufServer

LITELLM = "litellm"
"""The kind of an endpoint that litellm asks."""

ADDRESS_OPTION = "--api-base"
"""The option that sets an address. Other roles have options such as `--prompt-api-base`."""


@dataclass(eq=False, repr=False)
class Engine(SharedByCopies, RemoteEngine):
    """Ask an endpoint for a model. Copies of the model share the engine.

    Errors are those of `dspy.lm15`.
    """

    model: str
    """As `dspy.LM` takes it."""
    address: str | None = None
    """Up to and including its /v1; None takes the provider's own."""
    key: str | None = None
    """None takes the one in the provider's variable."""
    timeout: float = TIMEOUT
    """Seconds without a byte after which an attempt has failed."""
    seconds: float = DEADLINE
    """Seconds for a call, its retries and waits included."""
    retries: int = RETRIES
    """Most attempts after the first, where a call could not reach its model."""
    server: GgufServer | None = None
    """The server at the address, if it runs in this process, which it does while the engine is
    referenced."""
    _clients: dict[str, Client] = field(default_factory=dict[str, Client], init=False)
    """By the name of the model."""

    def complete(self, request: Request) -> Response:
        """Return one answer.

        Raises:
            LM15Error: The last attempt failed.
            AbandonedCallError: The deadline of the call context passed.
        """
        client = self.client(request.model)
        return run(self.complete_in_loop(client, request), self.seconds)

    async def complete_in_loop(self, client: Client, request: Request) -> Response:
        """Return one answer; repeat the attempt while the endpoint is busy or away.

        It runs in the loop of the endpoints (`loop`).

        Raises:
            LM15Error: The last attempt failed.
        """
        attempt = partial(client.complete, request)
        try:
            return await with_retries(attempt, self.retries, self.seconds)
        except LM15Error as error:
            hint = self._address_hint(error)
            if hint is None:
                raise
            raise type(error)(f"{one_line(error, 300)}{hint}", status=error.status) from error

    def stream(self, request: Request) -> Iterator[StreamEvent]:
        """Yield the events of one answer, without retries."""
        client = self.client(request.model)
        return iterate(client.stream(request), self.seconds)

    def _address_hint(self, error: LM15Error) -> str | None:
        """Return what to add to an error that a wrong address may cause; None for other errors."""
        if self.address is None or self.server is not None:
            return None
        if isinstance(error, UnreachableError):
            return f"; check the address ({ADDRESS_OPTION})"
        if error.status == 404:
            return (
                f" (status 404); check the address ({ADDRESS_OPTION}), "
                "which mostly ends in /v1, and the model's name"
            )
        return None

    # The clients

    def client(self, name: str) -> Client:
        """Return what asks for a model; make it if this is its first call.

        Its modules are imported here, and not in the loop, where an import would hold up all calls.

        Raises:
            LM15Error: The provider cannot be asked, e.g. because there is no key.
        """
        client = self._clients.get(name)
        if client is None:
            route = self.route(name)
            client = self._litellm_client(name) if route is None else self._lm15_client(route)
            self._clients[name] = client
        return client

    def route(self, name: str) -> Route | None:
        """Return provider and model of a name that `dspy.LM` takes; None if litellm asks for it."""
        return find_route(name, self.address)

    def _lm15_client(self, route: Route) -> Client:
        """Return a client that asks for a model through `dspy.lm15`, DSPy's own HTTP clients.

        Raises:
            LM15Error: The provider cannot be asked, e.g. because there is no key.
        """
        from .transport import Transport  # imports aiohttp, which most commands do not need

        secrets = self._secrets
        # The filter drops reported usage for which the client would refuse a whole answer.
        transport = UsageFilter(Transport(self.timeout, secrets))
        address = self._address_of(route.provider)
        lm = provider_client(route, transport, address, self.key)
        return Client(route.provider, route.model, lm, secrets)

    def _litellm_client(self, name: str) -> Client:
        """Return what asks for a model by litellm, which finds unset options in the environment."""
        from dspy.clients.engines import AsyncLiteLLMEngine

        # Imports litellm without its side effects, before DSPy's engine does.
        litellm_module()
        options: dict[str, Any] = {"timeout": self.timeout}
        if self.key is not None:
            options["api_key"] = self.key
        if self.address is not None:
            options["api_base"] = self.address

        provider = name.partition("/")[0]
        return Client(provider, name, AsyncLiteLLMEngine(**options), self._secrets)

    @property
    def _secrets(self) -> Secrets:
        """What the endpoint may be sent: the key may be one of the environment."""
        return Secrets([self.key, *secrets_of_address(self.address), *secrets_of_environment()])

    # The address

    def check_address(self) -> None:
        """Refuse a variable for the address that holds none, before the first call.

        Raises:
            UserError: It is no address of a server.
        """
        self._address_of(self._kind)

    @property
    def digest(self) -> str | None:
        """A digest of the endpoint's kind and address.

        None where the name of the model says where it runs: at its provider's own address, or in
        this process, whose server has another port each time.
        """
        return self._digest

    @functools.cached_property
    def _digest(self) -> str | None:
        address = self._address_of(self._kind)
        if address is None or self.server is not None:
            return None
        return endpoint_digest(self._kind, address)

    @property
    def _kind(self) -> str:
        """The client that asks the endpoint: a provider of `dspy.lm15`, or litellm."""
        route = self.route(self.model)
        return LITELLM if route is None else route.provider

    def _address_of(self, kind: str) -> str | None:
        """Return the address of an endpoint; None if the client uses its provider's own.

        Args:
            kind: What asks it: a provider of `dspy.lm15`, or `LITELLM`.

        Raises:
            UserError: A variable of the environment for the address does not hold one.
        """
        if self.address:
            return self.address
        if kind == OPENAI_CHAT:
            return address_in_environment("openai")
        if kind == LITELLM:
            return address_in_environment(self.model.partition("/")[0])
        return None

    # What DSPy does not do for an engine

    def add_cost(self, result: CallResult) -> None:
        """Set the cost of a result, and its usage as the provider counts it."""
        client = self.client(self.model)
        add_cost(result, client.provider, client.model)

    @functools.cached_property
    def supports_function_calling(self) -> bool:
        """Whether the model can call tools."""
        return self._plain_lm.supports_function_calling

    @functools.cached_property
    def supports_reasoning(self) -> bool:
        """Whether the model can reason before it answers."""
        return self._plain_lm.supports_reasoning

    @functools.cached_property
    def supports_response_schema(self) -> bool:
        """Whether the model can answer by a JSON schema."""
        return self._plain_lm.supports_response_schema

    @functools.cached_property
    def supported_params(self) -> set[str]:
        """The settings of OpenAI's chat that the model takes."""
        return self._plain_lm.supported_params

    @functools.cached_property
    def _plain_lm(self) -> dspy.LM:
        """The model without an engine, of which DSPy knows what it supports."""
        return dspy.LM(self.model)

    def __reduce__(self) -> tuple[type[Engine], tuple[Any, ...]]:
        # Neither clients, which have connections, nor a server can be pickled.
        settings = (self.model, self.address, self.key, self.timeout, self.seconds, self.retries)
        return Engine, settings


@dataclass(frozen=True)
class AsyncEngine:
    """Ask as an `Engine` does, under asyncio, from any event loop."""

    engine: Engine

    async def complete(self, request: Request) -> Response:
        """Return one answer; see `Engine.complete`."""
        client = self.engine.client(request.model)
        return await arun(self.engine.complete_in_loop(client, request), self.engine.seconds)

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Yield the events of one answer, without retries."""
        client = self.engine.client(request.model)
        return aiterate(client.stream(request), self.engine.seconds)


def engines(engine: Engine) -> dict[str, Any]:
    """Return the arguments of a `dspy.LM` that asks by an engine, which alone repeats calls."""
    return {"engine": engine, "async_engine": AsyncEngine(engine), "num_retries": 0}
