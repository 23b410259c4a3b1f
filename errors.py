"""The exceptions of Mempiler, who raises each, and the exit code of the command line (in brackets).

* MempilerError                  any of those below                                          [1]
  x UserError                    a value or option that the caller can correct               [2]
    + DataError                  readers of files, rows and fields                           [2]
    + ProgramError               the loading of a saved program                              [2]
    + UnknownNameError           catalogs, for a name that they do not hold                  [2]
    + ConflictError              the store and its edits, when other content is in the way   [2]
    + UnknownAnswerError         feedback on an answer that is not kept                      [2]
    + MissingDependencyError     imports of packages that an extra installs                  [2]
  x EndpointError                calls of a model whose endpoint does not answer             [3]
  x AnswerChangedError           streams, when an answer turns out unlike its beginning      [3]
  x ServiceError                 clients of `mempiler serve`                                 [3]
  x StoreError                   the store of memories                                       [4]
    + DamagedRowError            the store, for a row that cannot be read                    [4]
  x BrokenRunError               runs in which too much failed                               [4]
  x BudgetError                  model calls after a limit of the user was reached           [0]
    + TenantBudgetError          model calls of a service for a tenant over its budget       [0]
* RunInterrupted                 runs that Ctrl-C stopped; a KeyboardInterrupt             [130]

The command line prints an error as one line. `except MempilerError` does not catch RunInterrupted,
so that no handler of errors swallows a Ctrl-C.

When a model answers one question badly, nothing is raised: a `records.Failure` is kept and counted
instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from .text import one_line

MAX_MESSAGE_LENGTH = 1500
"""The most characters of a message: it may quote values of any length."""


class MempilerError(Exception):
    """Base of all errors. Its message is one line that every terminal and log can show."""

    exit_code = 1
    """The exit status of the command line."""

    def __init__(self, message: object = "") -> None:
        # Half of a surrogate pair cannot be printed as UTF-8: it is shown as an escape.
        line = one_line(message).encode("utf-8", "backslashreplace").decode()
        if len(line) > MAX_MESSAGE_LENGTH:
            half = MAX_MESSAGE_LENGTH // 2
            line = f"{line[:half]} ... {line[-half:]}"
        super().__init__(line)


class UserError(MempilerError):
    """Raised if the caller can correct the cause; the message says how."""

    exit_code = 2


class DataError(UserError):
    """Raised if a file, row or field is missing, malformed or of the wrong kind."""


class ProgramError(UserError):
    """Raised if a saved program was altered or does not fit the code that loads it."""


class UnknownNameError(UserError):
    """Raised if a name is not in a catalog. The message suggests the most similar name.

    Args:
        kind: What was looked up, e.g. "method".
        name: The name that is unknown.
        known_names: The names in the catalog.
    """

    def __init__(self, kind: str, name: str, known_names: Iterable[str]) -> None:
        sorted_names = sorted(known_names)
        similar_names = difflib.get_close_matches(str(name), sorted_names, n=1)
        if similar_names:
            hint = f"did you mean {similar_names[0]!r}?"
        else:
            hint = f"choose one of: {', '.join(sorted_names)}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")


class ConflictError(UserError):
    """Raised if other content is stored under the same name. Nothing was changed."""


class UnknownAnswerError(UserError):
    """Raised if feedback is given on an answer that is not kept. Nothing was stored."""


class MissingDependencyError(UserError):
    """Raised if a package is not installed. The message says how to install it.

    Args:
        package: The missing package.
        extra: The extra of Mempiler that installs it; None if Mempiler itself requires it.
    """

    def __init__(self, package: str, extra: str | None = None) -> None:
        requirement = f"'.[{extra}]'" if extra else package
        super().__init__(f"{package} is not installed; run: pip install {requirement}")


class EndpointError(MempilerError):
    """Raised if the endpoint of a model does not answer. Results so far are kept."""

    exit_code = 3


class AnswerChangedError(MempilerError):
    """Raised if the text that was already sent is not the beginning of the answer.

    Nothing of the answer is stored.
    """

    exit_code = 3


class ServiceError(MempilerError):
    """Raised by clients if a service does not answer or cannot do what it was asked.

    Args:
        message: What the service says, or what happened to the connection.
        status: The HTTP status; None if there was no answer.
    """

    exit_code = 3

    def __init__(self, message: object = "", status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class StoreError(MempilerError):
    """Raised if the store cannot be opened, read or written.

    No transaction is left half written.
    """

    exit_code = 4


class DamagedRowError(StoreError):
    """Raised if a row of a user cannot be read. Other users are not affected."""


class BrokenRunError(MempilerError):
    """Raised if more questions failed than `--max-failure-rate` allows, or an optimizer failed."""

    exit_code = 4


class BudgetError(MempilerError):
    """Raised by every model call after a limit of the user was reached.

    Runs catch it where they can end cleanly, so it is no failure of the command line.
    """

    exit_code = 0


class TenantBudgetError(BudgetError):
    """Raised by model calls of a service for a tenant that has spent its dollars of the day.

    Args:
        message: What is used up.
        retry_after: Seconds after which the call may be tried again.
    """

    def __init__(self, message: object, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RunInterrupted(KeyboardInterrupt):
    """Raised instead of a KeyboardInterrupt by a run that has saved something.

    Like a KeyboardInterrupt, it is not caught by `except Exception` or `except MempilerError`.

    Args:
        kept: What was saved, and where.
        resume: The options that continue the run, e.g. ("--resume", "RUN"); none if the same
            command does.
    """

    def __init__(self, kept: str, resume: tuple[str, ...] = ()) -> None:
        super().__init__(kept)
        self.kept = kept
        self.resume = resume
