"""What `recollect reproduce` runs: variants of a method on a benchmark, and the paper's own cells to print apart.

A recipe makes two kinds of tables. The paper's cells stand under the paper's names, with its model; ours name the LM,
the data and n. They are never put into one table, since other models, judges and data made them.

Example:
    >>> found = run_recipe(RECIPES["pgr"], setup)
    >>> found.rows[0].label, found.rows[0].evaluation.score
    ('PGR, tree', 0.41)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...data.benchmark import Benchmark
from ...data.preference import PairJudge, preference
from ...errors import UnknownNameError
from ...programs.catalog import method_class
from ...programs.remember import MemoryCache
from ..evaluate import Progress
from ..experiment import run_evaluate
from ..results import Evaluation
from ..setup import Setup

Cell = str | float | None


@dataclass(frozen=True)
class PaperTable:
    """Cells as a paper prints them."""

    title: str
    """The paper and the table's number."""
    model: str
    """The models behind it, and n where the paper says."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Variant:
    """One row of ours."""

    label: str
    method: str
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Duel:
    """Two variants whose answers a judge compares."""

    label: str
    one: str
    other: str


@dataclass(frozen=True)
class Recipe:
    """What to run for a paper, and what it printed."""

    summary: str
    benchmark: str
    variants: tuple[Variant, ...]
    paper: tuple[PaperTable, ...]
    duels: tuple[Duel, ...] = ()
    others: tuple[str, ...] = ()
    """Further benchmarks of the paper that its variants can be run on (`--on`)."""
    offline_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By benchmark: its options where no judge is at hand, e.g. an LM-free metric."""
    offline_config: Mapping[str, Any] = field(default_factory=dict)
    """Settings of every variant under the offline embedder, whose cosines are not those of the paper's."""


@dataclass(frozen=True)
class Made:
    """One variant and its scores."""

    label: str
    evaluation: Evaluation

    def per_query(self, name: str) -> float:
        """Mean of a count of the recall, e.g. "calls" or "facts"."""
        rows = self.evaluation.rows
        return sum(row.recall_counts.get(name, 0) for row in rows) / len(rows) if rows else 0.0


@dataclass(frozen=True)
class Reproduced:
    """What a recipe gave."""

    recipe: Recipe
    rows: tuple[Made, ...]
    win_rates: Mapping[str, float]
    """Share of questions on which the first of a duel is preferred, ties as half; empty without a judge."""

    def summary(self) -> dict[str, Any]:
        """Plain JSON: the paper's tables and ours, apart."""
        paper = [
            {"title": table.title, "model": table.model, "columns": table.columns, "rows": table.rows}
            for table in self.recipe.paper
        ]
        ours = [{"label": made.label, **made.evaluation.summary(), "per_query": counts_of(made)} for made in self.rows]
        return {"paper": paper, "ours": ours, "win_rates": dict(self.win_rates)}


def counts_of(made: Made) -> dict[str, float]:
    """Every count of a variant's recall, a query."""
    names = dict.fromkeys(name for row in made.evaluation.rows for name in row.recall_counts)
    return {name: round(made.per_query(name), 3) for name in names}


def run_recipe(
    recipe: Recipe,
    setup: Setup,
    judge: PairJudge | None = None,
    note: Callable[[str], Progress | None] = lambda phase: None,
) -> Reproduced:
    """Evaluates every variant on the same questions; memories that variants share are written once.

    Args:
        recipe: What to run.
        setup: Data, models and sizes; its benchmark is the recipe's first if empty.
        judge: Compares answers for the win rates; none are printed without it.
        note: Told the variant.

    Raises:
        UnknownNameError: The setup's benchmark is none of the recipe's.
    """
    name = setup.benchmark or recipe.benchmark
    if name not in (recipe.benchmark, *recipe.others):
        raise UnknownNameError("benchmark of this recipe", name, (recipe.benchmark, *recipe.others))
    options = dict(setup.options)
    if not setup.judge_lm:
        options = {**recipe.offline_options.get(name, {}), **options}
    setup = replace(setup, benchmark=name, options=options)
    suited = recipe.offline_config if setup.embedder == "offline" else {}
    cache, made = MemoryCache(), []
    for variant in recipe.variants:
        found = run_evaluate(
            variant.method,
            setup,
            config={**_known(variant.method, suited), **variant.config},
            note=lambda _, name=variant.label: note(name),
            cache=cache,
        )
        made.append(Made(variant.label, found))
    rates = {} if judge is None else _win_rates(recipe.duels, made, setup.load(), judge)
    return Reproduced(recipe, tuple(made), rates)


def _known(method: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings that a method has."""
    parameters = inspect.signature(method_class(method).__init__).parameters
    return {name: value for name, value in config.items() if name in parameters}


def _win_rates(duels: Sequence[Duel], made: Sequence[Made], benchmark: Benchmark, judge: PairJudge) -> dict[str, float]:
    answers = {entry.label: {row.id: row.answer for row in entry.evaluation.rows} for entry in made}
    examples = {str(example.id): example for example in benchmark.examples}
    rates = {}
    for duel in duels:
        one, other = answers[duel.one], answers[duel.other]
        both = [id for id in one if id in other]
        wins = [preference(judge, examples[id], one[id], other[id]) for id in both]
        rates[duel.label] = sum(wins) / len(wins) if wins else 0.0
    return rates
