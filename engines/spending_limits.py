"""What a run may spend at most. `limits.BudgetGuard` refuses calls when a limit is reached."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ..errors import UserError
from ..validation import check_number

_LARGEST_LIMIT = 1e18
"""A larger limit is a slip."""
_COUNTS = ("max_calls", "max_tokens")
"""Limits that are whole numbers."""


def _limit(description: str) -> Any:
    """Return a field that is None by default. Its description is the help of its option."""
    return field(default=None, metadata={"description": description})


@dataclass(frozen=True)
class Limits:
    """What a run may spend at most; None is no limit.

    Raises:
        UserError: A limit is no number, negative, infinite or NaN, or half a call or token.
    """

    max_usd: float | None = _limit("stop at this cost in US dollars")
    """US dollars, of calls whose price is known."""
    max_calls: int | None = _limit("stop after this many calls, including embedders'")
    max_tokens: int | None = _limit("stop after this many tokens")
    """Tokens of prompts and answers together."""
    max_minutes: float | None = _limit("stop after this many minutes")

    def __post_init__(self) -> None:
        for limit_field in fields(self):
            check_number(limit_field.name, getattr(self, limit_field.name), maximum=_LARGEST_LIMIT)
        for name in _COUNTS:
            limit = getattr(self, name)
            if limit is not None and limit != int(limit):
                raise UserError(f"{name} = {limit}: give a whole number")

    def as_dict(self) -> dict[str, float]:
        """Return the limits that are set, by name."""
        return {name: limit for name, limit in vars(self).items() if limit is not None}
