"""The log of a service, and how a failure is described in it.

What a line says of a failure never holds anything that a user said.
"""

from __future__ import annotations

import logging
import os

from dspy.utils.exceptions import LMError
from sqlalchemy.exc import OperationalError

from ..errors import StoreError

log = logging.getLogger("mempiler.serving")


def cause_of(error: BaseException) -> str:
    """Return why something failed, without anything that a user said.

    For example "No space left on device", "status 500" or "TimeoutError".
    """
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, LMError):
        return f"status {error.status}" if error.status else f"{error.code}"

    cause = error.__cause__
    # Other errors of a database may quote the values of a row.
    if isinstance(error, StoreError) and isinstance(cause, OperationalError):
        return str(cause.orig).partition("\n")[0]
    return type(error if cause is None else cause).__name__


def failure(error: BaseException) -> dict[str, str]:
    """Return the fields of a log line that says that something failed."""
    return {"kind": type(error).__name__, "cause": cause_of(error)}
