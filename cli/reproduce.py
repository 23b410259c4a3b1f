"""`mempiler reproduce`: run a paper's variants, and print the paper's tables and ours."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError
from ..runs.console import format_estimate, table
from .options import JSON, PLAN, make_inputs, run_options
from .printing import print_plan, print_result
from .progress import progress
from .training import chosen_training, follow_first_process, training_options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..runs.papers.cells import Cell
    from ..runs.papers.paper import Paper, PaperOnlyRow, PrintedTable
    from ..runs.papers.reproduction import Reproduction, SectionResult, VariantResult
    from ..runs.results import Evaluation
    from ..runs.statistics import Difference

_WITHOUT = (
    # What the paper decides, or what this command has in a form of its own.
    "benchmark",
    "data",
    "metric",
    "categories",
    "set",
    "allow_code",
    # What is for single runs.
    "workers",
    "min_n",
    "margin",
    "replay",
)
"""Options of a run that `reproduce` does not have."""


@click.command("reproduce")
@click.argument("paper")
@click.option(
    "--section",
    "section_names",
    multiple=True,
    metavar="NAME",
    help="run this section alone; may be repeated",
)
@click.option(
    "--data",
    "data_files",
    multiple=True,
    metavar="[BENCHMARK=]FILE",
    help="a benchmark's file [default: a bundled sample]",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help="repetitions; cells show mean and spread [default: the paper's]",
)
@run_options(without=_WITHOUT)
@training_options
@PLAN
@JSON
def command(
    paper: str,
    section_names: tuple[str, ...],
    data_files: tuple[str, ...],
    seeds: int | None,
    planned: bool,
    train_set: tuple[str, ...],
    trainer: str | None,
    **values: Any,
) -> None:
    """Run the sections of PAPER on its benchmarks, and print its tables and ours.

    Without --judge-lm a metric without a judge stands in where the benchmark has one, and there are
    no win rates. Trainings are rewarded by the answers of --answer-lm, or of the model that
    --train-set answer_lm=NAME names. Several processes: `torchrun -m mempiler reproduce ...`.
    """
    from ..engines.local import processes
    from ..runs.announce import announce_models
    from ..runs.inputs import RunInputs
    from ..runs.papers.paper import read_paper
    from ..runs.papers.reproduction import reproduce
    from ..runs.papers.sections import Selection, plan_paper
    from ..runs.papers.trainings import TrainingChoices

    follow_first_process(planned, many=True)
    paper_to_run = read_paper(paper)
    choices = TrainingChoices(chosen_training(train_set, trainer))
    files = _parse_data_files(paper_to_run, data_files)
    config = make_inputs({**values, "benchmark": "", "data": files.default}).config

    selection = Selection(section_names, files.by_benchmark, seeds, choices)

    first_section = paper_to_run.select_sections(section_names)[0]
    announced_config = config.with_options(benchmark=first_section.benchmark)
    announce_models(RunInputs(announced_config), ", ".join(data_files) or "bundled sample")
    if planned:
        plan, notes = plan_paper(paper_to_run, config, selection)
        print_plan(plan, notes)
        return

    with progress(config.limits) as (start_phase, meter):
        reproduction = reproduce(paper_to_run, config, selection, start_phase, meter)
    # After an error torchrun ends the other processes, together with this one.
    processes.dismiss()

    is_tracked = config.execution.tracking == "mlflow"
    lines = _reproduction_lines(reproduction, is_whole=not section_names, is_tracked=is_tracked)
    print_result(reproduction.summary(), lines)
    _refuse_broken_runs(reproduction)
    if reproduction.failed:
        sys.exit(1)


@dataclass(frozen=True)
class _DataFiles:
    """The values of `--data`."""

    default: str | None = None
    """The file that was given without the name of a benchmark."""
    by_benchmark: dict[str, str] = field(default_factory=dict)


def _parse_data_files(paper: Paper, values: Sequence[str]) -> _DataFiles:
    """Return the files of a paper's benchmarks.

    Args:
        paper: The paper.
        values: The values of `--data`: BENCHMARK=FILE, or FILE alone.

    Raises:
        UserError: Several values are a FILE alone.
    """
    benchmarks: set[str] = set()
    for section in paper.sections:
        # Benchmarks of a suite are named "SUITE.BENCHMARK". A file may also be for the whole suite:
        # "palbench=FILE" is for "palbench.restate", too.
        benchmarks.update([section.benchmark, section.benchmark.partition(".")[0]])

    unnamed_files: list[str] = []
    files_by_benchmark: dict[str, str] = {}
    for value in values:
        # A path may hold "=", too, so only a name of the paper's is taken for a benchmark.
        benchmark, equals, path = value.partition("=")
        if equals and benchmark in benchmarks:
            files_by_benchmark[benchmark] = path
        else:
            unnamed_files.append(value)

    if len(unnamed_files) > 1:
        fix = f"say which benchmark it is of, e.g. --data {min(benchmarks)}=FILE"
        raise UserError(f"--data {unnamed_files[1]}: {fix}")
    default = unnamed_files[0] if unnamed_files else None
    return _DataFiles(default, files_by_benchmark)


def _refuse_broken_runs(reproduction: Reproduction) -> None:
    """Raise an error if an evaluation is broken, or a limit left no question answered.

    Raises:
        BrokenRunError: Too many questions or calls of one evaluation failed, so that its score says
            little. Or none of the evaluations has an answer.
    """
    from ..runs.results import raise_if_unanswered, refuse_broken

    evaluations: list[Evaluation] = []
    for section in reproduction.sections:
        for row in section.rows:
            for evaluation, run in zip(row.evaluations, row.runs, strict=True):
                refuse_broken(evaluation, run.name)
                evaluations.append(evaluation)
    raise_if_unanswered(evaluations, reproduction.stopped, reproduction.run.name)


def _reproduction_lines(
    reproduction: Reproduction, is_whole: bool, is_tracked: bool
) -> Iterator[RenderableType]:
    """Yield all tables, the paper's before ours, and the notes.

    Args:
        reproduction: What was run.
        is_whole: Whether all sections were run; what cannot be reproduced is listed only then.
        is_tracked: Whether MLflow has the run.
    """
    for result in reproduction.sections:
        yield f"\n== {result.section.name}: {result.section.title}"
        yield from _printed_tables(reproduction.paper.tables(result.section))
        yield from _our_tables(result)

    if is_whole:
        for item in reproduction.paper.not_reproduced:
            yield f"\nnot reproduced: {item.what}: {item.why}"
            for key in item.printed:
                yield from _printed_tables(reproduction.paper.printed[key])

    yield ""
    for note in reproduction.notes:
        yield f"note: {note}"
    if reproduction.stopped:
        fix = f"what is missing above was not run; --resume {reproduction.run.name} goes on"
        yield f"stopped by a limit: {reproduction.stopped}; {fix}"
    yield f"run: {reproduction.run}"
    if is_tracked:
        yield f"MLflow run: {reproduction.run_id} (mempiler ui)"


def _printed_tables(tables: Iterable[PrintedTable]) -> Iterator[RenderableType]:
    """Yield tables as a paper prints them."""
    for printed in tables:
        # A title inside the table would be broken at the table's width.
        title = f"\nAs the paper prints it: {printed.title}; {printed.model}"
        if printed.source:
            title += f"; read in {printed.source}"
        yield title

        rows: list[list[str]] = []
        for row in printed.rows:
            rows.append(["-" if cell is None else str(cell) for cell in row])
        yield table(printed.columns, rows)
        if printed.note:
            yield printed.note


def _our_tables(result: SectionResult) -> Iterator[RenderableType]:
    """Yield our tables of scores and of usage, and lines on win rates and on what has no score."""
    yield f"\nOurs: {result.heading or 'nothing was run'}"
    if result.rows:
        yield "scores and their differences in points, 0 to 100"
        yield _score_table(result)
        yield from _difference_notes(result)
        yield _usage_table(result)

    for label, preferences in result.win_rates.items():
        win_rate = format_estimate(preferences.rate, preferences.interval)
        yield f"win rate, {label}: {win_rate} over {preferences.n} questions, judged in both orders"
    for row in result.section.not_run:
        yield f"not run: {row.label}: {row.why}"
    for label, error in result.failed.items():
        yield f"failed: {label}: {error}"
    for label in result.broken:
        yield (
            f"broken: {label}: so many of its questions failed, or of its calls were lost,"
            " that its score says little"
        )
    if result.section.note:
        yield result.section.note


def _score_table(result: SectionResult) -> RenderableType:
    """Return a table of the scores of all variants.

    A cell has our value in its first line, and below it what the paper prints.
    """
    rows: list[Sequence[str]] = []
    for row in result.rows:
        cells = [_cell_text(cell) for cell in result.cells(row)]
        difference = _difference_text(result.difference(row))
        rows.append([row.label, str(row.evaluation.n), *cells, difference])
    for row in result.section.not_run:
        rows.append(_row_not_run(result, row))

    column_names = [column.name.replace("_", " ") for column in result.section.columns]
    difference_name = f"difference to {result.section.baseline}"
    return table(["variant", "n", *column_names, difference_name], rows)


def _row_not_run(result: SectionResult, row: PaperOnlyRow) -> list[str]:
    """Return a row with the paper's cells alone."""
    cells = [_printed_text(printed) or "-" for printed in result.printed_cells(row)]
    return [row.label, "-", *cells, "not run"]


