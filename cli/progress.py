"""Keep standard output for results while a command runs, and show how far the run is on standard error."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from ..engines.limits import Limits
    from ..engines.meter import Meter
    from ..runs.progress import StartPhase


@contextmanager
def progress(
    limits: Limits | None = None, console: Console | None = None, seconds_between_lines: float = 60.0
) -> Iterator[tuple[StartPhase, Meter]]:
    """Show the progress of a run as `runs.progress.run_progress` does, and keep standard output for its result."""
    from ..runs.progress import run_progress

    with quiet_output(), run_progress(limits, console, seconds_between_lines) as shown:
        yield shown


@contextmanager
def quiet_output() -> Iterator[None]:
    """Keep what programs and optimizers print, and what DSPy logs of every failed call, away from standard output.

    In a terminal, lines that they print go to standard error; elsewhere they are dropped. A dead endpoint is still told
    in one line at the end.
    """
    logger = logging.getLogger("dspy")
    level = logger.level
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        printed = _WholeLines() if sys.stderr.isatty() else nowhere
        with redirect_stdout(printed):
            logger.setLevel(logging.CRITICAL)
            try:
                yield
            finally:
                logger.setLevel(level)


class _WholeLines(io.TextIOBase):
    """Writes whole lines to standard error, without those that draw progress bars of DSPy's."""

    def __init__(self) -> None:
        self._unfinished = ""

    def write(self, text: str, /) -> int:
        *lines, self._unfinished = f"{self._unfinished}{text}".split("\n")
        for line in lines:
            # A carriage return draws over the line before: a bar, beside ours.
            if "\r" not in line:
                sys.stderr.write(f"{line}\n")
        return len(text)
