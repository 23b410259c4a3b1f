"""Log lines: one JSON object each, without anything that users said.

A line has `time`, `level` and `event`, and beside them the fields that were logged:

    {"time": "2026-11-30T10:00:00.000+00:00", "level": "info", "event": "request", "status": 200}
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from ..failure_log import cause_of, log

_TRACE_LENGTH = 8
"""The most lines of code in the trace of an error, the innermost ones."""
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
    "litellm_redacted",
}
"""Attributes that every record has; the others are fields that were logged."""
_UVICORN_ERRORS = "uvicorn.error"
"""The logger of everything that uvicorn says, except for a line per request."""
_LOGGERS_WITHOUT_CONTENT = ("mempiler.serving", _UVICORN_ERRORS)
"""What the names of loggers begin with whose messages never quote a user."""


class JsonLines(logging.Formatter):
    """Formats records as JSON objects without user content.

    Of exceptions the types and places are kept, and of messages of other libraries the place in the
    code: their texts may quote what was said.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        created = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": created.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": _event_of(record),
        }
        for name, value in vars(record).items():
            # Packages such as ray mark every record with a private attribute.
            if name not in _STANDARD_FIELDS and not name.startswith("_"):
                line[name] = value
        if record.name != log.name:
            line["logger"] = record.name
            line["where"] = f"{record.module}:{record.lineno}"
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _describe_error(record.exc_info[1])
        return json.dumps(line, default=str)


def _event_of(record: logging.LogRecord) -> str:
    """Return the message of a record, or what of it cannot quote a user."""
    if record.name.startswith(_LOGGERS_WITHOUT_CONTENT):
        return record.getMessage()
    # A template without its arguments holds no user content; a formatted text may.
    return str(record.msg) if record.args else "message left out"


def _describe_error(error: BaseException) -> dict[str, Any]:
    """Return the type of an error, its cause, and the innermost lines of code of its trace."""
    frames = traceback.extract_tb(error.__traceback__)[-_TRACE_LENGTH:]
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"type": type(error).__name__, "cause": cause_of(error), "trace": places}


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return False for the traces of requests that uvicorn cuts off at the end of `grace`.

    It logs a trace for each, as for a fault; how many there are, it has said in a line before.
    """
    if record.name != _UVICORN_ERRORS or record.exc_info is None:
        return True
    return not isinstance(record.exc_info[1], asyncio.CancelledError)


def set_up(level: str = "info") -> None:
    """Send every log line of this process through `JsonLines`; only for a service's own process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(_is_worth_a_line)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("mempiler", "uvicorn"):
        logging.getLogger(name).setLevel(level.upper())

    # Handlers that libraries have added would write past the formatter.
    for name in list(logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True

    # The lines of this logger hold names and queries. Whatever uvicorn is told, it writes them as
    # soon as the logger reaches a handler.
    logging.getLogger("uvicorn.access").propagate = False
