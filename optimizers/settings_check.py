"""Checks the settings of an optimizer before anything is paid.

DSPy itself finds a wrong setting late: a text where a number belongs, or a budget of 0, would end
an optimizer in the middle of its paid work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from ..errors import UserError
from .optimizer import Optimizer


def check_settings(optimizer_class: type[Optimizer], settings: Mapping[str, Any]) -> None:
    """Check settings that a user gives by name.

    Raises:
        UserError: A setting is unknown, of the wrong type, or too small.
    """
    defaults = optimizer_class.default_settings()
    unknown_names = sorted(set(settings) - set(defaults))
    if unknown_names:
        known_names = ", ".join(defaults)
        raise UserError(
            f"optimizer {optimizer_class.name!r} has no setting {unknown_names[0]!r}; "
            f"it has: {known_names}"
        )

    for name, value in settings.items():
        default = defaults[name]
        if value is default:
            continue
        if name in optimizer_class.object_settings:
            _check_object(optimizer_class, name, value)
        else:
            _check_type(optimizer_class, name, value, default)
            _check_size(optimizer_class, name, value, default)


def check_extra(optimizer: Optimizer) -> None:
    """Check the form of `extra` of an optimizer that a user made, and the names in it.

    A name that is a field as well would replace the value of the field.

    Raises:
        UserError: `extra` is no mapping, or has the name of a field.
    """
    class_name = type(optimizer).__name__
    if not hasattr(optimizer, "extra"):
        raise UserError(
            f"optimizer {class_name}: its constructor does not set the fields of Optimizer; "
            "make the class a @dataclass(frozen=True, kw_only=True)"
        )
    # Callers without type checks may pass anything.
    extra: object = optimizer.extra
    if not isinstance(extra, Mapping):
        raise UserError(
            f"optimizer {optimizer.name!r}: extra = {extra!r:.60}: give settings by name, as in "
            f"{class_name}(extra={{NAME: VALUE}})"
        )
    for name in optimizer.field_names():
        if name in extra:
            raise UserError(
                f"optimizer {optimizer.name!r}: extra: {name} is a setting of {class_name} itself; "
                "give it there"
            )


def _check_object(optimizer_class: type[Optimizer], name: str, value: Any) -> None:
    """Refuse text and numbers where an object belongs; some names of objects are allowed."""
    texts = optimizer_class.object_settings[name]
    if value in texts or not _is_plain(value):
        return

    class_name = optimizer_class.__name__
    example = f'mempiler.optimizers.{class_name}(extra={{"{name}": ...}})'
    alternatives = "".join(f", or {text!r}" for text in texts)
    raise UserError(
        f"optimizer {optimizer_class.name!r}: {name} = {value!r}: "
        f"it takes an object in Python, {example}{alternatives}"
    )


def _is_plain(value: Any) -> bool:
    """Return whether a value is data as the command line gives it, such as a text or a list."""
    if isinstance(value, list):
        return any(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | int | float | dict)


def _check_type(optimizer_class: type[Optimizer], name: str, value: Any, default: Any) -> None:
    try:
        TypeAdapter(_type_of(optimizer_class, name)).validate_python(value, strict=True)
    except PydanticUserError:
        # A class of DSPy's, of which pydantic knows nothing.
        return
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UserError(
            f"optimizer {optimizer_class.name!r}: {name} = {value!r}: {reason}; "
            f"its default is {default!r}"
        ) from None


def _type_of(optimizer_class: type[Optimizer], name: str) -> Any:
    if name in optimizer_class.field_names():
        try:
            return get_type_hints(optimizer_class)[name]
        except NameError:
            # A user's class may be made in a function, whose names are not known here.
            return Any
    for extra_settings in optimizer_class.extra_settings:
        if name in extra_settings.names:
            return extra_settings.type_of(name)
    return Any


def _check_size(optimizer_class: type[Optimizer], name: str, value: Any, default: Any) -> None:
    """Refuse a number that is too small; other values are not checked.

    Raises:
        UserError: The number is too small.
    """
    if not isinstance(value, int | float):
        return
    # Whole numbers are counts, 0 or more. Others are scores and the like, which may be negative.
    usual_smallest = -math.inf if isinstance(default, float) else 0
    smallest = optimizer_class.smallest_values.get(name, usual_smallest)
    if value < smallest:
        raise UserError(
            f"optimizer {optimizer_class.name!r}: {name} = {value}: it is {smallest} or more; "
            f"its default is {default!r}"
        )
