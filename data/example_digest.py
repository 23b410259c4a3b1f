"""The digest of a user's examples, by which a resumed run notices that its examples have changed.

It covers every field, since a metric may read any of them. It is equal for equal content, and the
same in every process: neither an address nor the order of a set counts.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from pathlib import PurePath
from typing import Any

import dspy
from pydantic import BaseModel, JsonValue

from ..errors import DataError
from ..records import History

_MAX_DEPTH = 100
"""How deep lists, mappings and objects may contain one another. What contains itself is deeper."""
_MAX_PLAIN_INTEGER = 10**600
"""Python may be set to write no integer of more than 640 digits in decimal."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def digest_of_examples(examples: Sequence[dspy.Example]) -> str:
    """Return the sha256 of all fields of some examples.

    Raises:
        DataError: The value of a field cannot be compared; the message names example and field.
    """
    rows: list[JsonValue] = []
    for example in examples:
        values: dict[str, JsonValue] = {}
        for name, value in example.items():
            try:
                values[name] = _comparable_value(value, 0)
            except _IncomparableError as error:
                raise DataError(
                    f"example {example.get('id')!r}: the field {name!r} {error}, so a resumed run "
                    "could not tell whether it has changed; give texts, numbers, lists, mappings "
                    "or dataclasses"
                ) from error
        rows.append(_sorted_pairs(values))
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


class _IncomparableError(Exception):
    """Raised for a value that shows too little of its content, with the reason."""


def _comparable_value(value: object, depth: int) -> JsonValue:
    """Return JSON that stands for a value; equal for equal content.

    Args:
        value: Any value of a field, or a part of one.
        depth: How many values contain this one.
    """
    if depth > _MAX_DEPTH:
        raise _IncomparableError(f"contains itself, or more than {_MAX_DEPTH} levels")
    if isinstance(value, int) and abs(value) > _MAX_PLAIN_INTEGER:
        # Python refuses to write very large integers in decimal digits.
        return ["int", hex(value)]
    if value is None or isinstance(value, str | int | float):
        return value
    # `repr` shows all that they hold. Their attributes, which are compared for other objects, do
    # not.
    if isinstance(value, bytes | date | time | timedelta | PurePath):
        return repr(value)
    if isinstance(value, History):
        return [value.id, value.digest]
    if inspect.isclass(value) or inspect.isroutine(value):
        return _comparable_name(value, depth)
    if isinstance(value, re.Pattern):
        # Its `repr` cuts a long pattern.
        return [_comparable_value(value.pattern, depth + 1), value.flags]
    return _comparable_container(value, depth)


def _comparable_container(value: object, depth: int) -> JsonValue:
    """Return JSON that stands for a value by its parts."""
    if isinstance(value, dspy.Example):
        return _comparable_mapping(dict(value.items()), depth)
    if isinstance(value, BaseModel):
        model_fields = {name: getattr(value, name) for name in type(value).model_fields}
        return _comparable_mapping({**model_fields, **(value.model_extra or {})}, depth)
    if isinstance(value, Mapping):
        return _comparable_mapping(value, depth)
    if isinstance(value, Sequence):
        return _comparable_list(value, depth)
    if isinstance(value, Set):
        return sorted(_comparable_list(value, depth), key=json.dumps)
    if is_dataclass(value):
        # A field without a value has no attribute.
        values = {field.name: getattr(value, field.name, None) for field in fields(value)}
        return [_name_of(type(value)), _comparable_mapping(values, depth)]
    return _comparable_array(value, depth)


def _comparable_array(value: object, depth: int) -> JsonValue:
    """Return JSON that stands for an array, a data frame or any other object.

    The `repr` of an array or a data frame leaves out its middle.
    """
    to_numpy = getattr(value, "to_numpy", None)
    if callable(to_numpy):
        parts: list[object] = [_called(to_numpy)]
        for name in ("columns", "index"):
            labels = getattr(value, name, None)
            if isinstance(labels, Iterable):
                parts.append([name, list(labels)])
        return _comparable_list(parts, depth)

    to_list = getattr(value, "tolist", None)
    if callable(to_list):
        entries = _called(to_list)
        # Numbers that Python has no kind for are lists of themselves.
        if type(entries) is not type(value):
            return _comparable_value(entries, depth + 1)
    return _comparable_object(value, depth)


def _comparable_object(value: object, depth: int) -> JsonValue:
    """Return JSON that stands for an object by its attributes, or by its `repr` if it has none."""
    name = _name_of(type(value))
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, Mapping) and attributes:
        return [name, _comparable_mapping(attributes, depth)]

    shows_only_its_address = type(value).__repr__ is object.__repr__
    if shows_only_its_address and attributes is not None:
        # An object of a class without any state.
        return name
    text = repr(value)
    if shows_only_its_address or _ADDRESS.search(text):
        raise _IncomparableError(f"holds an object of {name}, which does not show its content")
    return text


def _comparable_name(value: Any, depth: int) -> JsonValue:
    """Return JSON that stands for a class, a function or a method by its name."""
    name = _name_of(value)
    if "<lambda>" in name or getattr(value, "__closure__", None):
        raise _IncomparableError(f"holds {name}, a function that its name does not identify")
    if inspect.ismethod(value):
        return [name, _comparable_value(value.__self__, depth + 1)]
    return name


def _name_of(value: Any) -> str:
    """Return the name of a class or function with its module; methods of C code have none."""
    module = getattr(value, "__module__", None)
    return f"{module}.{value.__qualname__}"


def _called(method: Callable[[], object]) -> object:
    """Return what a method of an object returns that takes no arguments in arrays."""
    try:
        return method()
    except (TypeError, ValueError, AttributeError) as error:
        raise _IncomparableError(f"cannot be read: {type(error).__name__} {error}") from error


def _comparable_list(values: Iterable[object], depth: int) -> list[JsonValue]:
    """Return JSON that stands for each of some values, in their order."""
    return [_comparable_value(value, depth + 1) for value in values]


def _comparable_mapping(mapping: Mapping[Any, Any], depth: int) -> JsonValue:
    """Return the pairs of a mapping, sorted: the order in which keys were set says nothing."""
    pairs = [_comparable_list(pair, depth) for pair in mapping.items()]
    return sorted(pairs, key=json.dumps)  # pyright: ignore[reportReturnType]


def _sorted_pairs(values: Mapping[str, JsonValue]) -> JsonValue:
    """Return the fields of an example, sorted by name."""
    pairs: list[JsonValue] = [[name, value] for name, value in values.items()]
    return sorted(pairs, key=json.dumps)
