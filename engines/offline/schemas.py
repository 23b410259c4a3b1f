"""JSON schemas of the outputs of a signature, which say what each output is filled with."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import dspy
import pydantic
from dspy.adapters.types.reasoning import Reasoning

Schema = Mapping[str, Any]
"""A JSON schema without references to definitions."""

TEXT: Schema = {"type": "string"}

MAX_MODEL_DEPTH = 4
"""How deep a model that holds itself is written out; a text takes its place below that."""

_DEFINITION = "#/$defs/"


def output_schemas(signature: type[dspy.Signature]) -> dict[str, Schema]:
    """Return the schemas of the outputs of a signature, by name."""
    schemas: dict[str, Schema] = {}
    for name, field in signature.output_fields.items():
        schemas[name] = schema_of_type(field.annotation)
    return schemas


def schema_of_type(annotation: Any) -> Schema:
    """Return the schema of an output type."""
    if _is_text(annotation):
        return TEXT
    if get_origin(annotation) is Literal:
        return {"enum": list(get_args(annotation))}
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return {"enum": [member.value for member in annotation]}

    return write_out_models(pydantic.TypeAdapter(annotation).json_schema())


def write_out_models(schema: Schema) -> Schema:
    """Return a schema in which the models of its `$defs` stand in the place of references."""
    main_schema = {key: part for key, part in schema.items() if key != "$defs"}
    return _without_references(main_schema, schema.get("$defs", {}), MAX_MODEL_DEPTH)


def id_names(schema: object) -> Iterator[str]:
    """Yield the names of all fields and properties in a schema that hold ids.

    Args:
        schema: A schema, a part of one, or a dict of schemas by name.
    """
    if isinstance(schema, list):
        for part in schema:
            yield from id_names(part)
    if isinstance(schema, Mapping):
        for name, part in schema.items():
            if name.endswith(("_id", "_ids")) and isinstance(part, Mapping):
                yield name
            yield from id_names(part)


def _is_text(annotation: Any) -> bool:
    """Return whether DSPy reads an output type from a plain text."""
    if annotation is str or annotation is Reasoning:
        return True
    return isinstance(annotation, type) and issubclass(annotation, dspy.Code)


def _without_references(schema: Any, models: Mapping[str, Schema], depth: int) -> Any:
    """Return a part of a schema in which the models stand in the place of references to them.

    Args:
        schema: The part.
        models: The schemas of the models by name.
        depth: How many models may stand one inside the other.
    """
    if isinstance(schema, list):
        return [_without_references(part, models, depth) for part in schema]
    if not isinstance(schema, Mapping):
        return schema

    reference = schema.get("$ref")
    if isinstance(reference, str) and depth > 0:
        model = models[reference.removeprefix(_DEFINITION)]
        own_keywords = {key: part for key, part in schema.items() if key != "$ref"}
        return _without_references({**model, **own_keywords}, models, depth - 1)

    # The order is that in which DSPy shows a schema, and so that of the values in an answer.
    keys = sorted(schema, key=lambda key: (key != "type", key))
    return {key: _without_references(schema[key], models, depth) for key in keys}
