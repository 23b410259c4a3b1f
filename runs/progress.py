"""Show how far a run is: bars in a terminal, one updated line in a notebook, a line a minute in a log.

Example:
    with run_progress(limits) as (start_phase, meter):
        on_progress = start_phase("dev questions")
        on_progress(3, 20)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..engines.limits import Limits
from ..engines.meter import Meter
from ..engines.usage import UsageReport
from .console import Output, as_text

PACE_SECONDS = 600.0
"""Over how long the pace is measured: questions to a slow model end minutes apart."""
NOTEBOOK_SECONDS = 0.5
"""How often the line in a notebook is renewed at most."""

OnProgress = Callable[[int, int], None]
"""Takes how much is done, and how much there is."""
StartPhase = Callable[[str], OnProgress]
"""Takes the name of a phase that begins, and returns what is told of its progress."""


@contextmanager
def run_progress(
    limits: Limits | None = None, console: Console | None = None, seconds_between_lines: float = 60.0
) -> Iterator[tuple[StartPhase, Meter]]:
    """Show the progress and the spending of a run on standard error while the block runs.

    Args:
        limits: Those of the run; spending is shown beside them.
        console: Where to write.
        seconds_between_lines: How often a line is written where the console is neither a terminal nor a notebook.

    Yields:
        A function that starts a phase, and the meter that counts the run's calls.
    """
    console = console or Output(stderr=True)
    meter = Meter()
    bars = _Bars(meter, limits, console)
    display: _PeriodicDisplay | None = None
    if console.is_jupyter:
        display = _PeriodicDisplay(bars, NOTEBOOK_SECONDS, _notebook_writer())
    elif not console.is_terminal:
        display = _PeriodicDisplay(bars, seconds_between_lines, console.print)

    with bars:
        try:
            if display is not None:
                display.start()
            yield bars.start_phase, meter
        finally:
            if display is not None:
                display.stop()


def spending_line(usage: UsageReport, limits: Limits | None) -> str:
    """Return calls, tokens, dollars and lost answers so far, each with its limit."""

    def with_limit(count: str, limit: float | None, form: str) -> str:
        return count if limit is None else f"{count} of {form.format(limit)}"

    max_calls = limits.max_calls if limits else None
    max_tokens = limits.max_tokens if limits else None
    max_usd = limits.max_usd if limits else None

    calls = sum(usage.calls.values())
    unit = "call" if calls == 1 and max_calls is None else "calls"
    parts = [f"{with_limit(f'{calls:,}', max_calls, '{:,.0f}')} {unit}"]
    if max_tokens is not None:
        tokens = usage.input_tokens + usage.output_tokens
        parts.append(f"{with_limit(f'{tokens:,}', max_tokens, '{:,.0f}')} tokens")
    if usage.cost or max_usd is not None:
        parts.append(with_limit(f"${usage.cost:.4f}", max_usd, "${:g}"))

    lost = sum(count for (_, outcome), count in usage.answers.items() if outcome == "lost")
    if lost:
        parts.append(f"{lost:,} lost")
    if usage.failed:
        parts.append(f"{usage.failed:,} failed")
    return ", ".join(parts)


class _RemainingColumn(TimeRemainingColumn):
    """The time that is left, once there is a pace to estimate it by."""

    def render(self, task: Task) -> Text:
        return Text() if task.time_remaining is None else super().render(task)


class _Bars(Progress):
    """One bar for each phase, and a line of what is spent."""

    def __init__(self, meter: Meter, limits: Limits | None, console: Console) -> None:
        self._meter = meter
        self._limits = limits
        in_terminal = console.is_terminal and not console.is_jupyter
        bar_columns = [BarColumn(20)] if in_terminal else []
        super().__init__(
            TextColumn("{task.description}"),
            *bar_columns,
            MofNCompleteColumn(),
            _RemainingColumn(),
            console=console,
            transient=True,
            disable=not in_terminal,
            redirect_stdout=False,
            speed_estimate_period=PACE_SECONDS,
        )

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        yield spending_line(self._meter.read(), self._limits)

    def start_phase(self, name: str) -> OnProgress:
        """Add a bar; return what moves it."""
        for earlier in self.tasks:
            # A phase whose end is not known is over when the next one begins.
            self.update(earlier.id, visible=earlier.visible and earlier.total is not None)
        task = self.add_task(name, total=None)

        def on_progress(done: int, total: int) -> None:
            # Threads report out of order; a bar never moves back.
            done = max(done, int(self.tasks[task].completed))
            self.update(task, completed=done, total=total, visible=done < total)

        return on_progress


class _PeriodicDisplay:
    """Hands what the bars show to a function, again and again, where they cannot draw themselves."""

    def __init__(self, bars: _Bars, seconds: float, write: Callable[[RenderableType], None]) -> None:
        self._bars = bars
        self._seconds = seconds
        self._write = write
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._write(self._bars.get_renderable())


def _notebook_writer() -> Callable[[RenderableType], None]:
    """Return a function that shows a text in the running cell, in the place of the text before."""
    from IPython.display import Pretty, display  # pyright: ignore[reportMissingImports]

    handle: Any = display(Pretty("starting"), display_id=True)
    last_shown = ""

    def write(renderable: RenderableType) -> None:
        nonlocal last_shown
        text = f"{as_text([renderable])}, {time.strftime('%H:%M:%S')}"
        if text != last_shown:
            handle.update(Pretty(text))
            last_shown = text

    return write