def _printed_text(printed: Iterable[str | int | float | None]) -> str:
    return "\n".join(f"paper {cell}" for cell in printed)


def _cell_text(cell: Cell) -> str:
    """Return a value of ours, its interval, and what the paper prints there, a line each."""
    form = f"{{:,.{cell.digits}f}}"
    value_line = format_estimate(cell.value, form=form)
    if cell.spread:
        value_line += f" ± {form.format(cell.spread)}"

    lines = [value_line]
    if cell.interval is not None:
        low, high = cell.interval
        lines.append(f"[{form.format(low)}, {form.format(high)}]")
    if cell.printed:
        lines.append(_printed_text(cell.printed))
    return "\n".join(lines)


def _difference_text(difference: Difference | None) -> str:
    """Return a difference in points, its interval and its verdict, each on a line of its own."""
    if difference is None or not difference.n:
        return "-"

    lines = [f"{100 * difference.mean:+.1f}"]
    interval = difference.interval
    if interval is not None:
        lines.append(f"[{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]")
    # As journals print it: ".03". A p-value is never 0.
    p_value = f"{difference.p_value:.2g}".removeprefix("0")
    lines.append(f"p = {p_value}, n = {difference.n}")
    lines.append(difference.verdict)
    return "\n".join(lines)


def _difference_notes(result: SectionResult) -> Iterator[str]:
    """Yield the scopes of the verdicts in a section, each once, and then the verdicts' warnings.

    A scope says what a verdict holds for, e.g. "other conversations". Most rows have the same.
    """
    # A dict, because a set would not keep the order.
    scopes: dict[str, None] = {}
    warnings: list[str] = []
    for row in result.rows:
        difference = result.difference(row)
        if difference is None or not difference.n:
            continue
        scopes[difference.scope] = None
        if difference.warning:
            warnings.append(f"{row.label}: {difference.warning}")

    for scope in scopes:
        yield f"scope of the verdicts: {scope}"
    yield from warnings


