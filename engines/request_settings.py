"""Settings that every request to a model has, as `dspy.LM` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dspy.lm15 import UnsupportedFeatureError, request_from_openai_chat

from ..errors import UserError
from ..text import one_line
from .dspy_internals import BODY_FIELDS

_SET_PER_CALL = {
    "api_base",
    "api_key",
    "base_url",
    "cache",
    "extra_headers",
    "extra_query",
    "function_call",
    "functions",
    "headers",
    "messages",
    "model",
    "n",
    "parallel_tool_calls",
    "response_format",
    "rollout_id",
    "stream",
    "stream_options",
    "timeout",
    "tool_choice",
    "tools",
}
"""Fields of a request that are no settings of a model: they differ from call to call."""
_OPTIONS_OF_DSPY = {BODY_FIELDS, "provider"}
"""Fields of a body that DSPy would take for options of its own."""


def request_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of every request as `dspy.LM` takes them.

    Those that DSPy refuses become fields of the body, which the endpoint gets as they are.

    Raises:
        UserError: A name is set by each call itself, or may not have its value.
    """
    known: dict[str, Any] = {}
    body_fields: dict[str, Any] = {}
    for name, value in settings.items():
        if _is_known_to_dspy(name, value):
            known[name] = value
        else:
            body_fields[name] = value

    if isinstance(known.get("temperature"), int):
        known["temperature"] = float(known["temperature"])  # 0 and 0.0 are one request
    if body_fields:
        known[BODY_FIELDS] = body_fields
    return known


def _is_known_to_dspy(name: str, value: Any) -> bool:
    """Tell whether DSPy takes a setting; otherwise it is a field of the body.

    Raises:
        UserError: As `request_settings`.
    """
    if name in _SET_PER_CALL:
        reason = "is no setting of a model; it is set by Mempiler for each call"
        raise UserError(f"--lm-set {name}: {reason}")

    message = {"role": "user", "content": "Hi"}
    try:
        request_from_openai_chat({"model": "any", "messages": [message], name: value})
    except UnsupportedFeatureError:
        return False
    except (TypeError, ValueError) as error:
        raise UserError(f"--lm-set {name}={value}: {one_line(error, 200)}") from error
    return name not in _OPTIONS_OF_DSPY
