"""Prints results: JSON, tables, plans, and the line on data and models; terminal codes in texts are escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from rich.console import RenderableType

from ..runs.console import Output, escape_control_characters, table

if TYPE_CHECKING:
    from ..runs.planning import Plan


_JSON = f"{__name__}.json"


def choose_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Remembers whether a command is to print JSON."""
    ctx.meta[_JSON] = value


def as_json() -> bool:
    """Whether the command prints one JSON object."""
    return click.get_current_context().meta.get(_JSON, False)


def report(found: Any, lines: Iterable[RenderableType] | None = None) -> None:
    """Prints a result: as one JSON object; or as lines and tables, counts on one line where none are given."""
    if as_json():
        from pydantic_core import to_jsonable_python

        text = json.dumps(found, indent=2, ensure_ascii=False, default=to_jsonable_python)
        click.echo(escape_control_characters(text))
        return
    console = Output()
    for line in [", ".join(f"{value} {name}" for name, value in found.items())] if lines is None else lines:
        console.print(line)


def show_plan(plan: Plan, notes: Iterable[str] = ()) -> None:
    """Print the ranges of a plan, notes on what it leaves out, and what the split of the questions allows."""
    ranges = [(name, found, "{:,.0f}") for name, found in (*plan.phases.items(), ("calls", plan.calls))]
    ranges += [("tokens", plan.tokens, "{:,.0f}")]
    ranges += [] if plan.usd is None else [("cost", plan.usd, "${:.2f}")]
    ranges += [] if plan.minutes is None else [("minutes", plan.minutes, "{:,.1f}")]
    rows = [(name, form.format(found.low), form.format(found.high)) for name, found, form in ranges]
    rows += [("cost", "price not known", "")] if plan.usd is None else []
    notes, title = list(notes), "planned LM calls (those a cache answers are free)"
    lines: list[Any] = [table(("phase", "low", "high"), rows, title, len(plan.phases))]
    if plan.devices:
        lines.append(_memory_table(plan))
    lines += [f"note: {note}" for note in notes]
    summary = plan.summary()
    if notes:
        summary["notes"] = notes
    if plan.split is not None:
        lines += plan.split.lines()
    report(summary, lines)


def _memory_table(plan: Plan) -> RenderableType:
    """Return a table of the memory that a training takes on each GPU."""
    rows: list[tuple[str, ...]] = []
    for device in plan.devices:
        if not device.parts:
            rows.append((device.role, str(device.gpus), "-", "the size of the model is not known"))
            continue
        parts = [f"{name} {size:,.1f}" for name, size in device.parts.items()]
        if device.loading:
            parts.append(f"while loading {device.loading:,.1f}")
        limit = f" of {device.capacity:,.0f}" if device.capacity else ""
        verdict = ": does not fit" if device.fits is False else ""
        rows.append((device.role, str(device.gpus), f"{device.total:,.1f}{limit}{verdict}", ", ".join(parts)))
    return table(("memory for", "GPUs", "GB on each", "of it"), rows, "memory on each GPU, computed")


def print_notes(lines: Iterable[str]) -> None:
    """Print notes on standard error, a line each."""
    for line in lines:
        Output(stderr=True).print(f"note: {line}")
