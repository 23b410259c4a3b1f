"""Print the results of commands: one JSON object, or lines and tables.

Characters in texts that would steer a terminal are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType

from ..runs.console import Output, escape_control_characters, table

if TYPE_CHECKING:
    from ..optimizers.call_bounds import Range
    from ..runs.console import WideTable
    from ..runs.planning import Plan

_JSON_KEY = f"{__name__}.json"
"""Where click's context keeps the value of `--json`."""

_COUNT_FORM = "{:,.0f}"


def choose_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Remember the value of `--json`, as the callback of that option."""
    ctx.meta[_JSON_KEY] = value


def prints_json() -> bool:
    """Return whether the command that runs prints one JSON object."""
    return click.get_current_context().meta.get(_JSON_KEY, False)


def print_result(result: object, lines: Iterable[RenderableType]) -> None:
    """Print the result of a command.

    Args:
        result: What is printed with `--json`.
        lines: Lines and tables that are printed otherwise; with `--json` none is computed.
    """
    if prints_json():
        from pydantic_core import to_jsonable_python

        text = json.dumps(result, indent=2, ensure_ascii=False, default=to_jsonable_python)
        click.echo(escape_control_characters(text))
        return

    console = Output()
    for line in lines:
        console.print(line)


def print_counts(counts: Mapping[str, object]) -> None:
    """Print counts by name: on one line, such as "3 users, 2 sessions", or as JSON."""
    line = ", ".join(f"{count} {name}" for name, count in counts.items())
    print_result(counts, [line])


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, one per line."""
    console = Output(stderr=True)
    for note in notes:
        console.print(f"note: {note}")


def print_plan(plan: Plan, notes: Iterable[str] = ()) -> None:
    """Print the plan of a run.

    Args:
        plan: Ranges of calls, tokens and cost, and what the split of the questions allows.
        notes: What the plan leaves out.
    """
    notes = list(notes)
    summary = plan.summary()
    if notes:
        summary["notes"] = notes

    lines: list[RenderableType] = [_ranges_table(plan)]
    if plan.devices:
        lines.append(_gpu_memory_table(plan))
    for note in notes:
        lines.append(f"note: {note}")
    if plan.split is not None:
        lines.extend(plan.split.lines())
    print_result(summary, lines)


def _ranges_table(plan: Plan) -> WideTable:
    """Return a table: the calls of each phase, and then all calls, tokens, cost and minutes."""
    rows: list[tuple[str, str, str]] = []
    for phase, calls in plan.phases.items():
        rows.append(_range_row(phase, calls, _COUNT_FORM))
    rows.append(_range_row("calls", plan.calls, _COUNT_FORM))
    rows.append(_range_row("tokens", plan.tokens, _COUNT_FORM))
    if plan.usd is not None:
        rows.append(_range_row("cost", plan.usd, "${:.2f}"))
    if plan.minutes is not None:
        rows.append(_range_row("minutes", plan.minutes, "{:,.1f}"))
    if plan.usd is None:
        rows.append(("cost", "price not known", ""))

    title = "planned LM calls (those a cache answers are free)"
    # A line is drawn before the row of all calls.
    return table(("phase", "low", "high"), rows, title, ruled_row=len(plan.phases))


def _range_row(name: str, numbers: Range, form: str) -> tuple[str, str, str]:
    return name, form.format(numbers.low), form.format(numbers.high)


def _gpu_memory_table(plan: Plan) -> WideTable:
    """Return a table of the memory that a training takes on each GPU."""
    rows: list[tuple[str, ...]] = []
    for device in plan.devices:
        if not device.parts:
            rows.append((device.role, str(device.gpus), "-", "the size of the model is not known"))
            continue

        parts = [f"{name} {size:,.1f}" for name, size in device.parts.items()]
        if device.loading:
            parts.append(f"while loading {device.loading:,.1f}")

        memory = f"{device.total:,.1f}"
        if device.capacity:
            memory += f" of {device.capacity:,.0f}"
        if device.fits is False:
            memory += ": does not fit"
        rows.append((device.role, str(device.gpus), memory, ", ".join(parts)))

    heads = ("memory for", "GPUs", "GB on each", "of it")
    return table(heads, rows, "memory on each GPU, computed")
