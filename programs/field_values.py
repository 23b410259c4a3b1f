"""The values of a signature's fields as JSON, and back: how demos and calls are saved.

A value is dumped and validated by the type of its field, so a demo that was saved renders to the
same prompt. Values that the signature has no field for are left out.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import dspy
from dspy.adapters.types.base_type import CUSTOM_TYPE_START_IDENTIFIER
from pydantic import JsonValue, TypeAdapter, ValidationError

from ..errors import ProgramError

AUGMENTED = "augmented"
"""Key of a demo that an optimizer made, beside its fields."""


def dump_values(
    signature: type[dspy.Signature], values: Mapping[str, Any] | dspy.Example
) -> dict[str, Any]:
    """Return the JSON of those values that the signature has fields for."""
    dumped: dict[str, Any] = {}
    for name, field in signature.fields.items():
        if name not in values:
            continue
        value = values[name]
        value_type: Any = Any if value is None else field.annotation
        adapter = _type_adapter(value_type)
        dumped[name] = adapter.dump_python(value, mode="json", warnings=False)

    if values.get(AUGMENTED):
        dumped[AUGMENTED] = True
    return dumped


def load_values(
    signature: type[dspy.Signature], values: Mapping[str, Any], predictor: str
) -> dspy.Example:
    """Return typed values from their JSON.

    Args:
        signature: Declares the fields and their types.
        values: What `dump_values` returned.
        predictor: Name of the predictor whose demo it is, for errors.

    Raises:
        ProgramError: A value belongs to no field, does not fit the type of its field, or stands
            for a file or an image.
    """
    loaded: dict[str, Any] = {}
    for name, value in values.items():
        loaded[name] = _load_value(signature, name, value, predictor)

    example = dspy.Example(loaded)
    if names_file(dump_values(signature, example)):
        raise ProgramError(
            f"predictor {predictor}: a saved demo holds the address of a file or image; "
            "take the demo out"
        )
    return example


def _load_value(signature: type[dspy.Signature], name: str, value: Any, predictor: str) -> Any:
    """Return the typed value of one field; the mark of an augmented demo belongs to no field."""
    is_mark = name == AUGMENTED and value is True
    if name not in signature.fields and not is_mark:
        raise ProgramError(
            f"predictor {predictor}: a saved demo has {name!r:.80}, which is none of its fields"
        )

    value_type: Any = Any
    if name in signature.fields and value is not None:
        value_type = signature.fields[name].annotation
    try:
        return _type_adapter(value_type).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise ProgramError(
            f"predictor {predictor}: a saved demo does not fit its field {name!r}: {reason}"
        ) from error


def names_file(values: JsonValue) -> bool:
    """Return whether the JSON of values holds a file or an image, which may lie at any address."""
    return CUSTOM_TYPE_START_IDENTIFIER in json.dumps(values, ensure_ascii=False)


@functools.lru_cache(maxsize=1024)
def _type_adapter(value_type: Any) -> TypeAdapter[Any]:
    """Return what reads and dumps a type; making it takes longer than reading most values."""
    return TypeAdapter(value_type)
