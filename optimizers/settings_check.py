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
    """Check a setting that takes a Python object, which the command line cannot give.

    Some settings also take the names of DSPy's own objects, such as "pareto".

    Raises:
        UserError: The value is plain data, and none of these names.
    """
    object_names = optimizer_class.object_settings[name]
    if not _is_plain(value) or value in object_names:
        return

    class_name = optimizer_class.__name__
    extra = '{"' + name + '": ...}'
    example = f"mempiler.optimizers.{class_name}(extra={extra})"
    alternatives = "".join(f", or {object_name!r}" for object_name in object_names)
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
    """Check the type of a setting, as far as pydantic knows it.

    Raises:
        UserError: The value is of another type.
    """
    try:
        TypeAdapter(_type_of(optimizer_class, name)).validate_python(value, strict=True)
    except PydanticUserError:
        # The type is a class that pydantic knows nothing of, such as one of DSPy's. Its values are
        # not checked.
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
    # The default tells what a setting is. Where it is a float, the setting is a score or the like,
    # which may be negative. All others are counts, also where the default is None.
    smallest_by_kind = -math.inf if isinstance(default, float) else 0
    smallest = optimizer_class.smallest_values.get(name, smallest_by_kind)
    if value < smallest:
        raise UserError(
            f"optimizer {optimizer_class.name!r}: {name} = {value}: it is {smallest} or more; "
            f"its default is {default!r}"
        )
