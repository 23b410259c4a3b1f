"""Named models behind DSPy's engine interface: `dspy.LM(name, engine=Engine(...), async_engine=AsyncEngine(...))`.

DSPy keeps its cache, history, callbacks and candidates; one request comes here, and one response goes back.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from typing import Any

import dspy
from dspy.clients.call_result import CallResult, combine, usage_dict
from dspy.clients.costs import estimate_cost
from dspy.lm15 import (
    Config,
    LM15Error,
    Message,
    Request,
    Response,
    UnsupportedFeatureError,
    UnsupportedModelError,
    Usage,
    request_from_openai_chat,
)

from ...errors import UserError, one_line
from ..spending import litellm_module
from .endpoint import BODY, Client, Endpoint
from .loop import aiterate, arun, iterate, run

_PATIENCE = 5.0
"""Seconds that a provider has to say which models it has."""


class Engine:
    """Asks an endpoint for a model by its name in DSPy; errors are those of `dspy.lm15`."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self.endpoint, self.model = endpoint, model

    @property
    def address(self) -> str:
        """What tells the endpoint from others: its address, or else the provider."""
        return self.endpoint.address or self.model.partition("/")[0]

    def complete(self, request: Request) -> Response:
        """One answer, retries and waits included; see `Endpoint.complete`."""
        return run(self._asked(request), self.endpoint.seconds)

    def stream(self, request: Request) -> Iterator[Any]:
        """The events of one answer, without retries."""
        return iterate(self.endpoint.client(request.model).stream(request), self.endpoint.seconds)

    def _asked(self, request: Request) -> Coroutine[Any, Any, Response]:
        return self.endpoint.complete(self.endpoint.client(request.model), request)

    def settle(self, result: CallResult) -> None:
        """Gives a result what DSPy cannot tell without the provider: its cost, and how usage is counted there."""
        parts, client = [], self.endpoint.client(self.model)
        for response in result.responses:
            parts.append(CallResult(usage=usage_dict(response, client.provider)))
            if _priced(client.provider, response.model, client.model):
                priced = estimate_cost(response, provider=client.provider, requested_model=client.model)
                parts[-1].cost, parts[-1].cost_details = priced
        if parts:
            whole = parts[0] if len(parts) == 1 else combine(parts, model_type="chat")
            result.cost, result.cost_details = whole.cost, whole.cost_details
            if not result.cache_hit:
                result.usage = whole.usage

    def __getattr__(self, name: str) -> Any:
        # What DSPy asks an engine of its model, `supported_params` and the like.
        if not name.startswith("support"):
            raise AttributeError(name)
        found = self.__dict__[name] = getattr(dspy.LM(self.model), name)
        return found

    def __deepcopy__(self, memo: object = None) -> Any:
        return self

    def __reduce__(self) -> tuple[type[Any], tuple[Any, ...]]:
        return type(self), (self.endpoint, self.model)


class AsyncEngine(Engine):
    """The same for asyncio, whatever loop the caller has."""

    async def complete(self, request: Request) -> Response:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One answer, retries and waits included."""
        return await arun(self._asked(request), self.endpoint.seconds)

    def stream(self, request: Request) -> AsyncIterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The events of one answer, without retries."""
        return aiterate(self.endpoint.client(request.model).stream(request), self.endpoint.seconds)


def engines(endpoint: Endpoint, model: str) -> dict[str, Any]:
    """What a `dspy.LM` is made with to ask an endpoint: both engines, and no retries but theirs."""
    return {"engine": Engine(endpoint, model), "async_engine": AsyncEngine(endpoint, model), "num_retries": 0}


