"""Turn the options of a benchmark's `load` into the types that it asks for."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..errors import UserError

_FINITE = ConfigDict(allow_inf_nan=False)


def coerce_options(
    benchmark: str, function: Callable[..., Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options with the types that a function's hints ask for.

    A number becomes text where text is due, e.g. the category 2 of `categories=2`.

    Raises:
        UserError: An option is of another kind, or out of its range; the message names it.
    """
    hints: dict[str, Any] = {}
    if options:
        try:
            hints = get_type_hints(function, include_extras=True)
        except NameError:
            # A user's class may have hints that exist for type checkers only.
            hints = {}

    coerced: dict[str, Any] = {}
    for name, value in options.items():
        coerced[name] = _coerce(f"{benchmark}: {name}", hints.get(name, Any), value)
    return coerced


def _coerce(label: str, hint: Any, value: Any) -> Any:
    """Return a value as its type hint asks for it; `label` names it in an error message."""
    candidates = [value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        candidates.append(str(value))

    problem = ""
    for candidate in candidates:
        try:
            coerced = TypeAdapter[Any](hint, config=_FINITE).validate_python(candidate)
        except ValidationError as error:
            problem = error.errors()[-1]["msg"]
            continue
        # What is made of a list may be an iterator that can be read only once.
        return coerced if isinstance(coerced, int | float | str) else candidate
    raise UserError(f"{label} = {reprlib.repr(value)}: {problem}")
