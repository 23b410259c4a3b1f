"""Shows progress and spending on standard error: bars in a terminal, a few lines now and then elsewhere."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from .printing import Output

if TYPE_CHECKING:
    from ..engines.guard import Limits
    from ..engines.meter import Meter, Usage

PACE_OVER = 600.0
"""Seconds over which the pace is taken: questions to a slow model end minutes apart."""
OnProgress = Callable[[int, int], None]
"""Takes what is done, and how much there is."""


def spent(usage: Usage, limits: Limits | None) -> str:
    """Calls, dollars and lost answers so far, each with its limit."""

    def of(name: str) -> str:
        limit = getattr(limits, name, None)
        return "" if limit is None else f" of {limit:,.0f}" if name != "max_usd" else f" of ${limit:g}"

    calls, tokens = sum(usage.calls.values()), usage.input_tokens + usage.output_tokens
    found = [f"{calls:,}{of('max_calls')} call{'' if calls == 1 and not of('max_calls') else 's'}"]
    found += [f"{tokens:,}{of('max_tokens')} tokens"] if of("max_tokens") else []
    found += [f"${usage.cost:.4f}{of('max_usd')}"] if usage.cost or of("max_usd") else []
    lost = sum(count for (_, outcome), count in usage.answers.items() if outcome == "lost")
    found += [f"{count:,} {what}" for what, count in (("lost", lost), ("failed", usage.failed)) if count]
    return ", ".join(found)


class _Remaining(TimeRemainingColumn):
    """The time that is left, once there is a pace to tell it by."""

    def render(self, task: Task) -> Text:
        return Text() if task.time_remaining is None else super().render(task)


class _Lines(io.TextIOBase):
    """Writes whole lines to standard error; those with a carriage return are bars of DSPy's, beside ours."""

    def __init__(self) -> None:
        self._rest = ""

    def write(self, text: str, /) -> int:
        *lines, self._rest = f"{self._rest}{text}".split("\n")
        sys.stderr.writelines(f"{line}\n" for line in lines if "\r" not in line)
        return len(text)


@contextmanager
def progress(
    limits: Limits | None = None, console: Console | None = None, every: float = 60.0
) -> Iterator[tuple[Callable[[str], OnProgress], Meter]]:
    """Shows how far a run is while the block runs.

    What programs and optimizers print goes to standard error too, without bars of their own. What optimizers
    log of every failed call is not shown; a dead endpoint is one line at the end. Where the console (standard error) is
    no terminal, it gets lines `every` so many seconds.

    Yields:
        What `run_compile` and `run_evaluate` take as `note` and as `meter`.
    """
    from ..engines.meter import Meter

    class Bars(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield from super().get_renderables()
            yield spent(meter.read(), limits)

    console, meter = console or Output(stderr=True), Meter()
    shown, logger, ended = console.is_terminal, logging.getLogger("dspy"), threading.Event()
    bars = Bars(
        TextColumn("{task.description}"),
        *([BarColumn(20)] if shown else []),
        MofNCompleteColumn(),
        _Remaining(),
        console=console,
        transient=True,
        disable=not shown,
        redirect_stdout=False,
        speed_estimate_period=PACE_OVER,
    )

    def note(phase: str) -> OnProgress:
        for each in bars.tasks:  # one that knows no end is over when the next one begins
            bars.update(each.id, visible=each.visible and each.total is not None)
        task = bars.add_task(phase, total=None)

        def update(done: int, total: int) -> None:
            done = max(done, int(bars.tasks[task].completed))
            bars.update(task, completed=done, total=total, visible=done < total)

        return update

    def write() -> None:
        while not ended.wait(every):
            console.print(bars.get_renderable())

    writer, level = threading.Thread(target=write, name="progress", daemon=True), logger.level
    nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    with nowhere, redirect_stdout(_Lines() if shown else nowhere), bars:
        logger.setLevel(logging.CRITICAL)
        if not shown:
            writer.start()
        try:
            yield note, meter
        finally:
            ended.set()
            if not shown:
                writer.join()
            logger.setLevel(level)
