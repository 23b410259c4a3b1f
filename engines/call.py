"""One call of a metered language model: its request and its result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import dspy
from dspy.clients.call_result import CallResult

from ..records import estimate_tokens, fewest_tokens
from .dspy_internals import cached_request, history_entry, result_of_entry
from .endpoint import RemoteEngine
from .token_counts import believable_count, text_of_messages, text_of_outputs
from .usage import Role

_CLIENT_SETTINGS = ("api_", "base_url", "timeout", "cache")
"""What settings begin with that say how an endpoint is asked, not what it is asked."""


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


class CalledModel(Protocol):
    """What a call knows of the model that is called; `meter.MeteredLM` is one."""

    model: str
    model_type: str
    kwargs: dict[str, Any]
    cache: bool
    role: Role

    @property
    def engine(self) -> Any:
        """What answers requests, as DSPy has it."""
        ...


@dataclass
class Call:
    """One call, which asks for one or several answers (candidates)."""

    lm: CalledModel
    prompt: Any
    messages: Any
    kwargs: dict[str, Any]
    is_hidden: bool = field(default_factory=lambda: bool(dspy.settings.disable_history))
    """Whether it is left out of histories."""
    result: CallResult | None = None
    """None until it is answered."""
    outputs: Any = None
    """What the caller gets."""
    samples: list[Any] = field(default_factory=list[Any])
    """What a local model records of each answer (`local.sampling.Sample`)."""

    @cached_property
    def request(self) -> dict[str, Any]:
        """What the answer depends on, in the form of DSPy's cache: no addresses, keys, timeouts."""
        messages = self.messages or [{"role": "user", "content": self.prompt}]
        merged = {"model": self.lm.model, "messages": messages, **self.lm.kwargs, **self.kwargs}
        request = {
            name: value for name, value in merged.items() if not name.startswith(_CLIENT_SETTINGS)
        }

        # No rollout id is the same request as one that is None.
        if request.get("rollout_id") is None:
            request.pop("rollout_id", None)
        # A local model answers otherwise once it has been trained.
        weights = getattr(self.lm.engine, "weights_version", None)
        if weights is not None:
            request["weights"] = weights
        return cached_request(request)

    @cached_property
    def key(self) -> str:
        """A digest of the request, by which a run keeps the answer.

        The endpoint is no part of it: a server that has moved must not cost everything again.
        """
        text = json.dumps(self.request, sort_keys=True, default=json_schema)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def cache_key(self) -> dict[str, Any]:
        """The request as DSPy's cache knows it.

        All runs share that cache, so the endpoint is part of the key: another server may have a
        model of the same name.
        """
        if not isinstance(self.lm.engine, RemoteEngine) or self.lm.engine.digest is None:
            return self.request
        return {**self.request, "endpoint": self.lm.engine.digest}

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
        """The tokens of the answered call, as its endpoint reports them.

        Numbers that it does not report, or that are too low for the texts, are estimated.
        """
        result: Any = self.result
        # DSPy asks once for each candidate, and so sends the prompt as often.
        candidates = max(1, len(result.responses))

        # The fewest tokens that can be believed.
        prompt_minimum = 0
        answer_minimum = 0
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
        """Return what the endpoint reports; None for both where it reports 0 of both.

        No call takes 0 tokens, so an endpoint that says so does not count them.
        """
        usage = result.usage or {}
        prompt = usage.get("prompt_tokens")
        answer = usage.get("completion_tokens")

        if not (prompt or answer) and result.responses:
            # A result from a cache has lost its usage, but not its responses, one per candidate.
            usages = [response.usage for response in result.responses]
            prompt = sum(usage.input_tokens or 0 for usage in usages)
            answer = sum(usage.output_tokens or 0 for usage in usages)

        if not (prompt or answer):
            return ReportedTokens(None, None)
        return ReportedTokens(prompt or 0, answer or 0)

    @property
    def prompt_tokens(self) -> int:
        """Our estimate of the tokens it sends, the schema of its answer included."""
        text = json.dumps(self.request, ensure_ascii=False, default=json_schema)
        return estimate_tokens(text)

    def read_cache(self) -> CallResult | None:
        """Return the result that DSPy's cache has; None if it has none."""
        record = dspy.cache.get(self.cache_key)
        if not isinstance(record, dict) or "responses" not in record:
            return None
        return CallResult.load(record)

    def set_result(self, entry: dict[str, Any]) -> CallResult:
        """Set the result from DSPy's entry in the history, and return it."""
        self.result = result_of_entry(entry)
        return self.result

    def history_entry(self, result: CallResult) -> dict[str, Any]:
        """Return the entry in the history for a call whose answer was known already."""
        return history_entry(self.lm, self.prompt, self.messages, self.kwargs, result)


def json_schema(value: Any) -> Any:
    """Return the JSON schema of a response format, which is a model class; of others the text."""
    return value.model_json_schema() if hasattr(value, "model_json_schema") else str(value)
