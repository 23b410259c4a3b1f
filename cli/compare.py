"""`mempiler compare`: compare runs question by question."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError
from .options import JSON, MIN_N, OVERWRITE
from .printing import print_result

if TYPE_CHECKING:
    from ..runs.pages.page import Page


@click.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="BASELINE OTHER...")
@click.option(
    "--gate", is_flag=True, help="end with code 1 if another is worse, or nobody can tell"
)
@MIN_N
@click.option(
    "--page",
    "page_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="write all questions, side by side, as HTML",
)
@click.option(
    "--export",
    type=(
        click.Choice(["amb", "omnimemeval"]),
        click.Path(dir_okay=False, path_type=Path),
    ),
    metavar="amb|omnimemeval FILE",
    help="write the questions of the BASELINE, which may be alone then, in the form of a public "
    "harness",
)
@OVERWRITE
@JSON
def command(
    names: tuple[str, ...],
    gate: bool,
    min_n: int,
    page_path: Path | None,
    export: tuple[str, Path] | None,
    overwrite: bool,
) -> None:
    """Compare every OTHER with the BASELINE on the questions that all were asked.

    Each is a run: its folder, the end of the folder's name, its MLflow run id, or `last`.
    """
    from ..runs.compare import compare_runs, compared_runs, comparison_dicts, decide_gate, load_run
    from ..runs.exports.leaderboards import write_harness_results
    from ..runs.pages.html import GENERATOR
    from ..runs.pages.text import page_lines
    from ..runs.results_folder import refuse_foreign_file

    is_alone = len(names) == 1
    if is_alone and (gate or page_path or not export):
        raise UserError(f"one run is nothing to compare: name another beside {names[0]!r}")
    if page_path is not None:
        refuse_foreign_file(page_path, GENERATOR, force=overwrite)

    runs = [load_run(name) for name in names]
    baseline = runs[0]
    exported_files: list[Path] = []
    if export is not None:
        harness, export_path = export
        exported_files = write_harness_results(baseline, harness, export_path, overwrite=overwrite)
    if is_alone:
        print_result({"written": exported_files}, [f"written: {path}" for path in exported_files])
        return

    page = compare_runs(runs, min_n)
    if page_path is not None:
        _write_page(page, page_path)
    result: dict[str, Any] = {
        "runs": [run.summary() for run in runs],
        "comparisons": comparison_dicts(page, runs),
        "gate": None,
    }
    if not gate:
        print_result(result, page_lines(page))
        return

    decision = decide_gate(baseline, compared_runs(page, runs))
    result["gate"] = asdict(decision)
    print_result(result, [*page_lines(page), decision.message])
    if not decision.passed:
        sys.exit(1)


def _write_page(page: Page, path: Path) -> None:
    from ..records.atomic_file import atomic_write
    from ..runs.pages.html import render_page

    with atomic_write(path) as file:
        file.write(render_page(page))
