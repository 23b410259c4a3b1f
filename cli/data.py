"""`recollect data`: look into data files."""

from __future__ import annotations

import dataclasses

import click
from rich.console import Console
from rich.table import Table

from .options import JSON, print_json


@click.group("data")
def command() -> None:
    """Look into data files."""


@command.command("check")
@click.argument("benchmark")
@click.argument("path", type=click.Path())
@JSON
def check(benchmark: str, path: str, as_json: bool) -> None:
    """Say what is in the file PATH of a BENCHMARK, and row by row what is wrong with it."""
    from ..data.check import CHECKS
    from ..errors import UnknownNameError

    if benchmark not in CHECKS:
        raise UnknownNameError("benchmark", benchmark, CHECKS)
    report = CHECKS[benchmark](path)
    if as_json:
        print_json(dataclasses.asdict(report))
        return
    console = Console(highlight=False)
    summary = Table(title=str(path), title_justify="left", show_header=False)
    for name, value in report.counts.items():
        summary.add_row(name, str(value))
    console.print(summary)
    for row in report.rows:
        console.print(f"{row.where}: {row.kind}: {row.message}", markup=False, soft_wrap=True)
    console.print(f"{len(report.rows)} remarks" if report.rows else "nothing wrong found")
