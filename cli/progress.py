"""Keep standard output for results while a command runs; show progress on standard error."""

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
    limits: Limits | None = None,
    console: Console | None = None,
    seconds_between_lines: float = 60.0,
) -> Iterator[tuple[StartPhase, Meter]]:
    """Show the progress of a run on standard error, and keep standard output for its result.

    Args:
        limits: Limits whose use is shown.
        console: Where progress is shown; standard error if None.
        seconds_between_lines: Where bars cannot be drawn, seconds from one line to the next.

    Yields:
        A function that shows a new phase of the run, and the meter that counts its calls.
    """
    from ..runs.progress import run_progress

    with (
        quiet_output(),
        run_progress(limits, console, seconds_between_lines) as (start_phase, meter),
    ):
        yield start_phase, meter


@contextmanager
def quiet_output() -> Iterator[None]:
    """Keep what programs, optimizers and DSPy print away from standard output in the block.

    In a terminal, lines that programs and optimizers print go to standard error; elsewhere they are
    dropped. What DSPy logs of every failed call is dropped: the command itself reports an endpoint
    that fails, in one line at the end.
    """
    logger = logging.getLogger("dspy")
    level = logger.level
    with Path(os.devnull).open("w", encoding="utf-8") as null_device:
        target = _WholeLines() if sys.stderr.isatty() else null_device
        with redirect_stdout(target):
            logger.setLevel(logging.CRITICAL)
            try:
                yield
            finally:
                logger.setLevel(level)


class _WholeLines(io.TextIOBase):
    """A standard output that passes whole lines on to standard error.

    Our own progress bars are drawn on standard error, too, and would break a line in the middle. So
    a line is only passed on when it is complete. Lines that draw DSPy's progress bars are dropped.
    """

    def __init__(self) -> None:
        self._unfinished_line = ""

    def write(self, text: str, /) -> int:
        """Pass on the lines that `text` completes, and keep the rest for the next call."""
        lines = f"{self._unfinished_line}{text}".split("\n")
        # After the last line break stands the beginning of a line that is not complete yet.
        self._unfinished_line = lines.pop()
        for line in lines:
            # A progress bar draws itself again and again with carriage returns.
            is_progress_bar = "\r" in line
            if not is_progress_bar:
                sys.stderr.write(f"{line}\n")
        return len(text)
