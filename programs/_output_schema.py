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
    """Return the strict schema of a signature's outputs: one object with all of them, in order.

    It is None if a strict schema cannot describe an output: an open mapping, any value, a tuple.
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
    """Return a name for the outputs of a schema: their names, and a digest of the schema."""
    names = ", ".join(schema["properties"])
    digest = hashlib.sha256(json.dumps(schema).encode()).hexdigest()
    return f"{names} {digest[:8]}"


class _Schemas(NamedTuple):
    """The schemas that pydantic makes of a signature's outputs."""

    outputs: dict[str, JsonSchema]
    """By output, in order."""
    definitions: dict[str, JsonSchema]
    """The schemas that they refer to, by name."""


def _pydantic_schemas(signature: type[dspy.Signature]) -> _Schemas:
    """Return the schemas of a signature's outputs as pydantic makes them."""
    adapters: list[tuple[str, Literal["validation"], TypeAdapter[Any]]] = []
    for name, info in signature.output_fields.items():
        adapters.append((name, "validation", TypeAdapter(field_type(info))))

    schemas, shared = TypeAdapter.json_schemas(adapters)
    outputs = {name: schemas[name, "validation"] for name in signature.output_fields}
    return _Schemas(outputs, shared.get("$defs", {}))


def _strict(schema: JsonSchema) -> JsonSchema:
    """Return the strict form of a schema.

    Raises:
        ValueError: A strict schema cannot say what this one says.
    """
    known = {name: value for name, value in schema.items() if name not in _REMOVED_KEYWORDS}
    # The empty schema allows any value.
    if not known or known.keys() & _UNSUPPORTED_KEYWORDS:
        raise ValueError("a strict schema cannot describe it")

    if "$ref" in known:
        return {"$ref": known["$ref"]}
    alternatives = known.get("oneOf") or known.get("anyOf")
    if alternatives:
        return {"anyOf": [_strict(alternative) for alternative in alternatives]}
    if known.get("type") == "array":
        return {**known, "items": _strict(known.get("items", {}))}
    if known.get("type") == "object":
        if "properties" not in known:
            raise ValueError("a strict schema cannot describe an open mapping")
        return _closed_object(
            {name: _strict(property_) for name, property_ in known["properties"].items()}
        )
    return known


def _closed_object(properties: dict[str, JsonSchema]) -> JsonSchema:
    """Return the schema of an object that has exactly these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
