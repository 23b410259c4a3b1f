"""The numbers of a memory system that the optimizer `settings` may tune, such as a threshold.

A memory system is a class, or a function that makes objects. Each of its objects is a *store*,
which keeps the memory of one history. The class or function, called the *target* here, declares the
numbers in `NUMBERS`. Each store is made with the present numbers:

    class Notes:
        NUMBERS = {"newest": {"default": 3, "low": 1, "high": 20}}

        def __init__(self, numbers):
            self.newest = numbers["newest"]

Each number becomes a setting of the program, as `k` is: `--set newest=5` changes it. Only the
system knows what it does with a number. So all stores are written anew for another value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import Field, create_model

from ...errors import UserError
from ...memory.tuning_range import TuningRange
from ..settings import Settings
from .target import declared_value

SettingsT = TypeVar("SettingsT", bound=Settings)

Number = int | float

NUMBERS = "NUMBERS"
"""The attribute of a target that declares its numbers: their defaults, and ranges of values."""

NUMBERS_PARAMETER = "numbers"
"""The parameter of a target that gets the present numbers by name."""

_KEYS = ("default", "low", "high")
"""What the declaration of a number must have. It may also have "log", a truth value."""

_EXAMPLE = '{"newest": {"default": 3, "low": 1, "high": 20}}'
"""A declaration, for error messages."""

RESERVED_NAMES = ("method", "task", "embedder", "cache", "adapter")
"""Names that no number may have: `catalog.build` takes settings by name, beside these arguments."""


@dataclass(frozen=True)
class DeclaredNumber:
    """A number of a memory system that can be tuned."""

    default: Number
    """The value until somebody sets another. If it is an int, only whole numbers are tried."""
    range: TuningRange
    """The values to try."""


def declared_numbers(target: Any, name: str) -> dict[str, DeclaredNumber]:
    """Return the numbers that a memory system declares in `NUMBERS`, by name.

    The result is empty if the system has no numbers that can be tuned.

    Args:
        target: The class or function that makes the stores of the system.
        name: The name of the target in errors.

    Raises:
        UserError: `NUMBERS` declares a number wrongly, or is missing though the target needs
            numbers.
    """
    declarations = declared_value(target, NUMBERS, NUMBERS_PARAMETER, _EXAMPLE, name)
    if declarations is None:
        return {}
    if not isinstance(declarations, Mapping):
        raise UserError(f"{name}: {NUMBERS} = {declarations!r:.60}; give a mapping by name")
    numbers: dict[str, DeclaredNumber] = {}
    for number_name, declaration in declarations.items():
        numbers[number_name] = _read_number(number_name, declaration, name)
    return numbers


def _read_number(number_name: Any, declaration: Any, target_name: str) -> DeclaredNumber:
    """Return the number that one item of `NUMBERS` declares.

    Args:
        number_name: The name of the number.
        declaration: The dict with its default and its range.
        target_name: The name of the target in errors.

    Raises:
        UserError: The name or the declaration cannot be used.
    """
    problem = f"{target_name}: {NUMBERS} has {number_name!r:.40}: {declaration!r:.80}; "
    is_name = isinstance(number_name, str) and number_name.isidentifier()
    if not is_name or number_name.startswith("_"):
        raise UserError(f"{problem}a name is a Python name such as 'newest'")
    if not isinstance(declaration, Mapping) or not set(_KEYS) <= set(declaration):
        raise UserError(f'{problem}give {{"default": 3, "low": 1, "high": 20}}')

    default, low, high = (declaration[key] for key in _KEYS)
    if not (_is_number(default) and _is_number(low) and _is_number(high)):
        raise UserError(f"{problem}default, low and high are numbers")
    if not low <= default <= high or low == high:
        raise UserError(f"{problem}low is below high, and the default is between them")
    log = bool(declaration.get("log", False))
    if log and low <= 0:
        raise UserError(f'{problem}with "log", low is above 0')
    return DeclaredNumber(default, TuningRange(low, high, log))


def _is_number(value: object) -> bool:
    """Return whether a value is a finite number."""
    # In Python, True and False are numbers.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def with_numbers(
    base: type[SettingsT], numbers: Mapping[str, DeclaredNumber], name: str
) -> type[SettingsT]:
    """Return a subclass of `base` in which each number of a memory system is one more setting.

    So a number can be set and tuned like any setting of Mempiler's own.

    Args:
        base: The settings that the method has for any memory system.
        numbers: The numbers that this system declares, by name.
        name: The name of the system in errors.

    Raises:
        UserError: The name of a number already means something else.
    """
    if not numbers:
        return base

    fields: dict[str, Any] = {}
    for number_name, number in numbers.items():
        if _is_taken(number_name, base):
            raise UserError(
                f"{name}: {NUMBERS} has {number_name!r}, which means something else in all "
                "programs; choose another name"
            )
        # Pydantic takes a field as its type and its default. The optimizer finds the range of
        # values in the metadata of the type.
        field_type = Annotated[type(number.default), number.range]
        field = Field(default=number.default, description="a number that the system declares")
        fields[number_name] = (field_type, field)
    return create_model(base.__name__, __base__=base, **fields)


def _is_taken(number_name: str, settings_class: type[Settings]) -> bool:
    """Return whether no setting may be added under a name, since the name is in use."""
    if number_name in RESERVED_NAMES:
        return True
    is_setting = number_name in settings_class.model_fields
    # A field with the name of a method would hide the method.
    is_attribute = hasattr(settings_class, number_name)
    return is_setting or is_attribute
