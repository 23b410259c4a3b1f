"""What a command says when it is stopped by Ctrl-C or SIGTERM: what is kept, and the command that goes on."""

from __future__ import annotations

import os
import re
import shlex
import signal
import threading
from collections.abc import Sequence
from typing import Any

from ..errors import Stopped

_RESUMED = ("evaluate", "compile", "train", "reproduce")
"""Commands with an option --resume RUN."""
_PASSWORD = re.compile(r"(://[^:/@\s]*):[^/@\s]*@")


def stop_line(stop: BaseException | None, arguments: Sequence[str]) -> str:
    """One line for whoever stopped a command.

    Args:
        stop: What ended it.
        arguments: Its command line; a password in an address is left out.
    """
    if isinstance(stop, Stopped):
        kept, command = stop.kept, list(arguments)
        if arguments[0] in _RESUMED:
            command = [*_without_resume(command), *stop.resume]
    elif tuple(arguments[:2]) == ("memories", "rebuild"):
        kept = "users and sessions that were written are kept, the others stay queued"
        command = [each for each in arguments if each != "--force"]
    else:
        return "stopped"
    shown = _PASSWORD.sub(r"\1:...@", shlex.join(["mempiler", *command]))
    return f"stopped; {kept}; to go on: {shown}"


AGAIN = 5.0
"""Seconds after which a process that goes on nevertheless is interrupted again."""


def end_by_signal() -> None:
    """Lets SIGTERM end a command as Ctrl-C does; the service has handlers of its own."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(number: int, _: Any) -> None:
    # An interrupt that comes while Python cleans up an object is printed and lost: it is sent once more then.
    again = threading.Timer(AGAIN, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()
    raise KeyboardInterrupt


def _without_resume(command: Sequence[str]) -> list[str]:
    resumes = [n for n, each in enumerate(command) if each == "--resume"]
    gone = {*resumes, *(n + 1 for n in resumes)}
    return [each for n, each in enumerate(command) if n not in gone and not each.startswith("--resume=")]
