"""`mempiler compare`: compares runs question by question."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..errors import UserError
from .options import JSON, MIN_N, OVERWRITE
from .printing import report


@click.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="BASELINE OTHER...")
@click.option("--gate", is_flag=True, help="end with code 1 if another is worse, or nobody can tell")
@MIN_N
@click.option("--page", "path", type=click.Path(dir_okay=False), help="write all questions, side by side, as HTML")
@click.option(
    "--export",
    type=(click.Choice(["amb", "omnimemeval"]), click.Path(dir_okay=False, path_type=Path)),
    metavar="amb|omnimemeval FILE",
    help="write the questions of the BASELINE, which may be alone then, in the form of a public harness",
)
@OVERWRITE
@JSON
def command(names: tuple[str, ...], gate: bool, min_n: int, path: Any, export: Any, overwrite: bool) -> None:
    """Compare every OTHER with the BASELINE on the questions that all were asked.

    Each is a run: its folder, the end of the folder's name, its MLflow run id, or `last`.
    """
    from ..records.atomic_file import atomic_write
    from ..runs.compare import compare_runs, compared_runs, comparison_dicts, decide_gate, load_run
    from ..runs.exports.leaderboards import write_harness_results
    from ..runs.results_folder import refuse_foreign_file
    from ..runs.pages.html import GENERATOR, render_page
    from ..runs.pages.text import page_lines

    if not names[1:] and (gate or path or not export):
        raise UserError(f"one run is nothing to compare: name another beside {names[0]!r}")
    if path is not None:
        refuse_foreign_file(Path(path), GENERATOR, force=overwrite)
    runs = [load_run(name) for name in names]
    written = write_harness_results(runs[0], *export, overwrite=overwrite) if export else []
    if not runs[1:]:
        report({"written": written}, [f"written: {file}" for file in written])
        return
    page = compare_runs(runs, min_n)
    if path is not None:
        with atomic_write(Path(path)) as file:
            file.write(render_page(page))
    result: dict[str, Any] = {
        "runs": [run.summary() for run in runs],
        "comparisons": comparison_dicts(page, runs),
        "gate": None,
    }
    if not gate:
        report(result, page_lines(page))
        return

    decision = decide_gate(runs[0], compared_runs(page, runs))
    result["gate"] = asdict(decision)
    report(result, [*page_lines(page), decision.message])
    if not decision.passed:
        sys.exit(1)