def _usage_table(result: SectionResult) -> RenderableType:
    """Return a table of what each variant needs: calls, tokens, time and money.

    Variants share memories and answers, which only the first of them pays for. Here they count for
    each variant, as if it were run alone.
    """
    heads = (
        "variant",
        "calls",
        "tokens",
        "seconds",
        "US$",
        "failed",
        "lost calls",
        "search ms: p50, p95, CPU",
    )
    rows = [_usage_row(row) for row in result.rows]
    return table(heads, rows, "what it takes by itself, writing and answering together")


def _usage_row(row: VariantResult) -> list[str]:
    """Return what a variant needs, as one row.

    Only the failed questions are counted over all seeds. Everything else is that of the first seed.
    """
    first_evaluation = row.evaluation
    usage = first_evaluation.usage
    cost = "-" if usage.unpriced else f"{usage.cost:,.4f}"
    failed_questions = sum(evaluation.failures for evaluation in row.evaluations)

    search_times: list[str] = []
    for milliseconds in first_evaluation.search_ms().values():
        search_times.append("-" if milliseconds is None else f"{milliseconds:.1f}")

    return [
        row.label,
        f"{usage.calls:,.0f}",
        f"{usage.tokens:,.0f}",
        f"{usage.seconds:,.1f}",
        cost,
        f"{failed_questions:,}",
        f"{first_evaluation.failure_rate:.1%}",
        ", ".join(search_times),
    ]
