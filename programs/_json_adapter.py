"""Adapters that ask for a JSON object: in words, or under a schema that the endpoint enforces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy

from ._correcting_adapter import CorrectingAdapter, SystemMessages


class JsonAdapter(CorrectingAdapter, dspy.JSONAdapter):
    """A `dspy.JSONAdapter` that reads tolerantly and asks again for an unreadable answer.

    DSPy decides by its tables of models whether the endpoint is asked for JSON, or for a schema.
    """

    layout = "json"
    pipeline = dspy.JSONAdapter

    def __init__(self) -> None:
        super().__init__(use_native_function_calling=True)


class SchemaAdapter(CorrectingAdapter, dspy.JSONAdapter):
    """A `dspy.JSONAdapter` that asks for JSON under a schema, which the endpoint has to enforce.

    Like `JsonAdapter`, it reads tolerantly and asks again for an unreadable answer.

    Args:
        schema: The schema of the outputs, see `output_schema`.
        system_messages: System messages to share with another adapter.
    """

    layout = "json"
    # Not `dspy.JSONAdapter`, which would replace the schema by what its tables say of the model.
    pipeline = dspy.ChatAdapter

    def __init__(
        self, schema: Mapping[str, Any], system_messages: SystemMessages | None = None
    ) -> None:
        super().__init__(system_messages, use_native_function_calling=False)
        named_schema = {"name": "answer", "strict": True, "schema": schema}
        self.request_settings = {
            "response_format": {"type": "json_schema", "json_schema": named_schema}
        }
