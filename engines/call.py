"""One call of a metered language model: its request and its result."""

from __future__ import annotations

import datetime
import hashlib
import json
import uuid
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import dspy
from dspy.clients.call_result import CallResult

from ..records import estimate_tokens, fewest_tokens
from .endpoint import RemoteEngine
from .token_counts import believable_count, text_of_messages, text_of_outputs


class ReportedTokens(NamedTuple):
    """What an endpoint reports of one call, of any kind; None of what it does not report."""

    prompt: object
    answer: object


class CallTokens(NamedTuple):
    """The tokens of one call, all its candidates together."""

    prompt: int
    answer: int
    estimated: bool
    """Whether one of the two is our estimate."""


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

    @cached_property
    def cache_key(self) -> dict[str, Any]:
        """The request as DSPy's cache knows it, which all runs share: another server may have a model of that name.

        A run's own answers are kept by `key`: a server that has moved must not cost everything again.
        """
        endpoint = self.lm.engine.digest if isinstance(self.lm.engine, RemoteEngine) else None
        return self.request if endpoint is None else {**self.request, "endpoint": endpoint}

    @property
    def cache(self) -> bool:
        """Whether DSPy's cache may answer."""
        return bool(self.kwargs.get("cache", self.lm.cache))

    @property
    def n(self) -> int:
        """How many answers it asks for."""
        return self.request.get("n") or 1

    @cached_property
    def tokens(self) -> CallTokens:
        """The tokens of the call, once it has a result; of an endpoint's numbers only those that can be true."""
        result: Any = self.result
        # DSPy asks once for each candidate, and so sends the prompt as often.
        candidates = max(1, len(result.responses))

        prompt_minimum = answer_minimum = 0
        if isinstance(self.lm.engine, RemoteEngine):  # models of this process are trusted
            prompt_minimum = candidates * fewest_tokens(text_of_messages(self.request["messages"]))
            answer_minimum = fewest_tokens(text_of_outputs(result.outputs))

        reported = self._reported_tokens(result)
        prompt = believable_count(reported.prompt, prompt_minimum)
        answer = believable_count(reported.answer, answer_minimum)
        estimated = prompt is None or answer is None

        if prompt is None:
            prompt = candidates * self.prompt_tokens
        if answer is None:
            answer = estimate_tokens(json.dumps(result.outputs, ensure_ascii=False, default=str))
        return CallTokens(prompt, answer, estimated)

    def _reported_tokens(self, result: CallResult) -> ReportedTokens:
        """What the endpoint reports; nothing where it reports 0 of both."""
        usage = result.usage or {}
        prompt, answer = usage.get("prompt_tokens"), usage.get("completion_tokens")

        if not (prompt or answer) and result.responses:
            # A result from a cache has lost its usage, but not its responses: there is one for each candidate.
            usages = [response.usage for response in result.responses]
            prompt = sum(usage.input_tokens or 0 for usage in usages)
            answer = sum(usage.output_tokens or 0 for usage in usages)

        if not (prompt or answer):
            return ReportedTokens(None, None)
        return ReportedTokens(prompt or 0, answer or 0)

    @property
    def prompt_tokens(self) -> int:
        """About how many tokens it sends, the schema that its answer has to fit included."""
        return estimate_tokens(json.dumps(self.request, ensure_ascii=False, default=schema))

    def cached(self) -> CallResult | None:
        """The result that DSPy's cache has."""
        found = dspy.cache.get(self.cache_key) if self.cache else None
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


def schema(value: Any) -> Any:
    """Response formats are model classes; their schema is what the endpoint sees."""
    return value.model_json_schema() if hasattr(value, "model_json_schema") else str(value)
