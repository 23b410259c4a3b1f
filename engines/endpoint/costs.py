"""What answers of an endpoint cost.

DSPy prices the answers of its own engines, by the provider that gives them. Of an engine that is
passed to `dspy.LM` it does not know the provider, so what it would do is done here.
"""

from __future__ import annotations

import functools

from dspy.clients.call_result import CallResult, combine, usage_dict
from dspy.clients.costs import estimate_cost
from dspy.lm15 import Message, Response, Usage


def add_cost(result: CallResult, provider: str, model: str) -> None:
    """Set the cost of a result, and its usage as the provider counts it.

    Args:
        result: The result of a call, which has one response for each candidate.
        provider: The provider of the model.
        model: What the provider calls it.
    """
    priced = [_priced(response, provider, model) for response in result.responses]
    total = combine(priced, model_type="chat")
    result.cost = total.cost
    result.cost_details = total.cost_details
    result.usage = total.usage


def _priced(response: Response, provider: str, model: str) -> CallResult:
    """Return the usage of a response, and its cost where the model has a price."""
    priced = CallResult(usage=usage_dict(response, provider))
    if _has_price(provider, response.model, model):
        cost, details = estimate_cost(response, provider=provider, requested_model=model)
        priced.cost = cost
        priced.cost_details = details
    return priced


@functools.lru_cache(maxsize=1024)
def _has_price(provider: str, answering_model: str, requested_model: str) -> bool:
    """Tell whether DSPy knows a price of a model, by pricing a response of two tokens.

    The answer is remembered: to find out that a model has no price takes longer than all else of a
    call.

    Args:
        provider: The provider of the model.
        answering_model: What the response calls the model.
        requested_model: What the request calls it.
    """
    usage = Usage(input_tokens=1, output_tokens=1, total_tokens=2)
    response = Response(
        id=None,
        model=answering_model,
        message=Message.assistant("."),
        finish_reason="stop",
        usage=usage,
    )
    cost, _ = estimate_cost(response, provider=provider, requested_model=requested_model)
    return cost is not None
