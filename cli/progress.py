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
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

from .printing import output

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
    """What is told of a phase of a run: what is done of all there is, units a minute, and the time that is left.

    What comes out of a journal comes at once, and says nothing of the pace: rich leaves the first step out.
    """
    if task.total is None:
        return f"{task.description}: running"
    share = f" ({task.percentage:.0f}%)" if task.total else ""
    pace = f", {60 * task.speed:,.1f}/min" if task.speed else ""
    left = f", {duration(task.time_remaining)} left" if pace and task.time_remaining else ""
    return f"{task.description}: {task.completed:,} of {task.total:,}{share}{pace}{left}"


def duration(seconds: float) -> str:
    """Seconds in words, as exact as anybody needs."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def spent(usage: Usage, limits: Limits | None) -> str:
    """Calls, dollars and lost answers so far, each with its limit."""

    def of(name: str) -> str:
        limit = getattr(limits, name, None)
        return "" if limit is None else f" of {limit:,.0f}" if name != "max_usd" else f" of ${limit:g}"

    calls, tokens = sum(usage.calls.values()), usage.input_tokens + usage.output_tokens
    found = [f"{calls:,}{of('max_calls')} call{'' if calls == 1 else 's'}"]
    found += [f"{tokens:,}{of('max_tokens')} tokens"] if of("max_tokens") else []
    found += [f"${usage.cost:.4f}{of('max_usd')}"] if usage.cost or of("max_usd") else []
    lost = sum(count for (_, outcome), count in usage.answers.items() if outcome == "lost")
    found += [f"{count:,} {what}" for what, count in (("lost", lost), ("failed", usage.failed)) if count]
    return ", ".join(found)


@contextmanager
def progress(
    limits: Limits | None = None, console: Console | None = None, every: float = EVERY
) -> Iterator[tuple[Callable[[str], Told], Meter]]:
    """Shows how far a run is while the block runs.

    DSPy's optimizers print to standard output: that goes to standard error too, so that results stay clean. What they
    log of every failed call is not shown; a dead endpoint is one line at the end.

    Args:
        limits: What may be spent.
        console: Where; standard error if None.
        every: Seconds between two lines where the console is no terminal.

    Yields:
        What `run_compile` and `run_evaluate` take as `note` and as `meter`.
    """
    from ..engines.meter import Meter

    console, meter = console or output(errors=True), Meter()
    shown, logger, ended = console.is_terminal, logging.getLogger("dspy"), threading.Event()
    columns = BarColumn(), _Told(meter, limits), TimeElapsedColumn()
    bars = Progress(*columns, console=console, transient=True, disable=not shown, speed_estimate_period=PACE_OVER)

    def note(phase: str) -> Told:
        task = bars.add_task(phase, total=None)
        return lambda done, total: bars.update(task, completed=max(done, bars.tasks[task].completed), total=total)

    def write() -> None:
        while not ended.wait(None if shown else every):
            # A phase that knows no end is over when the next one begins.
            told = [line(each) for each in bars.tasks if not each.finished and (each.total or each is bars.tasks[-1])]
            console.print(f"{'; '.join(told) or 'running'}; {spent(meter.read(), limits)}")

    writer, level = threading.Thread(target=write, name="progress", daemon=True), logger.level
    nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    with nowhere, redirect_stdout(sys.stderr if shown else nowhere), bars:
        logger.setLevel(logging.CRITICAL)
        writer.start()
        try:
            yield note, meter
        finally:
            ended.set()
            writer.join()
            logger.setLevel(level)


class _Told(ProgressColumn):
    """What is told of a phase, and what the run has spent so far, read anew whenever the bar is drawn."""

    def __init__(self, meter: Meter, limits: Limits | None) -> None:
        super().__init__()
        self._meter, self._limits = meter, limits

    def render(self, task: Task) -> Text:
        return Text(f"{line(task)}; {spent(self._meter.read(), self._limits)}")
