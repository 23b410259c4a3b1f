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
"""DSPy's mark of a demo that an optimizer made from a run of the program; not a field."""


def dump_values(
    signature: type[dspy.Signature], values: Mapping[str, Any] | dspy.Example
) -> dict[str, Any]:
    """Return the values of a demo or a call as JSON, by the types of their fields.

    Args:
        signature: Declares the fields; values that are none of its fields are left out.
        values: The demo, or the inputs or outputs of a call.
    """
    dumped: dict[str, Any] = {}
    for name, field in signature.fields.items():
        if name not in values:
            continue
        value = values[name]

        # A field of any type may hold None, for a missing value. None does not fit most types, so
        # it is dumped as a value of no particular type.
        value_type = field.annotation
        if value is None:
            value_type = Any
        adapter = _type_adapter(value_type)

        # Without warnings: a demo may hold a value that does not fit the type of its field, which
        # is saved as it is.
        dumped[name] = adapter.dump_python(value, mode="json", warnings=False)

    # DSPy marks the demos that an optimizer made. The mark is stored beside the fields. The loop
    # has not read it, since the signature does not declare it.
    if values.get(AUGMENTED):
        dumped[AUGMENTED] = True
    return dumped


def load_values(
    signature: type[dspy.Signature], values: Mapping[str, Any], predictor: str
) -> dspy.Example:
    """Return a demo from its JSON, with every value in the type of its field.

    Args:
        signature: Declares the fields and their types.
        values: The JSON, as `dump_values` returned it.
        predictor: Name of the predictor whose demo it is, for errors.

    Raises:
        ProgramError: A value belongs to no field, does not fit the type of its field, or stands
            for a file or an image.
    """
    loaded: dict[str, Any] = {}
    for name, value in values.items():
        loaded[name] = _load_value(signature, name, value, predictor)

    # A demo from a file must not make the program open an address. Plain JSON, {"url": "..."},
    # becomes an image in a field of that type. DSPy marks images when it writes them as JSON, so
    # the loaded values are written as JSON again to look for the mark.
    example = dspy.Example(loaded)
    if names_file(dump_values(signature, example)):
        raise ProgramError(
            f"predictor {predictor}: a saved demo holds the address of a file or image; "
            "take the demo out"
        )
    return example


def _load_value(signature: type[dspy.Signature], name: str, value: Any, predictor: str) -> Any:
    """Return one value of a demo in the type of its field.

    Raises:
        ProgramError: The signature has no such field, or the value does not fit its type.
    """
    if name not in signature.fields:
        # The mark of a demo that an optimizer made stands beside the fields.
        if name == AUGMENTED and value is True:
            return True
        raise ProgramError(
            f"predictor {predictor}: a saved demo has {name!r:.80}, which is none of its fields"
        )

    # None stands for a missing value in a field of any type.
    if value is None:
        return None

    try:
        return _type_adapter(signature.fields[name].annotation).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise ProgramError(
            f"predictor {predictor}: a saved demo does not fit its field {name!r}: {reason}"
        ) from error


def names_file(values: JsonValue) -> bool:
    """Return whether the JSON of values holds a file or an image, which may lie at any address."""
    # DSPy puts this marker before the JSON of an image, a file or another special type.
    return CUSTOM_TYPE_START_IDENTIFIER in json.dumps(values, ensure_ascii=False)


@functools.lru_cache(maxsize=1024)
def _type_adapter(value_type: Any) -> TypeAdapter[Any]:
    """Return pydantic's adapter for a type, which validates and dumps its values.

    Adapters are cached, since making one takes longer than reading most values.
    """
    return TypeAdapter(value_type)
