"""The numbers of a memory system that the optimizer `settings` may tune, such as a threshold.

A class or function that makes stores declares them, and is given the present ones:

    class Notes:
        NUMBERS = {"newest": {"default": 3, "low": 1, "high": 20}}

        def __init__(self, numbers):
            self.newest = numbers["newest"]

Each is a setting of the program, as `k` is: `--set newest=5` sets it. Only the system knows what it
does with a number, so another value writes all stores anew.
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
from .target import parameters

SettingsT = TypeVar("SettingsT", bound=Settings)

Number = int | float

NUMBERS = "NUMBERS"
"""The attribute with the numbers, their defaults and the ranges in which to search."""

NUMBERS_PARAMETER = "numbers"
"""The argument with the present numbers by name."""

_KEYS = ("default", "low", "high")
"""What a number is declared by. It may also have "log", a truth value."""

RESERVED_NAMES = ("method", "task", "embedder", "cache", "adapter")
"""The arguments of `catalog.build`, which takes settings by name beside them."""


@dataclass(frozen=True)
class DeclaredNumber:
    """A number of a memory system."""

    default: Number
    """What it is at first. It is whole, and stays whole, if this is an int."""
    range: TuningRange
    """The values to try."""


def declared_numbers(target: Any, name: str) -> dict[str, DeclaredNumber]:
    """Return the numbers that a class or function lets one set, by name.

    The result is empty if it declares none, or takes none.

    Args:
        target: What makes stores.
        name: What errors call it.

    Raises:
        UserError: They are declared wrongly, or taken without being declared.
    """
    parameter = parameters(target).get(NUMBERS_PARAMETER)
    if parameter is None:
        return {}

    declared = getattr(target, NUMBERS, None)
    if declared is None:
        # A parameter that has a default may be called so by chance.
        if parameter.default is not parameter.empty:
            return {}
        raise UserError(
            f"{name}: takes numbers but declares none; "
            f'set {NUMBERS} = {{"newest": {{"default": 3, "low": 1, "high": 20}}}} in it'
        )
    if not isinstance(declared, Mapping):
        raise UserError(f"{name}: {NUMBERS} = {declared!r:.60}; give a mapping by name")
    return {
        number_name: _read_number(number_name, declaration, name)
        for number_name, declaration in declared.items()
    }


def _read_number(number_name: Any, declaration: Any, name: str) -> DeclaredNumber:
    """Return a number as it is declared.

    Args:
        number_name: What the number is called.
        declaration: What stands for it in `NUMBERS`.
        name: What errors call the system.

    Raises:
        UserError: It is no mapping with numbers under `_KEYS`, or they are in the wrong order.
    """
    problem = f"{name}: {NUMBERS} has {number_name!r:.40}: {declaration!r:.80}; "
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
    """Return whether a value is a finite number; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def with_numbers(
    base: type[SettingsT], numbers: Mapping[str, DeclaredNumber], name: str
) -> type[SettingsT]:
    """Return a class of settings: those of `base`, and the numbers of a system.

    Args:
        base: The class of settings to derive from.
        numbers: The numbers by name.
        name: What errors call the system.

    Raises:
        UserError: A number is called like something else of a program.
    """
    if not numbers:
        return base

    fields: dict[str, Any] = {}
    for number_name, number in numbers.items():
        is_taken = number_name in RESERVED_NAMES or number_name in base.model_fields
        if is_taken or hasattr(base, number_name):
            raise UserError(
                f"{name}: {NUMBERS} has {number_name!r}, which means something else in all "
                "programs; choose another name"
            )
        setting_type = Annotated[type(number.default), number.range]
        fields[number_name] = (
            setting_type,
            Field(default=number.default, description="a number that the system declares"),
        )
    return create_model(base.__name__, __base__=base, **fields)