def request_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of every request as `dspy.LM` takes them; those that it refuses become fields of the body.

    Raises:
        UserError: A name is what each call sets by itself, or a value is none that it may have.
    """
    known, fields = {}, {}
    for name, value in settings.items():
        if name in _PER_CALL:
            raise UserError(f"--lm-set {name}: is no setting of a model; it is set by Mempiler for each call")
        try:
            request_from_openai_chat({"model": "any", "messages": [{"role": "user", "content": "Hi"}], name: value})
        except UnsupportedFeatureError:
            fields[name] = value
        except (TypeError, ValueError) as error:
            raise UserError(f"--lm-set {name}={value}: {one_line(error, 200)}") from error
        else:
            (fields if name in _LIKE_OPTIONS_OF_DSPY else known)[name] = value
    if isinstance(known.get("temperature"), int):
        known["temperature"] = float(known["temperature"])  # 0 and 0.0 are one request
    return {**known, BODY: fields} if fields else known


_PER_CALL = {"model", "messages", "stream", "stream_options", "n", "response_format", "cache", "rollout_id", "timeout"}
_PER_CALL |= {"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"}
_PER_CALL |= {"api_key", "api_base", "base_url", "headers", "extra_headers", "extra_query"}
_LIKE_OPTIONS_OF_DSPY = {BODY, "provider"}


@functools.lru_cache(maxsize=1024)
def _priced(provider: str, answered: str, asked: str) -> bool:
    """Whether a model has a price; to find that it has none takes longer than all else of a call."""
    one = Usage(input_tokens=1, output_tokens=1, total_tokens=2)
    said = Response(id=None, model=answered, message=Message.assistant("."), finish_reason="stop", usage=one)
    return estimate_cost(said, provider=provider, requested_model=asked)[0] is not None


def check_provider(name: str, endpoint: Endpoint) -> None:
    """Refuses a name of which DSPy would find out only with the first call that nobody provides it.

    Raises:
        UserError: The message says how models are named.
    """
    if endpoint.route(name):
        return
    litellm = litellm_module()
    try:
        litellm.get_llm_provider(name, api_base=endpoint.address)
    except litellm.exceptions.BadRequestError:
        raise UserError(
            f"language model {name!r}: no provider is known for it; write PROVIDER/MODEL, e.g. "
            "openai/gpt-4.1-mini, or openai/NAME with --api-base for an OpenAI-compatible server"
        ) from None


def check_askable(lm: Any) -> None:
    """Refuses a named model whose provider's key is not set; its endpoint is not asked.

    Args:
        lm: A language model, whose name is known (`check_provider`).

    Raises:
        UserError: The key is not set.
    """
    if not isinstance(lm.engine, Engine) or _client(lm):
        return
    name, endpoint = lm.model, lm.engine.endpoint
    missing = litellm_module().validate_environment(name, endpoint.key, endpoint.address)["missing_keys"]
    # Other settings may come from elsewhere, e.g. the rights of a machine in a cloud.
    if missing and not endpoint.address and all(each.endswith("_API_KEY") for each in missing):
        raise UserError(f"language model {name!r}: there is no key; set {' and '.join(missing)}")


def check_known(lm: Any) -> None:
    """Refuses a named model that its provider does not have.

    The provider's list is asked for, which costs nothing. Some lists lack names that work, so a model that is not in it
    is asked for one token, and refused where the provider then says that there is none. A provider that does not
    answer, or has no list, is no reason to refuse anything.

    Args:
        lm: A language model that can be asked (`check_askable`).

    Raises:
        UserError: There is no such model; the message names those that are called much the same.
    """
    client = _client(lm) if isinstance(lm.engine, Engine) else None
    if client is None:
        return
    listed: list[str] = []
    try:
        listed = [found.id for found in run(client.lm.list_models(), _PATIENCE)]
        ends = (f"/{client.model}", f":{client.model}")
        if listed and not any(name == client.model or name.endswith(ends) for name in listed):
            asked = Request(model=client.model, messages=(Message.user("Hi"),), config=Config(max_tokens=1))
            run(client.lm.complete(asked), _PATIENCE)
    except UnsupportedModelError as error:
        near = difflib.get_close_matches(client.model, listed, 3, 0.5) or listed[:3]
        more = ", ..." if len(listed) > len(near) else ""
        told = f"its provider has no such model; it has {', '.join(near)}{more}"
        raise UserError(f"language model {lm.model!r}: {told}") from error
    except (LM15Error, OSError, ValueError):
        return


def _client(lm: Any) -> Client | None:
    """What asks for a model; None where that is litellm."""
    try:
        return lm.engine.endpoint.client(lm.model) if lm.engine.endpoint.route(lm.model) else None
    except LM15Error as error:
        names = " or ".join(getattr(error, "env_keys", ()))
        reason = f"there is no key; set {names}" if names else str(error).partition("\n")[0]
        raise UserError(f"language model {lm.model!r}: {reason}") from error
