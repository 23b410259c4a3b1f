"""What kind of failure an error is: the one table for questions, writing steps and predictor calls.

A refusal (parse, cut, refused, too-long) concerns one prompt: it is counted and skipped. Only `endpoint` says something
of other prompts.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

from dspy.utils.exceptions import (
    AdapterParseError,
    ContextWindowExceededError,
    LMError,
    LMInvalidRequestError,
    LMUnsupportedModelError,
)

from ..errors import one_line
from ..records import Failure
from ..records.context import FailureKind


class ExternalError(Exception):
    """Raised if something external failed to do what it was asked: the failure of the questions that hang on it."""


class CutShortError(AdapterParseError):
    """Raised if an answer ended for want of room."""


LOST = (AdapterParseError, LMInvalidRequestError)
"""What concerns one prompt only; `concerns_prompt` excludes the unknown model."""


def concerns_prompt(error: BaseException) -> bool:
    """Whether an error is a matter of the one prompt, so that other prompts may well succeed."""
    return isinstance(error, LOST) and not isinstance(error, LMUnsupportedModelError)


def kind_of(error: BaseException) -> FailureKind:
    """The kind of failure that an error is."""
    if isinstance(error, LMInvalidRequestError) and _TOO_LONG.search(str(error)):
        return "too-long"
    for error_type, kind in _KINDS:
        if isinstance(error, error_type):
            return kind
    return "error"


_TOO_LONG = re.compile(r"context[ _](?:size|length|window)", re.IGNORECASE)
"""What llama.cpp, vLLM and Ollama say of a prompt that is too long; they have no code for it that DSPy knows."""
_KINDS: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (CutShortError, "cut"),
    (AdapterParseError, "parse"),
    (ContextWindowExceededError, "too-long"),
    (LMUnsupportedModelError, "endpoint"),
    (LMInvalidRequestError, "refused"),
    (LMError, "endpoint"),
)


def failure_of(where: str, error: BaseException) -> Failure:
    """The failure that stands for an error in tables."""
    kind, message = kind_of(error), one_line(error, 300)
    if kind == "error" and not isinstance(error, ExternalError):
        message = f"{type(error).__name__}: {message}{own_line(error)}"
    return Failure(kind=kind, where=where, message=message)


def own_line(error: BaseException | None) -> str:
    """Where in the user's own code an error was raised, e.g. " (mine.py:12)"; empty where it was not raised in it."""
    while error is not None:
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            file = Path(frame.f_code.co_filename)
            ours = frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]
            if not ours and file.suffix == ".py" and not _INSTALLED & {*map(str, file.parents)}:
                return f" ({file.name}:{line})"
        error = error.__cause__ or error.__context__
    return ""


_INSTALLED = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
"""Folders of Python and of installed packages."""
