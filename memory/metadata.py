"""What a caller says of a session, a few plain values by name, and the conditions that choose sessions by it.

    metadata    {"channel": "phone", "year": 2025, "paid": true}
    conditions  {"channel": "phone"}                     this value
                {"channel": {"in": ["phone", "mail"]}}   one of these
                {"year": {"gte": 2024, "lt": 2026}}      a range: gt, gte, lt, lte, of numbers or of texts
                {"channel": "phone", "paid": true}       all of these

Truth values, numbers and texts are never equal to one another; a session without the value fulfils no condition of it.
Texts are compared letter by letter, so that dates in ISO form have ranges.

Example:
    >>> from mempiler.memory.metadata import Conditions
    >>> calls = Conditions.parse({"channel": "phone", "year": {"gte": 2024}})
    >>> calls.met({"channel": "phone", "year": 2025}), calls.met({"year": 2025})
    (True, False)
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..errors import UserError
from .amending import storable

Scalar = str | int | float | bool
MOST = 32
"""Most values of a session, and most conditions."""
MOST_CHOICES = 100
"""Most values that a condition lists."""
LONGEST = 500
"""Most characters of a text."""
LARGEST = 2**53
"""Numbers beyond it are not the same in all languages."""
NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def checked_metadata(given: object) -> dict[str, Scalar]:
    """What a caller says of a session, as it is stored; {} for nothing.

    Raises:
        UserError: It is no small dict of plain values; one line names what is wrong.
    """
    if given is None:
        return {}
    return {name: _scalar(f"metadata {name}", value) for name, value in _named("metadata", given).items()}


@dataclass(frozen=True)
class Conditions:
    """Conditions that sessions fulfil or not; all must be met."""

    tests: tuple[tuple[str, str, Any], ...] = ()
    """Name, operator (in, gt, gte, lt, lte) and value of each; of "in" a tuple of values."""

    @classmethod
    def parse(cls, given: object) -> Conditions:
        """Reads conditions as they come from outside; none, for None and {}, are met by everything.

        Raises:
            UserError: They are malformed; one line names what is wrong.
        """
        tests: list[tuple[str, str, Any]] = []
        for name, value in _named("where", {} if given is None else given).items():
            tests += _tests(name, value)
        return cls(tuple(tests))

    def __bool__(self) -> bool:
        return bool(self.tests)

    @property
    def key(self) -> str:
        """Equal for equal conditions."""
        return json.dumps(sorted(self.tests, key=repr))

    def met(self, metadata: Mapping[str, Scalar]) -> bool:
        """Whether a session of this metadata fulfils all of them."""
        return all(name in metadata and _met(metadata[name], how, value) for name, how, value in self.tests)


def _tests(name: str, value: object) -> list[tuple[str, str, Any]]:
    where = f"where {name}"
    if not isinstance(value, Mapping):
        return [(name, "in", (_scalar(where, value),))]
    found: list[tuple[str, str, Any]] = []
    for how, given in cast(Mapping[Any, Any], value).items():
        if how == "in":
            if not isinstance(given, list | tuple) or not 0 < len(cast(list[Any], given)) <= MOST_CHOICES:
                raise UserError(f"{where}: give `in` a list of 1 to {MOST_CHOICES} values")
            found.append((name, "in", tuple(_scalar(where, one) for one in cast(list[Any], given))))
        elif how in _ORDERS:
            end = _scalar(where, given)
            if isinstance(end, bool):
                raise UserError(f"{where}: {how} takes a number or a text, not {given!r}")
            found.append((name, how, end))
        else:
            raise UserError(f"{where}: {how!a:.40} is no operator; use in, gt, gte, lt or lte")
    if not found:
        raise UserError(f"{where}: is empty; give a value, or in, gt, gte, lt or lte")
    return found


def _met(value: Scalar, how: str, wanted: Any) -> bool:
    if how == "in":
        return any(_kind(value) == _kind(one) and value == one for one in wanted)
    return _kind(value) == _kind(wanted) and _ORDERS[how](value, wanted)


def _kind(value: Scalar) -> str:
    return "truth" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _named(what: str, given: object) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise UserError(f"{what} is {type(given).__name__}; give a dict of names and plain values")
    found = cast(Mapping[Any, object], given)
    if len(found) > MOST:
        raise UserError(f"{what} has {len(found)} names; use at most {MOST}")
    for name in found:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise UserError(
                f"{what}: the name {name!a:.80} must be 1 to 64 letters, digits and _ . -, the first a letter or _"
            )
    return found


def _scalar(where: str, value: object) -> Scalar:
    if isinstance(value, str):
        if len(value) > LONGEST:
            raise UserError(f"{where} has {len(value)} characters; use at most {LONGEST}")
        return storable(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        if not math.isfinite(value) or abs(value) > LARGEST:
            raise UserError(f"{where}: {value!a:.40} is no number from -2**53 to 2**53")
        return value
    raise UserError(f"{where}: {type(value).__name__} is no plain value; use a text, a number, true or false")
