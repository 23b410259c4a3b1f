"""Running one section: its variants, our table, the tables and pictures of its sweeps and analyses, its win rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspy.utils.exceptions import AdapterParseError

from ...data.benchmark import Benchmark
from ...data.preference import PairJudge, informed, preference
from ...engines.models import endpoint_errors
from ...errors import BudgetError
from ..report import WIRING, heading
from ..setup import Setup
from ..statistics import interval
from .beside import differences, expenses
from .columns import Column, interval_cell, part, questions, score, tokens
from .made import Made
from .material import Material
from .pictures import Picture, lines, save
from .section import Duel, Section, Sweep
from .tables import Cell, Measured, OurTable
from .workbench import Workbench


@dataclass(frozen=True)
class Done:
    """What a section gave."""

    section: Section
    heading: str
    """What our numbers rest on: benchmark, LM, judge, and whether they are a wiring check."""
    made: tuple[Made, ...]
    tables: tuple[OurTable, ...]
    pictures: tuple[Path, ...]
    win_rates: Mapping[str, float]
    beside: tuple[OurTable, ...] = ()
    """Win rates, differences to the section's own variant, and what each variant takes."""

    def summaries(self) -> list[dict[str, Any]]:
        """Plain JSON of every variant: the first seed's evaluation, and what the seeds scored."""
        return [
            {
                "label": made.label,
                **made.evaluation.summary(),
                "per_query": counts_of(made),
                "seeds": [each.score for each in made.evaluations],
                "runs": [each.run_id for each in made.evaluations],
            }
            for made in self.made
        ]


def _data_alone(section: Section, setup: Setup) -> str:
    """The heading of a section that only describes data; empty if a limit left its rows out."""
    if section.all_variants():
        return ""
    source = setup.load().source
    return f"{setup.benchmark}, {source.path}" + (f" ({WIRING})" if source.sample else "")


def counts_of(made: Made) -> dict[str, float]:
    """Every count of a variant's recall, a query."""
    names = dict.fromkeys(name for row in made.evaluation.rows for name in row.recall_counts)
    return {name: round(made.per_query(name), 3) for name in names}


def run_section(section: Section, setup: Setup, bench: Workbench, folder: Path, judge: PairJudge | None = None) -> Done:
    """Evaluates a section's variants and makes its tables and pictures.

    Args:
        section: What to run.
        setup: With the section's benchmark, data and options.
        bench: Where variants are evaluated.
        folder: For the pictures.
        judge: Compares the answers of duels; no win rates without it.
    """
    found = [bench.made(variant, setup, section.name, section.seeds) for variant in section.all_variants()]
    # A limit may end an evaluation early: scores over a part of the questions are not compared.
    whole = [each for each in found if each is not None and not any(one.stopped for one in each.evaluations)]
    made = {each.label: each for each in whole}
    shown = [made[variant.label] for variant in section.variants if variant.label in made]
    material = Material(section, setup, made, bench)
    tables: list[OurTable] = [our_table(section, shown)] if shown else []
    pictures: list[Picture] = []
    for sweep in section.sweeps:
        tables.append(_sweep_table(sweep, section, made))
        pictures.append(_sweep_picture(sweep, section, material))
    # A reached limit leaves variants out; an analysis counts on all of its own.
    for analysis in section.analyses if bench.stopped is None else ():
        for result in analysis(material):
            if isinstance(result, Made):
                made[result.label] = result
            elif isinstance(result, OurTable):
                tables.append(result)
            else:
                pictures.append(result)
    first = next(iter(made.values()), None)
    told = _data_alone(section, setup) if first is None else heading(first.evaluation).partition(" on ")[2]
    rates = {} if judge is None or bench.stopped else _judged(section.duels, made, setup.load(), judge, bench)
    beside = _rates_table(rates), differences(whole, section.own), expenses(whole)
    return Done(
        section,
        told,
        tuple(made.values()),
        tuple(tables),
        tuple(save(each, folder) for each in pictures),
        {label: rate.value for label, rate in rates.items()},
        tuple(table for table in beside if table is not None),
    )


