"""Endpoints of language models, behind DSPy's engine interface: `dspy.LM(name, engine=..., async_engine=...)`.

Names that `dspy.lm15` knows are asked by its clients, over `http.Transport`. All others are asked by litellm: what it
reads is bounded in time, not in bytes, and waits that such a provider asks for are not heard of.
"""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import dspy
from dspy.clients.call_result import CallResult, combine, usage_dict
from dspy.clients.costs import estimate_cost
from dspy.clients.errors import error_boundary
from dspy.lm15 import (
    AsyncLMRouter,
    AsyncOpenAIChatLM,
    LM15Error,
    Message,
    ProviderError,
    Request,
    Response,
    RouterConfig,
    StreamAssemblyError,
    UnknownModelError,
    UnsupportedFeatureError,
    Usage,
    amaterialize_response,
    registered_providers,
)
from dspy.utils.exceptions import LMAuthError, LMTransportError

from ...records import estimate_tokens, fewest_tokens
from ...records.shared_by_copies import SharedByCopies
from ...secret_values import Secrets, secrets_of_address, secrets_of_environment
from ...text import one_line
from ..call_context import current_context
from ..prices import litellm_module
from ..token_counts import believable_count, text_of_messages
from . import DEADLINE, RETRIES, TIMEOUT, RemoteEngine
from .address import address_in_environment, endpoint_digest
from .loop import aiterate, arun, iterate, run
from .retry import with_retries

OPENAI_CHAT = "openai-chat"
"""The kind of an endpoint that speaks OpenAI's chat."""
LITELLM = "litellm"
"""The kind of an endpoint that `dspy.lm15` does not know."""
BODY = "metadata"
"""The setting of a request that DSPy hands on as it is: here it holds those fields of the body that DSPy refuses."""

ADDRESS_OPTION = "--api-base"
"""The option that says where a server is; other roles have options such as `--prompt-api-base`."""


@dataclass(frozen=True)
class Client:
    """What asks for one model: `lm` is a client of `dspy.lm15`, or litellm's like of it."""

    provider: str
    model: str
    """What the provider calls the model; litellm has both in it."""
    lm: Any
    secrets: Secrets = field(repr=False)
    """What the endpoint is sent, and no error may show."""

    async def stream(self, request: Request) -> AsyncGenerator[Any]:
        """The events of one answer."""
        with self.secrets.hiding():
            async with aclosing(self.lm.stream(self._routed(request))) as events:
                async for event in events:
                    if event.type == "error":
                        message = self.secrets.hide(event.error.message)
                        event = replace(event, error=replace(event.error, message=message))
                    yield event

    async def complete(self, request: Request) -> Response:
        """One answer; its pieces are handed on while they come, where they are wanted (`CallContext.on_text`).

        Raises:
            LM15Error: There is none.
        """
        with self.secrets.hiding():
            return await self._complete(request)

    async def _complete(self, request: Request) -> Response:
        begin = current_context().on_text
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


