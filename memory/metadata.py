"""Metadata that callers give to sessions, and conditions that searches choose by.

A condition of metadata is a value, `{"in": [...]}`, or a range of `gt`, `gte`, `lt`, `lte`. Truth values, numbers and
texts are never equal to one another, and texts are compared letter by letter: dates in ISO form have ranges.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from ..errors import UserError
from ..validation import validation_message
from .names import storable

Scalar = str | int | float | bool
MOST = 32
"""Most values of a session, and most conditions."""
LONGEST = 500
"""Most characters of a text among metadata."""
_ORDERS = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


def _plain(value: object) -> object:
    if isinstance(value, str):
        if len(value) > LONGEST:
            raise ValueError(f"the text has {len(value)} characters; use at most {LONGEST}")
        return storable(value)
    if not isinstance(value, int | float):
        raise ValueError(f"{type(value).__name__} is no plain value; use a text, a number, true or false")
    # Beyond it numbers are not the same in all languages.
    if not math.isfinite(value) or abs(value) > 2**53:
        raise ValueError(f"{value!a:.40} is no number from -2**53 to 2**53")
    return value


def _name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.-]{0,63}", name, re.ASCII):
        raise ValueError(f"the name {name!a:.80} must be 1 to 64 letters, digits and _ . -, the first a letter or _")
    return name


Name = Annotated[str, AfterValidator(_name)]
Plain = Annotated[str | bool | int | float, BeforeValidator(_plain)]
Metadata = Annotated[dict[Name, Plain], Field(max_length=MOST, examples=[{"channel": "phone", "year": 2025}])]


class MetadataRange(BaseModel):
    """What a value of a session is to be: all that is given must hold."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, json_schema_extra={"examples": [{"gte": 2024, "lt": 2026}]}
    )

    in_: Annotated[tuple[Plain, ...], Field(min_length=1, max_length=100)] | None = Field(None, alias="in")
    gt: Plain | None = None
    gte: Plain | None = None
    lt: Plain | None = None
    lte: Plain | None = None

    @model_validator(mode="after")
    def _has_ends(self) -> Self:
        ends = self.model_dump(exclude_none=True)
        if not ends:
            raise ValueError("is empty; give a value, or in, gt, gte, lt or lte")
        if any(isinstance(end, bool) for end in ends.values()):
            raise ValueError("gt, gte, lt and lte take a number or a text")
        return self

    def holds(self, value: Scalar) -> bool:
        """Whether a value is such a one."""
        if self.in_ is not None and not any(_alike(value, one) and value == one for one in self.in_):
            return False
        ends = ((order, getattr(self, name)) for name, order in _ORDERS.items())
        return all(end is None or (_alike(value, end) and order(value, end)) for order, end in ends)


def _alike(one: Scalar, other: Scalar) -> bool:
    return all(isinstance(one, kind) == isinstance(other, kind) for kind in (str, bool))


def _condition(given: Any) -> Any:
    whole: Any = given
    return whole if isinstance(given, dict | MetadataRange) else {"in": [given]}


Condition = Annotated[MetadataRange, BeforeValidator(_condition, json_schema_input_type=Plain | MetadataRange)]
MetadataFilter = Annotated[
    dict[Name, Condition], Field(max_length=MOST, examples=[{"channel": "phone", "year": {"gte": 2024}}])
]
"""Conditions of the metadata of sessions, all of which must hold."""


def _checked(what: str, kind: TypeAdapter[Any], given: object) -> Any:
    try:
        return kind.validate_python(given)
    except ValidationError as error:
        raise UserError(f"{what}: {validation_message(error)!a:.200}") from None


validate_metadata: Callable[[object], dict[str, Scalar]] = partial(_checked, "metadata", TypeAdapter(Metadata))
"""What a caller says of a session, as it is stored; a `UserError` for no dict of plain values."""
validate_filter: Callable[[object], dict[str, MetadataRange]] = partial(_checked, "where", TypeAdapter(MetadataFilter))
"""Conditions as they come from outside, or a `UserError`; {} are met by everything."""


def meets(metadata: Mapping[str, Scalar], conditions: Mapping[str, MetadataRange]) -> bool:
    """Whether a session of this metadata fulfils all conditions."""
    return all(name in metadata and one.holds(metadata[name]) for name, one in conditions.items())
