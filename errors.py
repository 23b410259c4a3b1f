"""The exceptions that Mempiler raises; the command line prints one as one line, and exits with its code.

Errors of the language model that concern a single question are not exceptions but data: they become a
`records.Failure` that is counted in every table. Only an unreachable endpoint stops a run.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from .secret_values import Secrets, secrets_of_address

LONGEST = 1500
"""Most characters of a message; values of files are quoted in it, and can be of any length."""
MOST_SECONDS = 1e6
"""Longest wait that can be asked for, some eleven days; clocks of the system end not far above."""


class MempilerError(Exception):
    """Base of all errors; `exit_code` is the exit status of the command line.

    Args:
        message: Made one line that every terminal and log can hold, at most `LONGEST` characters of it.
    """

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        line = one_line(message).encode("utf-8", "backslashreplace").decode()
        super().__init__(line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}")


class UserError(MempilerError):
    """Raised if the caller can correct the cause; the message says how."""

    exit_code = 2


class DataError(UserError):
    """Raised if a file, row or field is missing, malformed or of the wrong kind."""


class ProgramError(UserError):
    """Raised if a saved program was altered or does not fit the code that loads it."""


class UnknownNameError(UserError):
    """Raised if a name is in no catalog.

    Args:
        kind: What was looked up, e.g. "method".
        name: The name that was not found.
        known: The names there are; the closest one is suggested.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of: {', '.join(known)}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")


class ConflictError(UserError):
    """Raised if other content is stored under the same name; nothing was changed."""


class MissingDependencyError(UserError):
    """Raised if a package is not installed.

    Args:
        package: The package that is missing.
        extra: The extra of Mempiler that brings it; None if Mempiler itself does.
    """

    def __init__(self, package: str, extra: str | None = None) -> None:
        wanted = f"'.[{extra}]'" if extra else package
        super().__init__(f"{package} is not installed; run: pip install {wanted}")


@contextmanager
def needing(package: str, extra: str) -> Generator[None]:
    """Makes of a failed import in the block a `MissingDependencyError` of these."""
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(package, extra) from error


class EndpointError(MempilerError):
    """Raised if the model's endpoint does not answer; results computed so far are kept."""

    exit_code = 3


class AnswerChangedError(MempilerError):
    """Raised if what was sent of an answer is not its beginning; nothing of it is stored."""

    exit_code = 3


class ServiceError(MempilerError):
    """Raised by clients of a service that does not answer, or cannot at the moment.

    Args:
        message: What the service says, or what became of the connection.
        status: The HTTP status; None if there was no answer.
    """

    exit_code = 3

    def __init__(self, message: object = "", status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class StoreError(MempilerError):
    """Raised if the store cannot be opened, read or written; no transaction is left half written."""

    exit_code = 4


class BrokenRunError(MempilerError):
    """Raised if more questions of a run failed than `--max-failure-rate` allows, or if its optimizer failed."""

    exit_code = 4


class BudgetError(MempilerError):
    """Raised for every call after a user's limit was reached; caught where work can end cleanly."""

    exit_code = 0


class RunInterrupted(KeyboardInterrupt):
    """Raised in the place of a KeyboardInterrupt by work of which something is kept.

    Args:
        kept: What is kept, and where.
        resume: The options that go on with it, e.g. ("--resume", "RUN").
    """

    def __init__(self, kept: str, resume: tuple[str, ...] = ()) -> None:
        super().__init__(kept)
        self.kept, self.resume = kept, resume


def check_number(name: str, value: float | None, least: float = 0, most: float = math.inf) -> None:
    """Refuses what would switch a limit off or stop a clock: NaN, infinity, a number out of range; None passes.

    Raises:
        UserError: The message names the number and its range.
    """
    # NaN is not even equal to itself, and fails every comparison. Callers without types pass anything.
    if value is not None and not (isinstance(value, int | float) and least <= value <= most and value < math.inf):
        upto = "or more" if most == math.inf else f"to {most:g}"
        raise UserError(f"{name} = {str(value)[:30]}: give a finite number, {least:g} {upto}")


def check_address(what: str, url: str) -> None:
    """Refuses what is no address of a server.

    Raises:
        UserError: It has no host, or neither http nor https.
    """
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and url.isprintable():
            return
    shown = Secrets(secrets_of_address(url)).hide(url)
    raise UserError(f"{what} {shown!r:.100} is no address; give one such as http://127.0.0.1:8000")


def one_line(text: object, most: int | None = None) -> str:
    """A text, or what an error says, without line breaks: what stands on a line of a prompt cannot begin another one.

    Args:
        text: Made a text; None is none.
        most: Characters that are kept of it.
    """
    return " ".join(("" if text is None else str(text)).split())[:most]


def misfit(error: Any, skip: int = 0) -> str:
    """Where a value fits no model, behind `skip` parts of the place, and why: what a validation error says first."""
    first = error.errors()[0]
    # Of a choice pydantic names the function that checks one, with its address.
    place = ".".join(str(part) for part in first["loc"][skip:] if not str(part).startswith("function-"))
    return ": ".join(filter(None, (place[:100], first["msg"].removeprefix("Value error, "))))