@dataclass(eq=False, repr=False)
class Engine(SharedByCopies, RemoteEngine):
    """Asks for a model by its name in DSPy; errors are those of `dspy.lm15`. Copies of a model share it."""

    model: str
    address: str | None = None
    """Up to and including its /v1; None takes the provider's own."""
    key: str | None = None
    """What it is shown; None takes the provider's variable."""
    timeout: float = TIMEOUT
    """Seconds without a byte after which an attempt has failed."""
    seconds: float = DEADLINE
    """For a call, its retries and waits included."""
    retries: int = RETRIES
    """How often a call is repeated that could not reach its model."""
    server: Any = None
    """What answers there, if it runs in this process: it runs as long as anybody holds the engine."""
    _clients: dict[str, Client] = field(default_factory=dict[str, Client], init=False)

    def complete(self, request: Request) -> Response:
        """One answer, retries and waits included; see `answer`."""
        return run(self.answer(self.client(request.model), request), self.seconds)

    def stream(self, request: Request) -> Iterator[Any]:
        """The events of one answer, without retries."""
        return iterate(self.client(request.model).stream(request), self.seconds)

    def route(self, name: str) -> tuple[str, str] | None:
        """Provider and model of a name as `dspy.LM` takes it; None where litellm has to ask for it."""
        head, slash, rest = name.partition("/")
        if head != "openai" and address_in_environment(head):
            return None
        try:
            # What the provider calls its model may hold a colon, at which the router would part it.
            found = _router(env={}).resolve_openai_chat(f"{head}/any" if slash else name)
        except (UnknownModelError, UnsupportedFeatureError):
            return None
        if found.provider.startswith("azure") and self.address:
            return None
        return found.provider, rest if slash else found.model

    @property
    def digest(self) -> str | None:
        """A digest of the endpoint's kind and address; None where the name of the model says where it runs.

        That is so for a provider's own address, and for weights that run in this process, at another port each time.
        """
        return self._endpoint_digest

    def check_address(self) -> None:
        """Refuse an address in a variable that is none, before the first call.

        Raises:
            UserError: It is no address of a server.
        """
        self._address_of(self._kind)

    @functools.cached_property
    def _endpoint_digest(self) -> str | None:
        address = self._address_of(self._kind)
        if address is None or self.server is not None:
            return None
        return endpoint_digest(self._kind, address)

    @property
    def _kind(self) -> str:
        """The client that asks the endpoint."""
        route = self.route(self.model)
        return LITELLM if route is None else route[0]

    def _address_of(self, kind: str) -> str | None:
        """Return where an endpoint of a kind is asked; None where that is up to its provider's client."""
        if self.address:
            return self.address
        if kind == OPENAI_CHAT:
            return address_in_environment("openai")
        # A provider that has an address in a variable is asked by litellm.
        return address_in_environment(self.model.partition("/")[0]) if kind == LITELLM else None

    def client(self, name: str) -> Client:
        """What asks for a model.

        Raises:
            LM15Error: Its provider cannot be asked as this process is set up, e.g. for want of a key.
        """
        if name not in self._clients:
            route = self.route(name)
            self._clients[name] = self._other(name) if route is None else self._known(*route)
        return self._clients[name]

    async def answer(self, client: Client, request: Request) -> Response:
        """The answer to a request, retries and waits included; runs in the loop, for `seconds` at most.

        Raises:
            LM15Error: The last attempt failed.
        """
        try:
            return await with_retries(lambda: client.complete(request), self.retries, self.seconds)
        except LM15Error as error:
            hint = self._address_hint(error)
            if hint is None:
                raise
            raise type(error)(f"{one_line(error, 300)}{hint}", status=error.status) from error

    def _address_hint(self, error: LM15Error) -> str | None:
        """Return what to add to an error that a wrong address causes; None for other errors, and without an address."""
        from .http import UnreachableError

        if self.address is None or self.server is not None:
            return None
        if isinstance(error, UnreachableError):
            return f"; check the address ({ADDRESS_OPTION})"
        if error.status == 404:
            return (
                f" (status 404); check the address ({ADDRESS_OPTION}), which mostly ends in /v1, and the model's name"
            )
        return None

    def _known(self, provider: str, model: str) -> Client:
        # Their import takes a tenth of a second, before the call's own time begins.
        from .http import Transport
        from .reported_usage import UsageFilter

        address = self._address_of(provider)
        keys = {provider: self.key} if self.key else None
        addresses = {provider: address} if address else None
        transport = UsageFilter(Transport(self.timeout, self._secrets))
        router = _router(transport=transport, api_keys=keys, base_urls=addresses)
        return Client(provider, model, router.lm(f"{provider}:{model}"), self._secrets)

    def _other(self, name: str) -> Client:
        from dspy.clients.engines import AsyncLiteLLMEngine

        litellm_module()  # here, lest its import hold up the loop
        settings = {"api_key": self.key, "api_base": self.address, "timeout": self.timeout}
        given = {setting: value for setting, value in settings.items() if value is not None}
        return Client(name.partition("/")[0], name, AsyncLiteLLMEngine(**given), self._secrets)

    @property
    def _secrets(self) -> Secrets:
        """What the endpoint may be sent: a key that is not given here is one of the environment."""
        return Secrets([self.key, *secrets_of_address(self.address), *secrets_of_environment()])

    def add_cost(self, result: CallResult) -> None:
        """Gives a result what DSPy cannot tell without the provider: its cost, and how usage is counted there."""
        parts, client = [], self.client(self.model)
        for response in result.responses:
            parts.append(CallResult(usage=usage_dict(response, client.provider)))
            if _priced(client.provider, response.model, client.model):
                priced = estimate_cost(response, provider=client.provider, requested_model=client.model)
                parts[-1].cost, parts[-1].cost_details = priced
        whole = combine(parts, model_type="chat")
        result.cost, result.cost_details, result.usage = whole.cost, whole.cost_details, whole.usage

    def __getattr__(self, name: str) -> Any:
        # What DSPy asks an engine of its model, `supported_params` and the like.
        if not name.startswith("support"):
            raise AttributeError(name)
        found = self.__dict__[name] = getattr(dspy.LM(self.model), name)
        return found

    def __reduce__(self) -> tuple[type[Engine], tuple[Any, ...]]:
        return Engine, (self.model, self.address, self.key, self.timeout, self.seconds, self.retries)


@dataclass(frozen=True)
class AsyncEngine:
    """The same for asyncio, whatever loop the caller has."""

    engine: Engine

    async def complete(self, request: Request) -> Response:
        """One answer, retries and waits included."""
        return await arun(self.engine.answer(self.engine.client(request.model), request), self.engine.seconds)

    def stream(self, request: Request) -> AsyncIterator[Any]:
        """The events of one answer, without retries."""
        return aiterate(self.engine.client(request.model).stream(request), self.engine.seconds)


