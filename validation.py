"""Check numbers and addresses that users set, and say in words why a value is not valid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

from .errors import UserError
from .secret_values import hide_password

MAX_SECONDS = 1e6
"""The longest wait that can be set, eleven days; timers of operating systems end not far above."""

_MAX_PLACE_LENGTH = 100


class ValidationFailure(Protocol):
    """A ValidationError of pydantic, or FastAPI's RequestValidationError."""

    def errors(self) -> Sequence[Mapping[str, Any]]:
        """Return the problems, each with its place (`loc`) and reason (`msg`)."""
        ...


def check_number(
    name: str, value: float | None, minimum: float = 0, maximum: float = math.inf
) -> None:
    """Refuse a number that is out of range, infinite or NaN; None is valid.

    Raises:
        UserError: The number is not valid; the message names it and its range.
    """
    if value is None:
        return

    # NaN and infinity would switch a limit off or stop a clock. NaN fails every comparison.
    # Callers without type checks may pass anything, so the type is checked too.
    # True and False are of the type int.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and minimum <= value <= maximum and value < math.inf:
        return

    upper_end = "or more" if maximum == math.inf else f"to {maximum:g}"
    shown_value = str(value)[:30]
    raise UserError(f"{name} = {shown_value}: give a finite number, {minimum:g} {upper_end}")


def check_address(name: str, address: str) -> None:
    """Refuse what is not the address of an HTTP server.

    Args:
        name: What the address is, for the message, e.g. "--api-base".
        address: The address, e.g. "http://127.0.0.1:8000".

    Raises:
        UserError: The address has no host, or its scheme is neither http nor https.
    """
    # `urlsplit` and the port raise ValueError for what they cannot read.
    with suppress(ValueError):
        parts = urlsplit(address)
        is_http = parts.scheme in ("http", "https")
        if is_http and parts.hostname and parts.port != 0 and address.isprintable():
            return

    shown_address = hide_password(str(address))
    raise UserError(
        f"{name} {shown_address!r:.100} is no address; give one such as http://127.0.0.1:8000"
    )


def validation_message(error: ValidationFailure, skipped_parts: int = 0) -> str:
    """Return the first problem of a validation error, as `place: reason`.

    Args:
        error: What pydantic or FastAPI raised.
        skipped_parts: How many parts at the beginning of the place are left out.
    """
    problem = error.errors()[0]
    parts = [str(part) for part in problem["loc"][skipped_parts:]]

    # In a union pydantic names the function that chose the type, with its memory address.
    place = ".".join(part for part in parts if not part.startswith("function-"))
    reason = problem["msg"].removeprefix("Value error, ")
    if not place:
        return reason
    return f"{place[:_MAX_PLACE_LENGTH]}: {reason}"