def our_table(section: Section, made: Sequence[Made]) -> OurTable:
    """The section's table of ours: its own columns, or the usual ones."""
    if section.columns:
        rows = [(each.label, *(column.cell(each) for column in section.columns)) for each in made]
        asked = ("questions", *(f"{column.size(made[0])}" for column in section.columns))
        rows = (asked, *rows)
        return OurTable(section.title, ("variant", *(column.name for column in section.columns)), rows, section.note)
    parts = [part(name) for name in made[0].evaluation.metrics()]
    names = ("variant", "n", "score", "95 % interval", *(column.name for column in parts), "context tokens")

    def row(each: Made) -> tuple[Cell, ...]:
        before, after = (questions(), score()), (*parts, tokens())
        cells = [column.cell(each) for column in before], [column.cell(each) for column in after]
        return (each.label, *cells[0], interval_cell(each), *cells[1])

    return OurTable(section.title, names, tuple(map(row, made)), section.note)


def _sweep_table(sweep: Sweep, section: Section, made: Mapping[str, Made]) -> OurTable:
    columns: tuple[Column, ...] = (questions(), *sweep.lines, tokens())
    values = [(value, made[sweep.label(value)]) for value in sweep.values if sweep.label(value) in made]
    rows = tuple((str(value), *(column.cell(each) for column in columns)) for value, each in values)
    title, names = sweep.title or f"{section.title}: {sweep.setting}", tuple(column.name for column in columns)
    return OurTable(title, (sweep.setting, *names), rows, section.note)


def _sweep_picture(sweep: Sweep, section: Section, material: Material) -> Picture:
    found = [
        (value, material.made[sweep.label(value)]) for value in sweep.values if sweep.label(value) in material.made
    ]
    size = tokens().value
    xs = [(each.mean(size) or 0.0) if sweep.axis == "tokens" else float(value) for value, each in found]
    series = {line.name: (xs, [each.mean(line.value) for _, each in found]) for line in sweep.lines}
    spread = {line.name: [each.spread(line.value) or 0.0 for _, each in found] for line in sweep.lines}
    x = "mean tokens of the recalled context" if sweep.axis == "tokens" else sweep.setting
    name = f"{section.name}-{sweep.setting}".replace(" ", "-").replace("/", "-")
    return Picture(name, lines(material.title(sweep.title or section.title), x, series, spread=spread))


def _judged(
    duels: Sequence[Duel], made: Mapping[str, Made], benchmark: Benchmark, judge: PairJudge, bench: Workbench
) -> dict[str, Measured]:
    """The win rates; none where a limit is reached meanwhile."""
    try:
        with endpoint_errors():
            return _win_rates(duels, made, benchmark, judge)
    except BudgetError as error:
        bench.stopped = str(error)
        return {}


def _win_rates(
    duels: Sequence[Duel], made: Mapping[str, Made], benchmark: Benchmark, judge: PairJudge
) -> dict[str, Measured]:
    answers = {label: {row.id: row.answer for row in each.evaluation.rows} for label, each in made.items()}
    examples = {str(example.id): example for example in informed(benchmark)}
    rates = {}
    for duel in (duel for duel in duels if duel.one in answers and duel.other in answers):
        one, other = answers[duel.one], answers[duel.other]
        wins: dict[str, float] = {}
        for id in (id for id in one if id in other):
            # A verdict that cannot be read is in no rate.
            with suppress(AdapterParseError):
                wins[id] = preference(judge, examples[id], one[id], other[id]).ahead
        values = list(wins.values())
        span = interval(values, [benchmark.group(examples[id]) for id in wins])
        ends, unit = (None, "") if span is None else ((span.low, span.high), span.unit)
        rates[duel.label] = Measured(sum(values) / len(values) if values else 0.0, 3, len(values), ends, unit)
    return rates


def _rates_table(rates: Mapping[str, Measured]) -> OurTable | None:
    rows = tuple((label, str(rate.n), rate) for label, rate in rates.items())
    note = "Share of judgments, two a question, that prefer the first; a tie counts for neither."
    return OurTable("win rates", ("duel", "n", "win rate"), rows, note) if rows else None
