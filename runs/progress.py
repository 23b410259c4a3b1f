"""Show how far a run is: as bars in a terminal, one updated line in a notebook, lines in a log.

Example:
    with run_progress(limits) as (start_phase, meter):
        lm = language_model("openai/gpt-4.1-mini", meter=meter)
        report_progress = start_phase("dev questions")
        report_progress(3, 20)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from ..engines.limits import Limits
from ..engines.meter import Meter
from ..engines.usage import UsageReport
from .console import Output, as_text

PACE_SECONDS = 600.0
"""Time over which the pace is measured, in seconds. Questions to a slow model end minutes apart."""

NOTEBOOK_SECONDS = 0.5
"""Time between two updates of the line in a notebook, in seconds."""

OnProgress = Callable[[int, int], None]
"""Is called with the number of things that are done, and the number of all things."""

StartPhase = Callable[[str], OnProgress]
"""Is called with the name of a phase that begins; returns what to call with its progress."""


class RunProgress(NamedTuple):
    """What a run reports its progress to."""

    start_phase: StartPhase
    meter: Meter
    """Counts the calls of the run."""


@contextmanager
def run_progress(
    limits: Limits | None = None,
    console: Console | None = None,
    seconds_between_lines: float = 60.0,
) -> Iterator[RunProgress]:
    """Show the progress and the spending of a run on standard error while the block runs.

    Args:
        limits: The limits of the run, which are shown beside its spending.
        console: Where to write; standard error by default.
        seconds_between_lines: Time between two lines in a log, that is, if the console is neither a
            terminal nor a notebook.

    Yields:
        A function that starts a phase, and the meter that counts the run's calls.
    """
    console = console or Output(stderr=True)
    meter = Meter()
    bars = _Bars(meter, limits, console)
    display: _PeriodicDisplay | None = None
    if console.is_jupyter:
        display = _PeriodicDisplay(bars, NOTEBOOK_SECONDS, _NotebookLine().write)
    elif not console.is_terminal:
        display = _PeriodicDisplay(bars, seconds_between_lines, console.print)

    with bars:
        try:
            if display is not None:
                display.start()
            yield RunProgress(bars.start_phase, meter)
        finally:
            if display is not None:
                display.stop()


def spending_line(usage: UsageReport, limits: Limits | None) -> str:
    """Return in one line what a run has spent, e.g. "120 of 2,000 calls, $0.5000, 3 lost".

    Calls are always shown, and everything else only if it says something: tokens if they are
    limited, dollars if they are limited or any were spent, and the numbers of lost answers (no
    attempt could be read) and of failed calls (the call raised an error) if there are any.
    """
    limits = limits or Limits()

    calls = sum(usage.calls.values())
    if limits.max_calls is not None:
        parts = [f"{calls:,} of {limits.max_calls:,.0f} calls"]
    elif calls == 1:
        parts = ["1 call"]
    else:
        parts = [f"{calls:,} calls"]

    if limits.max_tokens is not None:
        tokens = usage.input_tokens + usage.output_tokens
        parts.append(f"{tokens:,} of {limits.max_tokens:,.0f} tokens")

    if limits.max_usd is not None:
        parts.append(f"${usage.cost:.4f} of ${limits.max_usd:g}")
    elif usage.cost:
        parts.append(f"${usage.cost:.4f}")

    lost_answers = 0
    for (_, outcome), count in usage.answers.items():
        if outcome == "lost":
            lost_answers += count
    if lost_answers:
        parts.append(f"{lost_answers:,} lost")
    if usage.failed:
        parts.append(f"{usage.failed:,} failed")
    return ", ".join(parts)


class _RemainingColumn(TimeRemainingColumn):
    """The time that is left; empty until there is a pace to estimate it by."""

    def render(self, task: Task) -> Text:
        if task.time_remaining is None:
            return Text()
        return super().render(task)


class _Bars(Progress):
    """One bar for each phase, and below them a line with the spending."""

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
        """Add a bar; return the function that moves it."""
        # A phase whose end is not known is over when the next one begins.
        for earlier_task in self.tasks:
            has_known_end = earlier_task.total is not None
            self.update(earlier_task.id, visible=earlier_task.visible and has_known_end)
        task = self.add_task(name, total=None)

        def on_progress(done: int, total: int) -> None:
            # Threads report out of order; a bar never moves back.
            done = max(done, int(self.tasks[task].completed))
            self.update(task, completed=done, total=total, visible=done < total)

        return on_progress


class _PeriodicDisplay:
    """Writes what the bars would show, again and again, where they cannot draw themselves."""

    def __init__(
        self, bars: _Bars, seconds: float, write: Callable[[RenderableType], None]
    ) -> None:
        self._bars = bars
        self._seconds = seconds
        self._write = write
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop_event.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop_event.wait(self._seconds):
            self._write(self._bars.get_renderable())


class _NotebookLine:
    """A line below the running cell of a notebook."""

    def __init__(self) -> None:
        from IPython.display import Pretty, display  # pyright: ignore[reportMissingImports]

        self._pretty: Any = Pretty
        self._handle: Any = display(Pretty("starting"), display_id=True)
        self._last_text = ""

    def write(self, renderable: RenderableType) -> None:
        """Replace the line by another text and the time of day."""
        text = f"{as_text([renderable])}, {time.strftime('%H:%M:%S')}"
        if text != self._last_text:
            self._handle.update(self._pretty(text))
            self._last_text = text
