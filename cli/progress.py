"""How far a run is, on standard error: bars in a terminal, one line a minute in a file or a pipe.

Both say what is done of all there is, how fast, how long it still takes, what is spent of the budget, and how many
calls were lost.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
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

PACE_OVER = 600.0
"""Seconds over which the pace is taken: questions to a slow model end minutes apart."""

Told = Callable[[int, int], None]
"""Takes what is done, and how much there is."""


def line(task: Task) -> str:
    """What is told of a phase of a run: what is done of all there is, units a minute, and the time that is left."""
    share = f" ({task.percentage:.0f}%)" if task.total else ""
    counted = f" {task.completed:,} of {task.total:,}{share}" if task.total is not None else ""
    pace = _pace(task)
    return f"{task.description}:{counted}{', ' if counted and pace else ''}{pace or ('' if counted else ' running')}"


def _pace(task: Task) -> str:
    """Units a minute and the time that is left, once anything is known of them.

    What comes out of a journal comes at once, and says nothing of the pace: rich leaves the first step out.
    """
    if not task.speed:
        return ""
    left = task.time_remaining
    return f"{60 * task.speed:,.1f}/min" + (f", {duration(left)} left" if left else "")


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
    found = [f"{calls:,}{_of(most.get('max_calls'))} call{'' if calls == 1 else 's'}"]
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
        _phases(console, meter, limits) as bars,
        nullcontext() if shown else _lines(bars, meter, limits, every),
    ):

        def note(phase: str) -> Told:
            task = bars.add_task(phase, total=None)
            return lambda done, total: bars.update(task, completed=max(done, bars.tasks[task].completed), total=total)

        yield note


def _phases(console: Console, meter: Meter, limits: Limits | None) -> Progress:
    """The phases of a run, drawn as bars in a terminal alone."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Pace(), _Spent(meter, limits)
    columns = *columns, TimeElapsedColumn()
    hidden = not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=hidden, speed_estimate_period=PACE_OVER)


@contextmanager
def _lines(bars: Progress, meter: Meter, limits: Limits | None, every: float) -> Iterator[None]:
    """Writes a line of the phases that go on, now and then."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(every):
            phases = bars.tasks
            # A phase that knows no end is over when the next one begins.
            told = [line(each) for each in phases if not each.finished and (each.total or each is phases[-1])]
            shown = "; ".join(told) or "running"
            bars.console.print(f"{shown}; {spent(meter.read(), limits)}", soft_wrap=True)

    writer = threading.Thread(target=write, name="progress", daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


class _Pace(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.finished else _pace(task))


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
