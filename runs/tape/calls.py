"""A call of a language model as a recording has it: what it is known by, and what came of it, both ways."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

import dspy
from dspy.clients.call_result import CallResult
from dspy.lm15 import Message, Response, TextPart, ToolCallPart, Usage
from dspy.utils import exceptions
from dspy.utils.exceptions import LMError, LMInvalidRequestError, LMUnsupportedModelError

from ...engines.bounds import NobodyWaitsError
from ...engines.meter import MeteredLM, digest_of, request_of
from .file import Answer, Called, Failed, Thought, public_name

KEY = 32
"""Digits of a call's digest."""
PART = 12
"""Digits of a message's digest."""
_ERRORS: dict[str, type[LMError]] = {
    name: kind for name, kind in vars(exceptions).items() if isinstance(kind, type) and issubclass(kind, LMError)
} | {"NobodyWaitsError": NobodyWaitsError}
_PLACES = re.compile(
    r"\w+://[^\s\"'<>]+"  # an address
    r"|\b[\w.-]+:\d{2,5}\b|(?:\d{1,3}\.){3}\d{1,3}"  # a host
    r"|[~.]*/[\w.@+-]+(?:/[\w.@+-]*)+|\b[A-Za-z]:\\\S+"  # a file
    r"|\b(?:sk|key|pk)-\S+"
)


class Numbers:
    """Numbers equal calls in the order in which they begin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: Counter[str] = Counter()

    def next(self, key: str) -> int:
        """The number of one more call with a key, from 0."""
        with self._lock:
            number = self._begun[key]
            self._begun[key] += 1
            return number


def asked(lm: MeteredLM, call: Any) -> dict[str, Any]:
    """What a prepared call is known by, but for its number: fields of `file.Call`."""
    request = request_of(lm, call)
    key = digest_of({**request, "model": public_name(lm.model)})[:KEY]
    parts = [digest_of({"message": message})[:PART] for message in request.get("messages", [])]
    return {"role": lm.role, "by": _predictor()[:200], "key": key, "parts": parts}


def answer_of(lm: MeteredLM, result: CallResult) -> Answer:
    """What a call brought."""
    choices: Any = getattr(result.raw, "choices", None) or []
    reasons: list[str | None] = [response.finish_reason for response in result.responses]
    return Answer(
        outputs=[_output(each) for each in result.outputs],
        finish=reasons or [getattr(choice, "finish_reason", None) for choice in choices],
        native=bool(result.responses),
        usage=_counts(result.usage or {}),
        cost=lm.cost_of(result),
    )


def failure_of(lm: MeteredLM, error: LMError) -> Failed:
    """How a call failed; its message is kept where it is about the prompt, without addresses and paths."""
    kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in _ERRORS)
    refused = isinstance(error, LMInvalidRequestError) and not isinstance(error, LMUnsupportedModelError)
    message = _without_places(error.message, lm) or "refused" if refused else ""
    return Failed(error=kind, message=message, status=error.status, code=(error.code or "")[:80] or None)


def error_of(lm: MeteredLM, failed: Failed) -> LMError:
    """The error of a call that failed when it was recorded."""
    kind: Any = _ERRORS.get(failed.error, LMError)
    message = failed.message or "the call failed when it was recorded"
    return kind(message=message, model=public_name(lm.model), status=failed.status, code=failed.code)


def result_of(lm: MeteredLM, found: Answer | Failed) -> CallResult:
    """What DSPy gets of a recorded call.

    Raises:
        LMError: It failed.
    """
    if isinstance(found, Failed):
        raise error_of(lm, found)
    outputs: list[Any] = [_said(each) if isinstance(each, Thought) else each for each in found.outputs]
    raw = {"choices": [{"finish_reason": reason} for reason in found.finish]}
    record = {"responses": [], "outputs": outputs, "cost": found.cost, "raw": raw, "response_model": None}
    made = CallResult.load(record)
    made.cache_hit, made.usage = False, dict(found.usage)
    if found.native:
        # Every candidate was a call of its own, and is counted as one.
        usage = _share(found.usage, len(outputs))
        made.responses = tuple(_response(lm.model, *one, usage) for one in zip(outputs, found.finish, strict=True))
    return made


def _share(usage: Mapping[str, Any], candidates: int) -> Usage:
    """The tokens of one of several candidates."""
    told = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    sent, generated = (each // candidates if isinstance(each, int) else 0 for each in told)
    return Usage(input_tokens=sent, output_tokens=generated)


def _predictor() -> str:
    """The predictor that asks."""
    module = next(iter(reversed(dspy.settings.caller_modules or [])), None)
    signature = getattr(module, "signature", None)
    name = getattr(module, "label", None) or getattr(signature, "__name__", None)
    return str(name or type(module).__name__)


def _output(output: Any) -> str | Thought | None:
    if output is None or isinstance(output, str):
        return output
    calls = [_called(each) for each in output.get("tool_calls") or ()]
    return Thought(text=output.get("text"), reasoning_content=output.get("reasoning_content") or "", calls=calls)


def _called(call: Any) -> Called:
    function = call["function"]
    return Called(id=call.get("id"), name=function["name"], arguments=function["arguments"])


def _said(thought: Thought) -> dict[str, Any]:
    """An output as DSPy has it."""
    found: dict[str, Any] = {"text": thought.text}
    if thought.reasoning_content:
        found["reasoning_content"] = thought.reasoning_content
    if thought.calls:
        functions = [{"name": each.name, "arguments": each.arguments} for each in thought.calls]
        named = zip(thought.calls, functions, strict=True)
        found["tool_calls"] = [{"id": each.id, "type": "function", "function": function} for each, function in named]
    return found


def _counts(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a usage; some providers put other things beside them."""
    counts = {name: value for name, value in usage.items() if isinstance(value, int) and value >= 0}
    return counts | {name: _counts(value) for name, value in usage.items() if isinstance(value, Mapping)}


def _without_places(message: str, lm: MeteredLM) -> str:
    text = " ".join(str(message).split())[:600]
    for secret in (lm.kwargs.get("api_key"), lm.kwargs.get("api_base")):
        text = text.replace(str(secret), "...") if secret else text
    return _PLACES.sub("...", text)[:300]


def _response(model: str, output: Any, reason: Any, usage: Usage) -> Response:
    said: dict[str, Any] = output if isinstance(output, dict) else {"text": output}
    text, calls = said["text"], said.get("tool_calls", ())
    parts = [TextPart(text or "")] if text is not None or not calls else []
    tools = [ToolCallPart(each["id"], each["function"]["name"], _arguments(each["function"])) for each in calls]
    message = Message(role="assistant", parts=(*parts, *tools))
    return Response(id=None, model=model, message=message, finish_reason=reason, usage=usage)


def _arguments(function: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(function["arguments"])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
