"""Repeat a call while its endpoint is busy or away; errors are those of `dspy.lm15`."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dspy.lm15 import RETRYABLE_ERRORS, LM15Error

from .errors import add_earlier_attempt, attempt_may_be_charged

T = TypeVar("T")

LONGEST_PAUSE = 60.0
"""Most seconds that an endpoint may ask to wait; a call that is to wait longer has failed."""


async def with_retries(attempt: Callable[[], Awaitable[T]], retries: int, seconds: float) -> T:
    """Return the result of an attempt; repeat it while the endpoint is busy or away.

    Args:
        attempt: Makes one attempt.
        retries: Most attempts after the first.
        seconds: Time for all attempts and pauses. No pause begins that would last longer. An
            attempt that lasts longer is ended by the caller.

    Raises:
        LM15Error: The last attempt failed. If the endpoint may charge for an earlier one, the error
            of that is among its causes.
    """
    end = time.monotonic() + seconds
    retry = 0
    charged_error: LM15Error | None = None
    """The error of the latest attempt before this one that the endpoint may charge for."""
    while True:
        try:
            return await attempt()
        except LM15Error as error:
            pause = _pause_before(retry, error)
            is_last = retry == retries or not isinstance(error, RETRYABLE_ERRORS)
            if not is_last and (pause > LONGEST_PAUSE or pause >= end - time.monotonic()):
                _name_the_wait(error)
                is_last = True

            if is_last:
                if charged_error is not None:
                    add_earlier_attempt(error, charged_error)
                raise

            if attempt_may_be_charged(error):
                # Its frames hold this function's, which would hold the error: only the garbage
                # collector would free them, with the connection of the attempt.
                error.__traceback__ = None
                charged_error = error

        await asyncio.sleep(pause)
        retry += 1


def _pause_before(retry: int, error: LM15Error) -> float:
    """Return the seconds to wait before a retry: what the endpoint asks for, else 1, 2, 4, ...

    Args:
        retry: The number of the retry, from 0.
        error: What the attempt before it raised.
    """
    seconds = error.retry_after
    if seconds is not None and math.isfinite(seconds):
        return seconds
    return min(2.0**retry, LONGEST_PAUSE)


def _name_the_wait(error: LM15Error) -> None:
    """Add to the message of an error for how long the endpoint asks to wait, if it does."""
    if error.retry_after is not None:
        wait = f"the endpoint asks for a wait of {error.retry_after:.0f} s"
        error.message = f"{wait}: {error.message}"
