"""Field types of answers, and the repairs that were made or could not be."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from .choices import OneOf
from .ids import Shown

RepairKind = Literal["layout", "shape", "cast", "spelling", "id", "unknown id", "null", "field", "element", "cut"]
"""Mends by kind:

    layout      other headings, a fence, JSON between sentences or with slips of writing
    shape       one object where a list is due, objects line by line, a list inside an object, a dict keyed by id
    cast        a number where a text is due, a number in words of digits, yes for true
    spelling    a defined value in another spelling
    id          a shown id with decoration, or as a bare number
    unknown id  an id that was not shown; dropped
    null        nothing where a value is due; the field's default
    field       a field that cannot be read, or is not there; its default
    element     an element of a list that cannot be read; dropped
    cut         a text that ended for want of room, or brackets that nobody closed; kept as far as it goes
"""


@dataclass(frozen=True)
class Repair:
    """One thing that was put right, or left out."""

    kind: RepairKind
    where: str
    """Path of the value, e.g. "facts[2].type"."""


class UnreadableError(ValueError):
    """Raised if a value cannot be read and nothing may stand in for it."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        super().__init__(f"{where}: {why}" if where else why)


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
    found: list[Field] = []
    for name, field in model.model_fields.items():
        before: Any = tuple(each.func for each in field.metadata if isinstance(each, BeforeValidator))
        found.append(Field(name, plain(name), field.is_required(), annotated(field), before))
    return tuple(found)


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


def admits_none(annotation: Any) -> bool:
    """Whether a value of the type may be None; marks on the type do not matter."""
    annotation = annotation.__origin__ if get_origin(annotation) is Annotated else annotation
    return type(None) in get_args(annotation) or annotation is Any


def plain(value: Any) -> str:
    """A name without case, blanks, underscores and decoration."""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return re.sub(r"[\s_\-\"'`*.\[\](){}<>:]+", "", text).casefold()
