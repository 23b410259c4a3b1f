"""Structured logs: one JSON object per line on standard error, without user content.

    {"time": "2025-01-31T12:00:00.123+00:00", "level": "info", "event": "request", "request": "5f0c...",
     "method": "POST", "route": "/v1/users/{user}/ask", "status": 200, "ms": 12.3, "tenant": "acme"}

Routes stand without the names in them. Of other libraries' lines only the place in the code is kept, and of exceptions
the types and places: their texts may quote what was said. `contents=True` keeps everything.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

from dspy.utils.exceptions import LMError
from sqlalchemy.exc import OperationalError

from ..errors import StoreError

log = logging.getLogger("mempiler.serving")

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
CONTENTS = ("question", "answer", "user", "reason")
"""Fields of a line that are left out unless contents are logged."""


class JsonLines(logging.Formatter):
    """Formats records as JSON objects.

    Args:
        contents: Whether texts that may quote users are kept.
    """

    def __init__(self, contents: bool = False) -> None:
        super().__init__()
        self._contents = contents

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        if self._contents or record.name.startswith(("mempiler.serving", "uvicorn")):
            event = record.getMessage()
        else:
            # A template without its arguments holds no user content; a formatted text may.
            event = str(record.msg) if record.args else "message left out"
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower(), "event": event}
        given = {name: value for name, value in vars(record).items() if name not in _OWN}
        line |= {name: value for name, value in given.items() if self._contents or name not in CONTENTS}
        if record.name != log.name:
            line |= {"logger": record.name, "where": f"{record.module}:{record.lineno}"}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = self._error(record.exc_info)
        return json.dumps(line, default=str)

    def _error(self, info: Any) -> dict[str, Any]:
        kind, error, trace = info
        frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]
        found = {"type": kind.__name__, "cause": cause_of(error), "trace": frames[-8:]}
        return {**found, "message": str(error)} if self._contents else found


def cause_of(error: BaseException) -> str:
    """Why something failed, without what anybody said: full disk, server down, status of the model's endpoint."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, LMError):
        return f"status {error.status}" if error.status else f"{error.code}"
    below = error.__cause__
    if isinstance(error, StoreError) and isinstance(below, OperationalError):
        # Other errors of a database may quote the values of a row.
        return str(below.orig).partition("\n")[0]
    return type(error if below is None else below).__name__


def failure(error: BaseException) -> dict[str, str]:
    """The fields of a line that says that something failed."""
    return {"kind": type(error).__name__, "cause": cause_of(error), "reason": str(error)}


def set_up(contents: bool = False, level: str = "info", stream: TextIO | None = None) -> None:
    """Sends every log line of this process through `JsonLines`; for the service's own process only."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(contents))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("mempiler", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())
    for name in list(logging.root.manager.loggerDict):
        # Handlers of their own would write past the formatter.
        found = logging.getLogger(name)
        found.handlers.clear()
        found.propagate = True