def engines(engine: Engine) -> dict[str, Any]:
    """What a `dspy.LM` is made with to ask by an engine: it, its like for asyncio, and no retries but its own."""
    return {"engine": engine, "async_engine": AsyncEngine(engine), "num_retries": 0}


@functools.lru_cache(maxsize=1024)
def _priced(provider: str, answered: str, asked: str) -> bool:
    """Whether a model has a price; to find that it has none takes longer than all else of a call."""
    one = Usage(input_tokens=1, output_tokens=1, total_tokens=2)
    said = Response(id=None, model=answered, message=Message.assistant("."), finish_reason="stop", usage=one)
    return estimate_cost(said, provider=provider, requested_model=asked)[0] is not None


def _router(**settings: Any) -> AsyncLMRouter:
    declared = tuple(each.definition for each in registered_providers())
    return AsyncLMRouter(RouterConfig(providers=declared, **settings))


Reply = tuple[int, Mapping[str, str], Iterator[bytes]]
"""Status, headers with names in small letters, and the body as it comes, cut behind newlines."""


class Upstream:
    """An endpoint that speaks OpenAI's chat; what it answers is handed on as it is, without retries.

    Args:
        lm: Whose guard, meter and bounds hold; the key of its endpoint is never in any answer.
    """

    def __init__(self, lm: Any) -> None:
        from .http import Transport  # takes a tenth of a second, before the call's own time begins

        client = lm.engine.client(lm.model)
        self.lm, self._client, self._secrets = lm, client.lm, client.secrets
        self._transport = Transport(lm.engine.timeout, client.secrets)
        self.model: str = client.model
        """What the endpoint calls the model."""

    @contextmanager
    def ask(self, body: Mapping[str, Any]) -> Generator[Reply]:
        """Sends a request of chat completions, as the endpoint takes it; its `model` is replaced.

        Raises:
            LMError: It cannot be reached, is cut off, silent, or refuses the key; what it says of that is not told.
            EndpointError: It has failed again and again, and is not asked for a while.
        """
        guard = self.lm.guard
        with (
            guard.slots(self.lm.endpoint).slot(),
            self.lm.admitted(),
            error_boundary(self.model),
            self._secrets.hiding(),
            closing(iterate(self._parts(body), self.lm.engine.seconds)) as parts,
        ):
            status, headers = next(parts)
            yield status, headers, self._without_secrets(_lines(parts), status)
        if status >= 500:
            guard.record_failure(LMTransportError(f"status {status}", model=self.model))

    def _without_secrets(self, lines: Iterator[bytes], status: int) -> Iterator[bytes]:
        """Return lines of a reply, those that speak of an error without what the endpoint was sent."""
        for line in lines:
            yield self._secrets.hide_in_bytes(line) if status != 200 or b'"error"' in line else line

    def count(self, usage: Any, body: Mapping[str, Any], answer: str) -> None:
        """Count a call that was answered.

        Args:
            usage: What the answer reports, of any kind; None if it reports nothing.
            body: The request, as `ask` takes it.
            answer: The text of the answer.
        """
        reported = usage if isinstance(usage, dict) else {}
        prompt = text_of_messages(body["messages"])
        prompt_tokens = believable_count(reported.get("prompt_tokens"), fewest_tokens(prompt))
        answer_tokens = believable_count(reported.get("completion_tokens"), fewest_tokens(answer))
        estimated = prompt_tokens is None or answer_tokens is None

        if prompt_tokens is None:
            prompt_tokens = estimate_tokens(prompt)
        if answer_tokens is None:
            answer_tokens = estimate_tokens(answer)
        self.lm.count(prompt_tokens, answer_tokens, estimated=estimated)

    async def _parts(self, body: Mapping[str, Any]) -> AsyncGenerator[Any]:
        headers = [("Authorization", f"Bearer {self._client.api_key or 'none'}"), ("Content-Type", "application/json")]
        headers += [("Accept", "text/event-stream" if body.get("stream") else "application/json")]
        content = json.dumps({**body, "model": self.model}).encode()
        url = f"{self._client.base_url.rstrip('/')}/chat/completions"
        request = SimpleNamespace(method="POST", url=url, headers=headers, body=content)
        async with self._transport.stream(request) as reply:
            if reply.status in (401, 403):
                raise LMAuthError(f"the endpoint refuses the key ({reply.status})", model=self.model)
            yield reply.status, {name.lower(): value for name, value in reply.headers}
            async for chunk in reply:
                yield chunk


def upstream_of(lm: Any) -> Upstream | None:
    """The endpoint of a metered model; None for one of this process, or that does not speak OpenAI's chat."""
    if not isinstance(getattr(lm, "engine", None), Engine):
        return None
    try:
        found = Upstream(lm)
    except LM15Error:  # there is no key
        return None
    return found if isinstance(found._client, AsyncOpenAIChatLM) else None


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest
