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

    Numbers and texts are converted: `size="3"` to 3, and the category of `categories=2` to "2".
    Other values, e.g. lists, are checked and stay as they are.

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
    """Return a value as its type hint asks for it, see `coerce_options`.

    Args:
        label: Names the value in an error message.
        hint: The type hint.
        value: The value.

    Raises:
        UserError: The value does not fit the hint.
    """
    candidates = [value]
    # Pydantic turns a text into a number where the hint is a number, but no number into a text.
    if isinstance(value, int | float) and not isinstance(value, bool):
        candidates.append(str(value))

    problem = ""
    for candidate in candidates:
        try:
            coerced = TypeAdapter[Any](hint, config=_FINITE).validate_python(candidate)
        except ValidationError as error:
            # A hint of several types gives an error for each; the last one is as good as any.
            problem = error.errors()[-1]["msg"]
            continue

        if isinstance(coerced, int | float | str):
            return coerced
        # Not `coerced`: for a hint like `Iterable[str]`, pydantic turns a list into an iterator
        # that can be read only once.
        return candidate
    raise UserError(f"{label} = {reprlib.repr(value)}: {problem}")
