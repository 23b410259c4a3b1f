"""Named models behind DSPy's engine interface: `dspy.LM(name, engine=Engine(...), async_engine=AsyncEngine(...))`.

DSPy keeps its cache, history, callbacks and candidates; one request comes here, and one response goes back.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from functools import cached_property
from typing import Any

import dspy
from dspy.clients.call_result import CallResult, combine, usage_dict
from dspy.clients.costs import estimate_cost
from dspy.lm15 import Message, Request, Response, UnsupportedFeatureError, Usage, request_from_openai_chat

from ...errors import UserError, one_line
from .endpoint import BODY, Endpoint
from .loop import aiterate, arun, iterate, run


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
        parts = [self._settled(response) for response in result.responses]
        if not parts:
            return
        whole = parts[0] if len(parts) == 1 else combine(parts, model_type="chat")
        result.cost, result.cost_details = whole.cost, whole.cost_details
        if not result.cache_hit:
            result.usage = whole.usage

    def _settled(self, response: Response) -> CallResult:
        provider, model = self._named
        settled = CallResult(usage=usage_dict(response, provider))
        if _priced(provider, response.model, model):
            priced = estimate_cost(response, provider=provider, requested_model=model)
            settled.cost, settled.cost_details = priced
        return settled

    @cached_property
    def _named(self) -> tuple[str, str]:
        return self.endpoint.route(self.model) or (self.model.partition("/")[0], self.model)

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
