"""How far a run is, on standard error: bars in a terminal, one line a minute in a file or a pipe.

Both say what is done of all there is, how fast, how long it still takes, what is spent of the budget, and how many
calls were lost.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from ..engines.guard import Limits
    from ..engines.meter import Meter, Usage

EVERY = 60.0
"""Seconds between two lines, where nobody watches a terminal."""

Told = Callable[[int, int], None]
"""Takes what is done, and how much there is."""


@dataclass
class Stage:
    """One phase of a run, as far as it has come.

    Args:
        name: What is done in it.
        started: When it began, on the clock of `time.monotonic`.
    """

    name: str
    started: float
    first: int | None = None
    """What was done when it was first told of: a resumed run has not done that now."""
    done: int = 0
    total: int = 0
    at: float = field(default=0.0)
    """When it was last told of."""

    def tell(self, done: int, total: int, now: float) -> None:
        """Takes what is done."""
        # What comes out of a journal comes at once, and says nothing of the pace.
        self.first = done - 1 if self.first is None else self.first
        self.done, self.total, self.at = max(self.done, done), total, now

    def pace(self, now: float) -> str:
        """Units a minute and the time that is left, as far as anything is known of them."""
        here, passed = self.done - (self.first or 0), now - self.started
        if here < 1 or passed <= 0:
            return ""
        left = "" if self.total <= self.done else f", {duration((self.total - self.done) * passed / here)} left"
        return f"{60 * here / passed:,.1f}/min{left}"

    def line(self, now: float) -> str:
        """All of it in words."""
        share = f" ({self.done / self.total:.0%})" if self.total else ""
        counted = f" {self.done:,} of {self.total:,}{share}" if self.total else ""
        pace = self.pace(now)
        return f"{self.name}:{counted}{', ' if counted and pace else ''}{pace or ('' if counted else ' running')}"


def duration(seconds: float) -> str:
    """Seconds in words, as exact as anybody needs."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def spent(usage: Usage, limits: Limits | None) -> str:
    """Calls, dollars and lost answers so far, each with its limit."""
    most = {} if limits is None else vars(limits)
    calls, tokens = sum(usage.calls.values()), usage.input_tokens + usage.output_tokens
    found = [f"{calls:,}{_of(most.get('max_calls'))} calls"]
    if most.get("max_tokens") is not None:
        found.append(f"{tokens:,}{_of(most['max_tokens'])} tokens")
    if usage.cost or most.get("max_usd") is not None:
        limit = most.get("max_usd")
        found.append(f"${usage.cost:.4f}" + ("" if limit is None else f" of ${limit:g}"))
    lost = sum(count for (_, outcome), count in usage.answers.items() if outcome == "lost")
    found += [f"{count:,} {what}" for what, count in (("lost", lost), ("failed", usage.failed)) if count]
    return ", ".join(found)


@contextmanager
def progress(
    console: Console, meter: Meter, limits: Limits | None = None, every: float = EVERY
) -> Iterator[Callable[[str], Told]]:
    """Shows how far a run is while the block runs.

    DSPy's optimizers print to standard output: that goes to standard error too, so that results stay clean. What they
    log of every failed call is not shown; a dead endpoint is one line at the end.

    Args:
        console: On standard error.
        meter: Counts the calls.
        limits: What may be spent.
        every: Seconds between two lines where the console is no terminal.

    Yields:
        What `run_compile` and `run_evaluate` take as `note`.
    """
    shown = console.is_terminal
    with (
        _quiet_dspy(),
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(sys.stderr if shown else nowhere),
        (_bars if shown else _lines)(console, meter, limits, every) as note,
    ):
        yield note


@contextmanager
def _bars(console: Console, meter: Meter, limits: Limits | None, _: float) -> Iterator[Callable[[str], Told]]:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Pace(), _Spent(meter, limits)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:

        def note(phase: str) -> Told:
            stage = Stage(phase, time.monotonic())
            bar = bars.add_task(phase, total=None, stage=stage)

            def tell(done: int, total: int) -> None:
                stage.tell(done, total, time.monotonic())
                bars.update(bar, completed=stage.done, total=total)

            return tell

        yield note


@contextmanager
def _lines(console: Console, meter: Meter, limits: Limits | None, every: float) -> Iterator[Callable[[str], Told]]:
    stages: list[Stage] = []
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(every):
            now = time.monotonic()
            open_stages = [stage for stage in list(stages) if not stage.total or stage.done < stage.total]
            # A phase that knows no end is over when the next one begins.
            told = [stage.line(now) for stage in open_stages if stage.total or stage is stages[-1]] or ["running"]
            console.print(f"{'; '.join(told)}; {spent(meter.read(), limits)}", soft_wrap=True)

    def note(phase: str) -> Told:
        stage = Stage(phase, time.monotonic())
        stages.append(stage)
        return lambda done, total: stage.tell(done, total, time.monotonic())

    writer = threading.Thread(target=write, name="progress", daemon=True)
    writer.start()
    try:
        yield note
    finally:
        ended.set()
        writer.join()


class _Pace(ProgressColumn):
    """Units a minute and the time that is left."""

    def render(self, task: Task) -> Text:
        return Text("" if task.finished else task.fields["stage"].pace(time.monotonic()))


class _Spent(ProgressColumn):
    """Calls and cost of the run so far, read anew whenever the bar is drawn."""

    def __init__(self, meter: Meter, limits: Limits | None) -> None:
        super().__init__()
        self._meter, self._limits = meter, limits

    def render(self, task: Task) -> Text:
        return Text(spent(self._meter.read(), self._limits))


def _of(limit: float | None) -> str:
    return "" if limit is None else f" of {limit:,.0f}"


@contextmanager
def _quiet_dspy() -> Iterator[None]:
    logger = logging.getLogger("dspy")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
