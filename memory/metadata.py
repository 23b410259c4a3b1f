"""Metadata that callers give to sessions, and conditions by which searches choose sessions.

The metadata of a session are a few plain values by name. A condition of one of them is a value,
`{"in": [...]}`, or a range of `gt`, `gte`, `lt` and `lte`. Texts, numbers and truth values are
never equal to one another. Texts are compared character by character, so that dates in ISO form
have ranges.

Example:
    >>> from mempiler.memory.metadata import meets, validate_filter
    >>> conditions = validate_filter({"channel": "phone", "year": {"gte": 2024}})
    >>> meets({"channel": "phone", "year": 2025}, conditions)
    True
    >>> meets({"channel": "phone"}, conditions)
    False
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Self, cast

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
from .names import storable_text

Scalar = str | int | float | bool
"""A value of metadata."""

MAX_VALUES = 32
"""The most values of one session, and the most conditions of one search."""
MAX_OPTIONS = 100
"""The most values that `in` lists."""
MAX_TEXT_LENGTH = 500
"""The longest text among metadata, in characters."""
MAX_NUMBER = 2**53
"""The largest number: beyond it, not every language reads the same number from JSON."""

_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)


def _check_name(name: str) -> str:
    """Return the name of a value if it is allowed; raise a `ValueError` otherwise."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"the name {name!a:.80} must be 1 to 64 letters, digits and _ . -, "
            "the first a letter or _"
        )
    return name


def _check_scalar(value: object) -> Scalar:
    """Return a value of metadata if it is allowed; raise a `ValueError` otherwise."""
    if isinstance(value, str):
        if len(value) > MAX_TEXT_LENGTH:
            raise ValueError(f"the text has {len(value)} characters; use at most {MAX_TEXT_LENGTH}")
        return storable_text(value)

    # True and False pass too: in Python they are of type `int`.
    if not isinstance(value, int | float):
        raise ValueError(
            f"{type(value).__name__} is no plain value; use a text, a number, true or false"
        )
    if not math.isfinite(value) or abs(value) > MAX_NUMBER:
        raise ValueError(f"{value!a:.40} is no number from -2**53 to 2**53")
    return value


Name = Annotated[str, AfterValidator(_check_name)]
CheckedScalar = Annotated[str | bool | int | float, BeforeValidator(_check_scalar)]
Metadata = Annotated[
    dict[Name, CheckedScalar],
    Field(max_length=MAX_VALUES, examples=[{"channel": "phone", "year": 2025}]),
]
"""The metadata of one session."""

Options = Annotated[tuple[CheckedScalar, ...], Field(min_length=1, max_length=MAX_OPTIONS)]


class MetadataRange(BaseModel):
    """What a value of a session is to be: all that is given must hold."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        json_schema_extra={"examples": [{"gte": 2024, "lt": 2026}]},
    )

    in_: Options | None = Field(None, alias="in")
    gt: CheckedScalar | None = None
    gte: CheckedScalar | None = None
    lt: CheckedScalar | None = None
    lte: CheckedScalar | None = None

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        """Refuse a condition without any field, and a range of truth values."""
        ends = [end for end in (self.gt, self.gte, self.lt, self.lte) if end is not None]
        if self.in_ is None and not ends:
            raise ValueError("is empty; give a value, or in, gt, gte, lt or lte")
        if any(isinstance(end, bool) for end in ends):
            raise ValueError("gt, gte, lt and lte take a number or a text")
        return self

    def accepts(self, value: Scalar) -> bool:
        """Return whether a value of a session fulfils this condition: all fields that are set."""
        if self.in_ is not None and not any(_are_equal(value, option) for option in self.in_):
            return False
        if self.gt is not None and not _is_less(self.gt, value):
            return False
        if self.gte is not None and not _is_at_most(self.gte, value):
            return False
        if self.lt is not None and not _is_less(value, self.lt):
            return False
        return self.lte is None or _is_at_most(value, self.lte)


def _are_equal(first: Scalar, second: Scalar) -> bool:
    """Return whether two values are equal. Unlike in Python, `True` is not equal to 1."""
    return isinstance(first, bool) == isinstance(second, bool) and first == second


def _is_less(first: Scalar, second: Scalar) -> bool:
    """Return whether the first value is less than the second one.

    Texts are compared with texts, and numbers with numbers. For any other pair it is False.
    """
    if isinstance(first, bool) or isinstance(second, bool):
        return False
    if isinstance(first, str) and isinstance(second, str):
        return first < second
    if isinstance(first, str) or isinstance(second, str):
        return False
    return first < second


def _is_at_most(first: Scalar, second: Scalar) -> bool:
    """Return whether the first value is less than the second one, or equal to it."""
    return _is_less(first, second) or _are_equal(first, second)


def _range_of(condition: object) -> object:
    """Return the long form of a condition: a single value is short for `{"in": [value]}`."""
    if isinstance(condition, dict | MetadataRange):
        return cast("object", condition)
    return {"in": [condition]}


Condition = Annotated[
    MetadataRange,
    BeforeValidator(_range_of, json_schema_input_type=CheckedScalar | MetadataRange),
]
MetadataFilter = Annotated[
    dict[Name, Condition],
    Field(max_length=MAX_VALUES, examples=[{"channel": "phone", "year": {"gte": 2024}}]),
]
"""Conditions of the metadata of sessions, all of which must hold."""

_METADATA: TypeAdapter[dict[str, Scalar]] = TypeAdapter(Metadata)
_FILTER: TypeAdapter[dict[str, MetadataRange]] = TypeAdapter(MetadataFilter)


def validate_metadata(metadata: object) -> dict[str, Scalar]:
    """Check the metadata of a session: a dictionary from names to plain values, or None.

    Returns:
        The metadata as they are stored; none for None.

    Raises:
        UserError: It is no such dictionary, or a name or a value is not allowed.
    """
    if metadata is None:
        return {}
    try:
        return _METADATA.validate_python(metadata)
    except ValidationError as error:
        # `!a:.200` keeps the error on one short line: escapes in place of special characters.
        raise UserError(f"metadata: {validation_message(error)!a:.200}") from None


def validate_filter(conditions: object) -> dict[str, MetadataRange]:
    """Check the conditions of a search: a dictionary from names to values or ranges.

    Returns:
        The conditions, by the name of the value that they are about.

    Raises:
        UserError: It is no such dictionary, or a name or a condition is not allowed.
    """
    try:
        return _FILTER.validate_python(conditions)
    except ValidationError as error:
        # `!a:.200` keeps the error on one short line: escapes in place of special characters.
        raise UserError(f"where: {validation_message(error)!a:.200}") from None


def meets(metadata: Mapping[str, Scalar], conditions: Mapping[str, MetadataRange]) -> bool:
    """Return whether the metadata of a session meet all conditions; True without conditions.

    A condition of a value that the session does not have is not met.
    """
    for name, condition in conditions.items():
        if name not in metadata or not condition.accepts(metadata[name]):
            return False
    return True
