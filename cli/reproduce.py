"""`mempiler reproduce`: prints a paper's tables, and ours with its numbers beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError
from ..runs.console import format_estimate, table
from .options import JSON, PLAN, make_inputs, run_options
from .printing import report, show_plan
from .progress import progress
from .training import chosen_training, follow_first_process, training_options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..runs.papers.cells import Cell
    from ..runs.papers.paper import Paper, PaperOnlyRow, PrintedTable
    from ..runs.papers.reproduction import Reproduction, SectionResult, VariantResult
    from ..runs.statistics import Difference

_WITHOUT = (
    # What a paper itself says, or has for each benchmark.
    "benchmark",
    "data",
    "metric",
    "categories",
    "set",
    "allow_code",
    # What is for single runs.
    "workers",
    "min_n",
    "replay",
)
"""Options of a run that `reproduce` does not have."""


@click.command("reproduce")
@click.argument("paper")
@click.option("--section", "sections", multiple=True, metavar="NAME", help="run this section alone; may be repeated")
@click.option(
    "--data",
    "named",
    multiple=True,
    metavar="[BENCHMARK=]FILE",
    help="a benchmark's file [default: a bundled sample]",
)
@click.option("--seeds", type=click.IntRange(1), help="repetitions; cells show mean and spread [default: the paper's]")
@run_options(without=_WITHOUT)
@training_options
@PLAN
@JSON
def command(
    paper: str,
    sections: tuple[str, ...],
    named: tuple[str, ...],
    seeds: int | None,
    planned: bool,
    train_set: tuple[str, ...],
    trainer: str | None,
    **values: Any,
) -> None:
    """Run the sections of PAPER on its benchmarks, and print its tables and ours.

    Without --judge-lm a metric without a judge stands in where the benchmark has one, and there are no win rates.
    Trainings are rewarded by the answers of --answer-lm, or of the model that --train-set answer_lm=NAME names.
    Several processes: `torchrun -m mempiler reproduce ...`.
    """
    from ..engines.local import processes
    from ..runs.announce import announce_models
    from ..runs.inputs import RunInputs
    from ..runs.papers.paper import read_paper
    from ..runs.papers.reproduction import reproduce
    from ..runs.papers.sections import Selection, plan_paper
    from ..runs.papers.trainings import TrainingChoices
    from ..runs.results import raise_if_unanswered, refuse_broken

    follow_first_process(planned, many=True)
    found = read_paper(paper)
    choices = TrainingChoices(chosen_training(train_set, trainer))
    plain, files = _files(found, named)
    config = make_inputs({**values, "benchmark": "", "data": plain}).config
    chosen = found.select_sections(sections)
    selection = Selection(sections, files, seeds, choices)
    announce_models(RunInputs(config.with_options(benchmark=chosen[0].benchmark)), ", ".join(named) or "bundled sample")
    if planned:
        return show_plan(*plan_paper(found, config, selection))
    with progress(config.limits) as (note, meter):
        made = reproduce(found, config, selection, note, meter)
    # After an error they end with this process, by torchrun.
    processes.dismiss()
    report(made.summary(), _lines(made, whole=not sections))
    rows = [row for found in made.sections for row in found.rows]
    for row in rows:
        for each, run in zip(row.evaluations, row.runs, strict=True):
            refuse_broken(each, run.name)
    evaluations = [each for row in rows for each in row.evaluations]
    raise_if_unanswered(evaluations, made.stopped, made.run.name)
    if made.failed:
        sys.exit(1)


def _files(paper: Paper, data: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
    """The file without a benchmark's name before it, of which there is at most one, and the others by benchmark."""
    names = {part for each in paper.sections for part in (each.benchmark, each.benchmark.partition(".")[0])}
    plain = [value for value in data if "=" not in value or value.partition("=")[0] not in names]
    named = dict(value.split("=", 1) for value in data if value not in plain)
    if len(plain) > 1:
        raise UserError(f"--data {plain[1]}: say which benchmark it is of, e.g. --data {min(names)}=FILE")
    return (plain[0] if plain else None), named


def _lines(made: Reproduction, whole: bool) -> Iterator[RenderableType]:
    for found in made.sections:
        yield f"\n== {found.section.name}: {found.section.title}"
        yield from _printed(made.paper.tables(found.section))
        yield from _ours(found)
    for each in made.paper.not_reproduced if whole else ():
        yield f"\nnot reproduced: {each.what}: {each.why}"
        yield from _printed(one for key in each.printed for one in made.paper.printed[key])
    yield from ("", *(f"note: {note}" for note in made.notes))
    if made.stopped:
        again = f"what is missing above was not run; --resume {made.run.name} goes on"
        yield f"stopped by a limit: {made.stopped}; {again}"
    yield f"run: {made.run}\nMLflow run: {made.run_id} (mempiler ui)"


