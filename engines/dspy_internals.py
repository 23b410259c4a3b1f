"""What depends on the inside of DSPy 3.4, all of it in this file.

DSPy has no public interface for what is done here. A new version of DSPy may change any of it, and
then only this file has to change. For each part the missing interface is named:

| part              | what DSPy lacks                                                          |
|-------------------|--------------------------------------------------------------------------|
| `BODY_FIELDS`     | settings of a `dspy.LM` with an engine that go into the body as they are |
| `cached_request`  | the key under which its cache keeps the answer to a call                 |
| `result_of_entry` | the responses, usage and cost of a call, for a subclass of `dspy.LM`     |
| `history_entry`   | a way to record a call whose answer was known                            |
| `async_engine_of` | the engine of a `dspy.LM` for asyncio; `LM.engine` is the other one      |
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

import dspy
from dspy.clients.call_result import CallResult

BODY_FIELDS = "metadata"
"""The setting of a request that holds the fields of the body that DSPy refuses, e.g. `min_p`.

DSPy refuses every setting that it does not know, `extra_body` among them, and hands `metadata` on
as it is. The settings of a model must hold these fields all the same: cache keys are made of them.
"""

_CACHED_FUNCTION = "dspy.clients.lm.litellm_completion"
"""What DSPy's cache calls the function that makes a chat call, whatever engine answers it."""


def unpack_body_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a request with those that `BODY_FIELDS` holds beside the others."""
    fields = dict(settings)
    fields.update(fields.pop(BODY_FIELDS, {}))
    return fields


def cached_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request in the form in which DSPy makes it a key of its cache.

    Answers that DSPy cached for a plain `dspy.LM` are found by it.
    """
    return {**request, "_fn_identifier": _CACHED_FUNCTION}


def result_of_entry(entry: Mapping[str, Any]) -> CallResult:
    """Return the result of a call from the entry that DSPy makes for its history.

    A subclass of `dspy.LM` gets the whole result nowhere else: DSPy's call returns the texts alone,
    and hands everything to `LM.update_history` as this entry.
    """
    # DSPy makes one request for each candidate; of several, the responses are a tuple.
    response = entry["response"]
    responses = response if isinstance(response, tuple) else (response,)
    return CallResult(
        responses=responses,
        outputs=entry["outputs"],
        usage=entry["usage"],
        cost=entry["cost"],
        raw=response,
        response_model=entry["response_model"],
        cache_hit=False,  # the pipeline has looked into the cache before this call
        cost_details=entry.get("cost_details", {}),
    )


class NamedModel(Protocol):
    """What an entry of the history says of the model; every `dspy.LM` has it."""

    model: str
    model_type: str


def history_entry(
    lm: NamedModel, prompt: Any, messages: Any, settings: Mapping[str, Any], result: CallResult
) -> dict[str, Any]:
    """Return the entry that DSPy would have made in its history, had it made a call.

    Args:
        lm: The model of the call.
        prompt: The prompt of the call, or None.
        messages: Its messages, or None.
        settings: What the call sets beside the settings of its model.
        result: The answer that was known.
    """
    response: Any = result.responses
    if len(result.responses) == 1:
        response = result.responses[0]
    return {
        "prompt": prompt,
        "messages": messages,
        "kwargs": settings,
        "response": response,
        "outputs": result.outputs,
        "usage": result.usage,  # a result from a cache has none
        "cost": result.cost,
        "timestamp": datetime.datetime.now().isoformat(),
        "uuid": str(uuid.uuid4()),
        "model": lm.model,
        "response_model": result.response_model,
        "model_type": lm.model_type,
    }


def async_engine_of(lm: dspy.LM) -> Any:
    """Return the engine that a model asks under asyncio; None if it has none of its own."""
    return getattr(lm, "_async_engine_spec", None)
