"""`mempiler compare`: whether runs differ, question by question."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UserError
from .options import JSON, MIN_N, OVERWRITE
from .printing import report
from .show import page_lines

if TYPE_CHECKING:
    from ..runs.compare import Recorded
    from ..runs.pages.page import Page


@click.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="BASELINE OTHER...")
@click.option("--gate", is_flag=True, help="end with code 1 if another is worse, or nobody can tell")
@MIN_N
@click.option(
    "--page",
    "path",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="write a page of all questions, side by side",
)
@OVERWRITE
@JSON
def command(names: tuple[str, ...], gate: bool, min_n: int, path: str | None, overwrite: bool) -> None:
    """Compare every OTHER with the BASELINE on the questions that all were asked.

    Each is a run: its folder, the end of the folder's name, its MLflow run id, or `last`.
    """
    from ..records.whole_file import refuse_foreign, replacing
    from ..runs.compare import compare, comparisons, recorded
    from ..runs.pages.html import GENERATOR, as_html

    if not names[1:]:
        raise UserError(f"one run is nothing to compare: name another beside {names[0]!r}")
    if path is not None:
        refuse_foreign(Path(path), GENERATOR, force=overwrite)
    runs = [recorded(name) for name in names]
    page = compare(runs, min_n)
    if path is not None:
        with replacing(Path(path)) as file:
            file.write(as_html(page))
    verdict = _gate(page, runs) if gate else None
    told = {
        "runs": [run.usage() for run in runs],
        "comparisons": comparisons(page, runs),
        "gate": verdict and {"passed": verdict[0], "message": verdict[1]},
    }
    more = [verdict[1]] if verdict else []
    report(told, chain(page_lines(page), more))
    if verdict and not verdict[0]:
        sys.exit(1)


def _gate(page: Page, runs: Sequence[Recorded]) -> tuple[bool, str]:
    """Whether nothing is worse than the baseline and everything can be told, and that in one line."""
    from ..runs.compare import refusal

    baseline, *others = runs
    found = list(zip(others, page.total.differences if page.total else (), strict=True))
    told = "; ".join(f"{run.name} {why} ({gap})" for run, gap in found if (why := refusal(run, gap)))
    if told:
        return False, f"gate: against {baseline.name}: {told}"
    told = "; ".join(f"{run.name} ({gap})" for run, gap in found)
    return True, f"gate: nothing worse than {baseline.name}: {told}"
