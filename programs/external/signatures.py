"""Check that a store can be made and called, before anything is paid for.

Python finds a wrong signature only when the method is called: every question would fail, one after
the other, with the same reason.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ...errors import UserError
from .target import parameters, target_kind

_PASSED_TO_CONSTRUCTOR = ("folder", "embedder", "texts", "numbers")
"""What a store may be given when it is made; all are passed by name."""

_METHOD_ARGUMENTS = {
    "add": ("session",),
    "search": ("query", "k"),
    "ask": ("question",),
}
"""What the methods of a store are called with, by position."""


def check_store(target: Any, name: str) -> None:
    """Check the constructor and the methods of a store, as far as their signatures are known.

    Args:
        target: A store, a class of stores, or a function that makes stores.
        name: What errors call it.

    Raises:
        UserError: The constructor needs further arguments, or a method does not take what it is
            called with.
    """
    is_store = hasattr(target, "add")
    if isinstance(target, type) or not is_store:
        _check_constructor(target, name)

    # The methods of stores that a function makes are not known yet.
    if is_store:
        asking_method = "ask" if target_kind(target) == "ask" else "search"
        for method in ("add", asking_method):
            _check_method(target, method, name)


def _check_constructor(target: Any, name: str) -> None:
    """Raise a UserError if a class or function needs arguments that nobody passes."""
    missing: list[str] = []
    for parameter in parameters(target).values():
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        is_required = parameter.default is parameter.empty and not is_variadic
        if is_required and parameter.name not in _PASSED_TO_CONSTRUCTOR:
            missing.append(parameter.name)
    if missing:
        raise UserError(
            f"{name}: cannot be made without {', '.join(missing)}; a store is given `folder`, "
            "`embedder`, `texts` and `numbers` at most, so set a default, or name a function "
            "that sets it"
        )


def _check_method(target: Any, method: str, name: str) -> None:
    """Raise a UserError if a method of a store does not take the arguments it is called with."""
    arguments = _METHOD_ARGUMENTS[method]
    attribute = inspect.getattr_static(target, method, None)
    if isinstance(attribute, functools.singledispatchmethod):
        # Its signature has `self` even where it is bound, in some versions of Python.
        return
    if isinstance(target, type) and _takes_store(attribute):
        arguments = ("self", *arguments)

    try:
        signature = inspect.signature(getattr(target, method))
    except (TypeError, ValueError):
        # A callable in C, or something that only the store itself can call.
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        expected = f"{method}({', '.join(arguments)})"
        raise UserError(
            f"{name}: {method}{signature} cannot be called as {expected}: {error}"
        ) from error


def _takes_store(attribute: object) -> bool:
    """Return whether an attribute of a class, when called, takes the store as its first argument.

    Functions do, and so do methods in a wrapper such as `functools.lru_cache`. Python binds all of
    these to the store, for which they have `__get__`.
    """
    if isinstance(attribute, staticmethod | classmethod):
        return False
    return hasattr(type(attribute), "__get__")
