"""Which constructor arguments are plain data: numbers, texts, dates and collections of them.

Plain data belongs in the settings of a component, since settings are saved with a program. Other
components, embedders, functions and shared objects are no plain data:

    def __init__(self, max_words: int | None, reader: Reader, *names: str) -> None: ...

Here `max_words` and `names` are plain data, and `reader` is not.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_SCALARS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    Decimal,
    Enum,
    PurePath,
    date,  # datetime is a subclass of it
    time,
    timedelta,
)
_COLLECTIONS = (list, tuple, dict, set, frozenset, Sequence, Mapping, Set)


def is_plain_data(parameter: inspect.Parameter, namespace: Mapping[str, Any]) -> bool:
    """Return whether a constructor parameter may receive plain data.

    Plain data are numbers, texts, dates and collections of them. Without a type and a default
    nothing is known about a parameter, and the result is False.

    Args:
        parameter: A parameter of the constructor.
        namespace: The global names of the constructor's module, in which its types are evaluated.
    """
    # `*args` and `**kwargs` take any values, so plain data too, whatever their annotation says.
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return True
    # The default None proves nothing: it may stand for an object that is left out. So None is not
    # among the scalars, and the type decides.
    if isinstance(parameter.default, (*_SCALARS, *_COLLECTIONS)):
        return True
    return _is_plain_type(_type_of(parameter, namespace))


def _type_of(parameter: inspect.Parameter, namespace: Mapping[str, Any]) -> Any:
    """Return the type of a parameter; `Any` if it has none, or one that cannot be evaluated."""
    if parameter.annotation is parameter.empty:
        return Any

    # `get_type_hints` turns an annotation that is a text, such as "int | None", into a type. It
    # fails as a whole if one name is imported only for type checkers. So it gets an object with
    # this annotation alone, and not the constructor with all of them.
    annotated: Any = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(annotated, dict(namespace))[parameter.name]
    except (AttributeError, NameError, TypeError):
        return Any


def _is_plain_type(hint: Any) -> bool:
    """Return whether values of a type may be plain data: numbers, texts, dates or collections.

    Of a union such as `int | Reader`, one plain alternative is enough.
    """
    origin = get_origin(hint)
    if origin is Literal:
        return True
    if origin in (Union, UnionType):
        return any(_is_plain_type(alternative) for alternative in get_args(hint))

    # Of `list[str]`, the origin is `list`; a type without brackets has none.
    kind = hint if origin is None else origin
    if not isinstance(kind, type):
        return False
    if issubclass(kind, _SCALARS):
        return True
    # `Iterable` and `Collection` are compared by identity: `issubclass` would be true of every
    # class that has `__iter__`, and so of objects that are no collections of data.
    if kind in (Iterable, Collection) or issubclass(kind, _COLLECTIONS):
        return _may_hold_plain_data(kind, get_args(hint))
    return False


def _may_hold_plain_data(kind: type, arguments: tuple[Any, ...]) -> bool:
    """Return whether some values in a collection may be numbers, texts, dates or collections.

    One such type among several is enough. So is an unknown type, since it may be such a type.

    Args:
        kind: The class of the collection, such as `dict`.
        arguments: The types in its brackets, such as `(str, int)`; empty if there are no brackets.
    """
    # Nothing is known of the values in a plain `list`, so they may be numbers or texts.
    if not arguments:
        return True

    # The keys of a mapping do not count: a `dict[str, Reader]` holds objects.
    value_types = arguments[-1:] if issubclass(kind, Mapping) else arguments
    return any(value_type is Any or _is_plain_type(value_type) for value_type in value_types)
