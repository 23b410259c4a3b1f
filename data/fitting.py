"""Options of benchmarks, checked against the types that their readers ask for, before a file is opened.

Example:
    >>> from mempiler.data.fitting import fitted
    >>> def load(path: str, *, users: int = 10, categories: str | None = None) -> None: ...
    >>> fitted("memory-env", load, {"users": 5, "categories": 2})
    {'users': 5, 'categories': '2'}

Limits: an option that the function does not name is left to it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..errors import DataError, UserError

_FINITE = ConfigDict(allow_inf_nan=False)


def fitted(benchmark: str, function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the types that the function's hints ask for; a number becomes the text of it where one is due.

    Raises:
        UserError: An option is of another kind; the message names it.
    """
    try:
        hints = get_type_hints(function) if options else {}
    except NameError:  # hints of a class of one's own that are there for type checkers alone
        hints = {}
    return {name: _fitted(f"{benchmark}: {name}", hints.get(name, Any), value) for name, value in options.items()}


def whole(name: str, value: int | str, least: int, most: int) -> int:
    """A whole number of an option, which may have been given as text.

    Raises:
        DataError: It is none, or out of range.
    """
    try:
        number = int(value)
    except ValueError:
        raise DataError(f"{name}={value!r} is no whole number") from None
    if not least <= number <= most:
        raise DataError(f"{name}={number} is out of range; choose {least} to {most}")
    return number


def _fitted(where: str, kind: Any, value: Any) -> Any:
    as_text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    for given in (value, as_text):
        try:
            found = TypeAdapter[Any](kind, config=_FINITE).validate_python(given)
        except ValidationError as error:
            problem = error.errors()[-1]["msg"]
        else:
            # What is made of a list may be an iterator that can be read once only.
            return found if isinstance(found, int | float | str) else given
    raise UserError(f"{where} = {reprlib.repr(value)}: {problem}")
