"""One call of a metered language model: its request, its result, and who listens to it."""

from __future__ import annotations

import contextvars
import datetime
import hashlib
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import dspy
from dspy.clients.call_result import CallResult

from ..records import estimate_tokens
from .spending import MOST_TOLD


@dataclass
class Call:
    """One call, which asks for one or several answers."""

    lm: Any
    prompt: Any
    messages: Any
    kwargs: dict[str, Any]
    quiet: bool = field(default_factory=lambda: bool(dspy.settings.disable_history))
    """Whether it is left out of histories."""
    result: CallResult | None = None
    outputs: Any = None
    """What the caller gets."""
    samples: list[Any] = field(default_factory=list[Any])
    """What a local model records of each answer (`local.sampling.Sample`)."""

    @cached_property
    def request(self) -> dict[str, Any]:
        """What the answer depends on, without addresses, keys and timeouts, as DSPy's cache has it."""
        client = ("api_", "base_url", "timeout", "cache")
        messages = self.messages or [{"role": "user", "content": self.prompt}]
        merged = {"model": self.lm.model, "messages": messages, **self.lm.kwargs, **self.kwargs}
        found = {name: value for name, value in merged.items() if not name.startswith(client)}
        if found.get("rollout_id") is None:
            found.pop("rollout_id", None)
        found["_fn_identifier"] = "dspy.clients.lm.litellm_completion"
        weights = getattr(self.lm.engine, "weights_version", None)
        return found if weights is None else {**found, "weights": weights}

    @cached_property
    def key(self) -> str:
        """A digest of what the answer depends on."""
        return hashlib.sha256(json.dumps(self.request, sort_keys=True, default=schema).encode()).hexdigest()

    @property
    def cache(self) -> bool:
        """Whether DSPy's cache may answer."""
        return bool(self.kwargs.get("cache", self.lm.cache))

    @property
    def n(self) -> int:
        """How many answers it asks for."""
        return self.request.get("n") or 1

    @cached_property
    def tokens(self) -> tuple[int, int, bool]:
        """Those of the prompt and of the answers, and whether they are estimated: the endpoint has not told them."""
        result: Any = self.result
        usage = result.usage or {}
        sent, generated = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
        if not (sent or generated) and result.responses:  # one from a cache has lost its usage, but not its responses
            first = result.responses[0].usage
            sent, generated = first.input_tokens or 0, first.output_tokens or 0
        if (sent or generated) and all(0 <= count < MOST_TOLD for count in (sent, generated)):
            return sent, generated, False
        said = json.dumps(result.outputs, ensure_ascii=False, default=str)
        return self.prompt_tokens, estimate_tokens(said), True

    @property
    def prompt_tokens(self) -> int:
        """About how many tokens it sends, the schema that its answer has to fit included."""
        return estimate_tokens(json.dumps(self.request, ensure_ascii=False, default=schema))

    def cached(self) -> CallResult | None:
        """The result that DSPy's cache has."""
        found = dspy.cache.get(self.request) if self.cache else None
        return CallResult.load(found) if isinstance(found, dict) and "responses" in found else None

    def answered(self, entry: dict[str, Any]) -> CallResult:
        """The result of a call that DSPy made, by its entry in the history."""
        told, cost = entry["response"], entry["cost"]
        responses, details = told if isinstance(told, tuple) else (told,), entry.get("cost_details", {})
        model = entry["response_model"]
        self.result = CallResult(responses, entry["outputs"], entry["usage"], cost, told, model, False, details)
        return self.result

    def entry(self, result: CallResult) -> dict[str, Any]:
        """The entry in the history of a call whose answer was known."""
        told = result.responses[0] if len(result.responses) == 1 else result.responses
        return {
            "prompt": self.prompt,
            "messages": self.messages,
            "kwargs": self.kwargs,
            "response": told,
            "outputs": result.outputs,
            "usage": {} if result.cache_hit else result.usage,
            "cost": result.cost,
            "timestamp": datetime.datetime.now().isoformat(),
            "uuid": str(uuid.uuid4()),
            "model": self.lm.model,
            "response_model": result.response_model,
            "model_type": self.lm.model_type,
        }


going_on: contextvars.ContextVar[Call | None] = contextvars.ContextVar("mempiler_call", default=None)

Hear = Callable[[Any, Sequence[Any], Sequence[Any]], None]
"""Takes the messages of a call, or its prompt where it has none, the answers as DSPy has them, and their samples."""
HEARING: contextvars.ContextVar[Hear | None] = contextvars.ContextVar("hearing", default=None)
"""Who knows of the calls of a block; nobody if None."""


def schema(value: Any) -> Any:
    """Response formats are model classes; their schema is what the endpoint sees."""
    return value.model_json_schema() if hasattr(value, "model_json_schema") else str(value)
