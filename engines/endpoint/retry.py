"""Retries of a call whose endpoint is busy or away; errors are those of `dspy.lm15`."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from dspy.lm15 import RETRYABLE_ERRORS

T = TypeVar("T")

LONGEST_WAIT = 60.0
"""Most seconds that an endpoint may ask to wait; a call that is to wait longer has failed."""


async def with_retries(attempt: Callable[[], Awaitable[T]], retries: int, seconds: float) -> T:
    """Make an attempt, and further ones while the endpoint is busy or away.

    Args:
        attempt: Makes one attempt.
        retries: Most attempts after the first.
        seconds: Time for all of it: no pause begins that would last longer. Ending an attempt is up to the caller.

    Raises:
        LM15Error: The last attempt failed.
    """
    end = time.monotonic() + seconds
    for number in itertools.count():
        try:
            return await attempt()
        except RETRYABLE_ERRORS as error:
            if number >= retries:
                raise
            pause = _pause_before_retry(error, number)
            if pause > LONGEST_WAIT or pause >= end - time.monotonic():
                _say_how_long_to_wait(error)
                raise
            await asyncio.sleep(pause)
    raise AssertionError("unreachable: the loop above ends by return or raise")


def _pause_before_retry(error: Any, number: int) -> float:
    """Return the seconds to wait after an attempt: what the endpoint asks for, else 1, 2, 4, ..."""
    asked = error.retry_after
    if asked is not None and math.isfinite(asked):
        return asked
    return min(2.0**number, LONGEST_WAIT)


def _say_how_long_to_wait(error: Any) -> None:
    if error.retry_after is not None:
        error.message = f"the endpoint asks for a wait of {error.retry_after:.0f} s: {error.message}"
