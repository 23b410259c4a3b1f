"""What reading needs to know of the types that signatures and models declare."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, Union, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, JsonValue
from pydantic.fields import FieldInfo

from .choices import OneOf
from .ids import IdFrom
from .spelling import normalize_name

TypeHint: TypeAlias = Any
"""A type as annotations write it: `str`, `list[Fact]`, `Literal["yes", "no"] | None`.

A hint may carry marks: `Annotated[str, IdFrom("dialogue")]`.
"""

Mark: TypeAlias = IdFrom | OneOf

RawValidator: TypeAlias = Callable[[JsonValue], JsonValue]
"""The function of a `BeforeValidator`: it changes a raw value before it is read."""


@dataclass(frozen=True)
class ModelField:
    """A field of a model, as an answer may write it."""

    name: str

    key: str
    """The name as `normalize_name` spells it."""

    type_hint: TypeHint

    is_required: bool

    validators: tuple[RawValidator, ...]
    """They replace synonyms, for example."""

    def apply_validators(self, raw: JsonValue) -> JsonValue:
        """Return a raw value as the validators of the field leave it."""
        for validator in self.validators:
            # A validator that cannot handle this kind of value leaves it as it is.
            with suppress(TypeError, ValueError, AttributeError):
                raw = validator(raw)
        return raw


@functools.cache
def model_fields(model: type[BaseModel]) -> tuple[ModelField, ...]:
    """Return the fields of a model in their order."""
    fields: list[ModelField] = []
    for name, info in model.model_fields.items():
        field = ModelField(
            name=name,
            key=normalize_name(name),
            type_hint=field_type(info),
            is_required=info.is_required(),
            validators=_before_validators(info),
        )
        fields.append(field)
    return tuple(fields)


def field_type(info: FieldInfo) -> TypeHint:
    """Return the type of a field with its marks, which pydantic stores apart from the type."""
    hint: TypeHint = info.annotation
    for mark in info.metadata:
        if isinstance(mark, IdFrom | OneOf):
            hint = Annotated[hint, mark]
    return hint


def is_marked(hint: TypeHint) -> bool:
    """Say whether a type carries marks."""
    return get_origin(hint) is Annotated


def marks_of(hint: TypeHint) -> tuple[Mark, ...]:
    """Return the marks that a type carries."""
    if not is_marked(hint):
        return ()
    return tuple(mark for mark in get_args(hint)[1:] if isinstance(mark, IdFrom | OneOf))


def without_marks(hint: TypeHint) -> TypeHint:
    """Return a type without its marks."""
    return get_args(hint)[0] if is_marked(hint) else hint


def element_type_of(hint: TypeHint) -> TypeHint:
    """Return the type of the elements of a list type; any type if it declares none."""
    arguments = get_args(hint)
    return arguments[0] if arguments else Any


def value_type_of(hint: TypeHint) -> TypeHint:
    """Return the type of the values of a dict type; any type if it declares none."""
    arguments = get_args(hint)
    return arguments[1] if arguments else Any


def is_id(hint: TypeHint) -> bool:
    """Say whether values of a type are ids that the prompt shows."""
    return any(isinstance(mark, IdFrom) for mark in marks_of(hint))


def is_union(hint: TypeHint) -> bool:
    """Say whether a type is a union such as `int | None`."""
    return get_origin(hint) in (Union, types.UnionType)


def allows_text(hint: TypeHint) -> bool:
    """Say whether a value of a type may be any text."""
    return hint is str or (is_union(hint) and str in get_args(hint))


def allows_none(hint: TypeHint) -> bool:
    """Say whether a value of a type may be None."""
    plain_hint = without_marks(hint)
    return plain_hint is Any or type(None) in get_args(plain_hint)


def _before_validators(info: FieldInfo) -> tuple[RawValidator, ...]:
    """Return the functions that a field applies to a raw value."""
    validators: list[RawValidator] = []
    for mark in info.metadata:
        if isinstance(mark, BeforeValidator):
            validators.append(cast("RawValidator", mark.func))
    return tuple(validators)
