"""What reading has to know of a type: its fields, its marks, and what stands for a value of it or for none."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Union, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from .choices import OneOf
from .ids import Shown

_NOTHING = ("", "null", "none", "n/a", "nil")


class Field(NamedTuple):
    """What reading has to know of a field of an object."""

    name: str
    key: str
    """The name without case, blanks and underscores."""
    required: bool
    annotation: Any
    before: tuple[Callable[[Any], Any], ...]
    """What the type itself makes of a raw value, by a `BeforeValidator`: synonyms that no spelling is near to."""


@functools.cache
def fields_of(model: type[BaseModel]) -> tuple[Field, ...]:
    """The fields of an object."""
    return tuple(
        Field(name, plain(name), field.is_required(), annotated(field), _before(field))
        for name, field in model.model_fields.items()
    )


def _before(field: FieldInfo) -> tuple[Callable[[Any], Any], ...]:
    return tuple(
        cast("Callable[[Any], Any]", each.func) for each in field.metadata if isinstance(each, BeforeValidator)
    )


def annotated(field: FieldInfo) -> Any:
    """The type of a field with its marks."""
    annotation: Any = field.annotation
    for mark in field.metadata:
        if isinstance(mark, Shown | OneOf):
            annotation = Annotated[annotation, mark]
    return annotation


def bare(kind: Any) -> Any:
    """A type without its marks."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def is_id(kind: Any) -> bool:
    """Whether a value of the type is one of the ids that a prompt shows."""
    return get_origin(kind) is Annotated and any(isinstance(mark, Shown) for mark in get_args(kind)[1:])


def is_nothing(raw: Any) -> bool:
    """Whether a value stands for none: None, a blank text, or one such as "N/A" and "null"."""
    return raw is None or (isinstance(raw, str) and raw.strip().casefold() in _NOTHING)


def is_model(kind: Any) -> bool:
    """Whether a value of the type is an object with fields."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def admits_none(annotation: Any) -> bool:
    """Whether a value of the type may be None; marks on the type do not matter."""
    annotation = annotation.__origin__ if get_origin(annotation) is Annotated else annotation
    return type(None) in get_args(annotation) or annotation is Any


def admits_text(annotation: Any) -> bool:
    """Whether a value of the type may be a text, or another thing."""
    return str in get_args(annotation) and get_origin(annotation) in (Union, types.UnionType)


def plain(value: Any) -> str:
    """A name without case, blanks, underscores and decoration."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return re.sub(r"[\s_\-\"'`*.\[\](){}<>:]+", "", text).casefold()
