"""The strict JSON schema of a signature's outputs, to which endpoints can hold an answer.

Endpoints accept a part of JSON Schema only: every object lists all its keys as required and allows
no others, and most keywords about values are not allowed. What the schema leaves out is checked
when the answer is read.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import dspy
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from ..reading.type_hints import field_type

JsonSchema = dict[str, Any]

_REMOVED_KEYWORDS = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "discriminator",
        "uniqueItems",
        "minLength",
        "maxLength",
        "format",
    }
)
"""Keywords that strict schemas do not allow, or that tell a decoder nothing."""

_UNSUPPORTED_KEYWORDS = frozenset({"prefixItems", "allOf", "patternProperties"})
"""Keywords that no strict schema can express."""


@functools.lru_cache(maxsize=512)
def output_schema(signature: type[dspy.Signature]) -> JsonSchema | None:
    """Return the strict JSON schema of a signature's outputs: an object with a key per output.

    Return None if a strict schema cannot describe one of them, as a `dict` with any keys, a tuple,
    or a value of any type.
    """
    try:
        schemas, definitions = _pydantic_schemas(signature)
        properties = {name: _strict(schema) for name, schema in schemas.items()}
        strict_definitions = {name: _strict(schema) for name, schema in definitions.items()}
    except (ValueError, PydanticUserError):
        return None

    schema = _closed_object(properties)
    if strict_definitions:
        schema["$defs"] = strict_definitions
    return schema


def outputs_name(schema: Mapping[str, Any]) -> str:
    """Return a name for a schema, such as "answer 3f2a9c01": its outputs, and a digest of it."""
    names = ", ".join(schema["properties"])
    digest = hashlib.sha256(json.dumps(schema).encode()).hexdigest()
    return f"{names} {digest[:8]}"


class _Schemas(NamedTuple):
    """The schemas that pydantic makes of a signature's outputs."""

    outputs: dict[str, JsonSchema]
    """The schema of each output, by its name."""
    definitions: dict[str, JsonSchema]
    """The schemas that those refer to by `$ref`, by name."""


def _pydantic_schemas(signature: type[dspy.Signature]) -> _Schemas:
    """Return the JSON schemas of a signature's outputs, as pydantic makes them from the types."""
    # For each output: its name, and that the schema is for reading a value, not for writing it.
    adapters: list[tuple[str, Literal["validation"], TypeAdapter[Any]]] = []
    for name, info in signature.output_fields.items():
        adapters.append((name, "validation", TypeAdapter(field_type(info))))

    # Made together, so that outputs of the same type share one definition.
    schemas, shared = TypeAdapter.json_schemas(adapters)
    outputs = {name: schemas[name, "validation"] for name in signature.output_fields}
    return _Schemas(outputs, shared.get("$defs", {}))


def _strict(schema: JsonSchema) -> JsonSchema:
    """Return a JSON schema in the strict form that endpoints accept, with all schemas inside it.

    Raises:
        ValueError: There is no strict form, since the schema allows any value or any keys.
    """
    strict = {name: value for name, value in schema.items() if name not in _REMOVED_KEYWORDS}
    # A schema without keywords allows any value.
    if not strict or strict.keys() & _UNSUPPORTED_KEYWORDS:
        raise ValueError("a strict schema cannot describe it")

    if "$ref" in strict:
        return {"$ref": strict["$ref"]}

    # Strict schemas know `anyOf` alone, which accepts all that `oneOf` does.
    alternatives = strict.get("oneOf") or strict.get("anyOf")
    if alternatives:
        return {"anyOf": [_strict(alternative) for alternative in alternatives]}

    if strict.get("type") == "array":
        # A list without a type of its items raises the error for any value.
        return {**strict, "items": _strict(strict.get("items", {}))}

    if strict.get("type") == "object":
        if "properties" not in strict:
            raise ValueError("a strict schema cannot describe an open mapping")
        properties = {name: _strict(value) for name, value in strict["properties"].items()}
        return _closed_object(properties)
    return strict


def _closed_object(properties: dict[str, JsonSchema]) -> JsonSchema:
    """Return the schema of an object with exactly these keys, each with a schema of its value."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