def _printed(tables: Iterable[PrintedTable]) -> Iterator[RenderableType]:
    for each in tables:  # the title is outside the table, which would break the line at its own width
        source = f"; read in {each.source}" if each.source else ""
        yield f"\nAs the paper prints it: {each.title}; {each.model}{source}"
        yield table(each.columns, [tuple("-" if cell is None else str(cell) for cell in row) for row in each.rows])
        yield from filter(None, [each.note])


def _ours(found: SectionResult) -> Iterator[RenderableType]:
    yield f"\nOurs: {found.heading or 'nothing was run'}"
    if found.rows:
        names = [column.name.replace("_", " ") for column in found.section.columns]
        rows = [
            (row.label, str(row.evaluation.n), *map(_cell, found.cells(row)), _difference(found.difference(row)))
            for row in found.rows
        ]
        rows += [_row_not_run(found, row) for row in found.section.not_run]
        yield "scores and their differences in points, 0 to 100"
        yield table(("variant", "n", *names, f"difference to {found.section.baseline}"), rows)
        yield from _difference_notes(found)
        heads = "variant", "calls", "tokens", "seconds", "US$", "failed", "lost calls", "search ms: p50, p95, CPU"
        yield table(heads, map(_taken, found.rows), "what it takes by itself, writing and answering together")
    for label, rate in found.win_rates.items():
        estimate = format_estimate(rate.rate, rate.interval)
        yield f"win rate, {label}: {estimate} over {rate.n} questions, judged in both orders"
    yield from (f"not run: {row.label}: {row.why}" for row in found.section.not_run)
    yield from (f"failed: {label}: {error}" for label, error in found.failed.items())
    for label in found.broken:
        yield f"broken: {label}: so many of its questions failed, or of its calls were lost, that its score says little"
    yield from filter(None, [found.section.note])


def _row_not_run(found: SectionResult, row: PaperOnlyRow) -> tuple[str, ...]:
    """Return a row with the paper's cells alone."""
    cells = [_printed_cell(printed) or "-" for printed in found.printed_cells(row)]
    return row.label, "-", *cells, "not run"


def _printed_cell(printed: tuple[str | int | float | None, ...]) -> str:
    return "\n".join(f"paper {cell}" for cell in printed)


def _cell(cell: Cell) -> str:
    form = f"{{:,.{cell.digits}f}}"
    spread = f" ± {form.format(cell.spread)}" if cell.spread else ""
    lines = [format_estimate(cell.value, form=form) + spread]
    lines += [] if cell.interval is None else ["[" + ", ".join(map(form.format, cell.interval)) + "]"]
    lines += [_printed_cell(cell.printed)] if cell.printed else []
    return "\n".join(lines)


def _difference(found: Difference | None) -> str:
    """Return a difference in points, its interval and its verdict, each on a line of its own."""
    if found is None or not found.n:
        return "-"
    lines = [f"{100 * found.mean:+.1f}"]
    if found.interval is not None:
        lines.append(f"[{100 * found.interval.low:+.1f}, {100 * found.interval.high:+.1f}]")
    p_value = f"{found.p_value:.2g}".removeprefix("0")
    lines.append(f"p = {p_value}, n = {found.n}")
    return "\n".join([*lines, found.verdict])


def _difference_notes(found: SectionResult) -> Iterator[str]:
    """Yield what the verdicts of a section speak of, once for all its variants, and their warnings."""
    differences = [(row.label, found.difference(row)) for row in found.rows]
    compared = [(label, difference) for label, difference in differences if difference and difference.n]
    for scope in dict.fromkeys(difference.scope for _, difference in compared):
        yield f"scope of the verdicts: {scope}"
    for label, difference in compared:
        if difference.warning:
            yield f"{label}: {difference.warning}"


def _taken(row: VariantResult) -> tuple[str, ...]:
    """What a variant takes by itself, whoever paid for it first."""
    taken = row.evaluation.usage
    cost = "-" if taken.unpriced else f"{taken.cost:,.4f}"
    sizes = f"{taken.calls:,.0f}", f"{taken.tokens:,.0f}", f"{taken.seconds:,.1f}", cost
    search = ", ".join("-" if each is None else f"{each:.1f}" for each in row.evaluation.search_ms().values())
    failed = f"{sum(one.failures for one in row.evaluations):,}"
    return row.label, *sizes, failed, f"{row.evaluation.failure_rate:.1%}", search
