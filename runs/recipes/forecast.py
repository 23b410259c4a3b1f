"""`reproduce --plan`: what every section will take, before anything is spent.

    section ── variants, each measured on a few questions by the offline engine ──> calls, tokens, US$
            ── judges: what scores answers, and compares those of duels

A variant that an earlier section has is not counted again, and neither is a memory that an earlier variant writes: the
same is asked once in a run. So the plans of sections add up to that of the run, and `--only` of a later section alone
takes more than its line here.

Limits: those of `optimizers.plan`; what analyses ask beyond their variants is named and not counted, but for a ladder
(`ladder_plan`). Judges are planned by the prompts of the offline engine's short answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
from rich.console import Console
from rich.table import Table

from ...data.benchmark import Benchmark
from ...data.preference import PreferenceJudge, informed
from ...engines.meter import Meter
from ...engines.models import OFFLINE, language_model
from ...optimizers.plan import NOTHING, Plan, Range, Size, evaluation_plan, measure, price
from ...programs.adapter import adapter as make_adapter
from ...programs.identity import digest
from ...programs.program import MemoryProgram
from ..experiment import chosen_examples
from ..external import plannable
from ..planning import conversing, start_program
from ..setup import Setup
from .adaptation import Adaptation
from .arrangement import arrange, notes_on
from .recipe import Recipe
from .section import Section, Variant
from .workbench import asked_with, config_of, draws

_JUDGED = 3
"""Answers that are judged to measure what judging takes."""


@dataclass(frozen=True)
class Planned:
    """What a section takes."""

    section: str
    benchmark: str
    data: str
    questions: int
    evaluations: int
    """Variants and seeds that no earlier section has."""
    plan: Plan
    judging: Plan
    """Of the judge; nothing without one."""

    def summary(self) -> dict[str, Any]:
        """Plain JSON."""
        named = {"section": self.section, "benchmark": self.benchmark, "data": self.data}
        counts = {"questions": self.questions, "evaluations": self.evaluations}
        return {**named, **counts, **self.plan.summary(), "judging": self.judging.summary()}


@dataclass(frozen=True)
class Forecast:
    """What a run takes, by section."""

    recipe: str
    sections: tuple[Planned, ...]
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> Plan:
        """All sections, judging included."""
        return added([part for each in self.sections for part in (each.plan, each.judging)])

    def summary(self) -> dict[str, Any]:
        """Plain JSON."""
        sections = [each.summary() for each in self.sections]
        return {"recipe": self.recipe, "sections": sections, "total": self.total.summary(), "notes": list(self.notes)}


def plan_recipe(
    recipe: Recipe,
    setup: Setup,
    only: Sequence[str] = (),
    seeds: int | None = None,
    data: Mapping[str, str] | None = None,
    adaptation: Adaptation | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Forecast:
    """The plan of `run_recipe`; arguments and errors as there."""
    setup = recipe.suited(setup)
    arrangement = arrange(recipe, setup, only, seeds, data, adaptation or Adaptation())
    counted = _Counted()
    sections = tuple(
        counted.section(section, found, seeds or section.seeds or recipe.seeds, changes or {})
        for section, found in zip(arrangement.sections, arrangement.setups, strict=True)
    )
    notes = (*notes_on(recipe, arrangement.setups, arrangement.sections, setup.test), *arrangement.notes)
    extra = [each.name for each in arrangement.sections if each.asks_more]
    told = [f"not counted: what {', '.join(extra)} asks beyond its variants"] if extra else []
    return Forecast(recipe.name, sections, tuple(dict.fromkeys((*notes, *told, *counted.told))))


def added(plans: Sequence[Plan]) -> Plan:
    """Several plans as one; the cost is not known where that of one of them is not, unless it asks nothing."""
    calls = tokens = usd = NOTHING
    phases: dict[str, Range] = {}
    known = True
    for plan in plans:
        calls, tokens = calls + plan.calls, tokens + plan.tokens
        usd = usd + (plan.usd or NOTHING)
        known = known and (plan.usd is not None or plan.calls.high == 0)
        for name, part in plan.phases.items():
            phases[name] = phases.get(name, NOTHING) + part
    return Plan(calls, tokens, usd if known else None, phases)


def print_forecast(console: Console, forecast: Forecast) -> None:
    """Prints a line per section and the sum."""
    table = Table()
    for name in ("section", "on", "questions", "evaluations", "calls", "tokens", "US$", "judge calls", "judge US$"):
        names = name in ("section", "on")
        # Names are typed again (--only, --on): they may break, and are not cut.
        table.add_column(name, justify="left" if names else "right", min_width=9 if names else None, overflow="fold")
    for each in forecast.sections:
        plan, judging = _cells(each.plan), _cells(each.judging)
        counts = f"{each.questions:,}", f"{each.evaluations:,}"
        table.add_row(each.section, each.benchmark, *counts, *plan, judging[0], judging[2])
    table.add_section()
    parts = [added([each.plan for each in forecast.sections]), added([each.judging for each in forecast.sections])]
    evaluations = sum(each.evaluations for each in forecast.sections)
    plan, judging = map(_cells, parts)
    table.add_row("all", "", "", f"{evaluations:,}", *plan, judging[0], judging[2])
    console.print(table)
    for data in dict.fromkeys(f"{each.benchmark}: {each.data}" for each in forecast.sections):
        console.print(f"data of {data}", soft_wrap=True)
    for note in forecast.notes:
        console.print(f"note: {note}", soft_wrap=True)


def _cells(plan: Plan) -> tuple[str, str, str]:
    """Calls, tokens and US$ as ranges."""
    usd = "-" if plan.usd is None else f"{plan.usd.low:,.2f} to {plan.usd.high:,.2f}"
    return _range(plan.calls), _range(plan.tokens), usd


def _range(found: Range) -> str:
    low, high = _short(found.low), _short(found.high)
    return low if low == high else f"{low} to {high}"


def _short(number: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e4)):
        if number >= size:
            return f"{number / (1e6 if unit == 'M' else 1e3):,.1f}{unit}"
    return f"{number:,.0f}"


@dataclass
class _Counted:
    """What earlier sections have."""

    variants: set[str] = field(default_factory=set)
    writers: set[str] = field(default_factory=set)
    sizes: dict[str, Size] = field(default_factory=dict)
    """By variant and data; a repetition takes as much as the first."""
    told: list[str] = field(default_factory=list)
    """What plans say beside their numbers."""

    def section(self, section: Section, setup: Setup, seeds: int, changes: Mapping[str, Any]) -> Planned:
        """The plan of a section beyond the earlier ones."""
        benchmark = setup.load()
        examples = chosen_examples(setup, benchmark, "all")
        plans, evaluations = list[Plan](), 0
        for variant in section.all_variants():
            if not plannable(variant.asked):
                self.told.append(
                    f"not counted: what {variant.label} ({variant.asked}) takes, which is not known before"
                )
                continue
            for repeat in range(seeds if draws(variant, setup) else 1):
                plan = self._variant(variant, replace(setup, repeat=repeat), benchmark, examples)
                plans += [] if plan is None else [plan]
                evaluations += plan is not None
        if section.planned is not None:
            plan, told = section.planned(setup, changes)
            plans.append(plan)
            self.told += told
        judging = [_scoring(benchmark, examples, setup).times(evaluations)] if setup.judge_lm else []
        judging += [_dueling(benchmark, examples, setup).times(len(section.duels))] if setup.judge_lm else []
        data = benchmark.source.path + (" (sample)" if benchmark.source.sample else "")
        judge = _judge_plan(judging, setup)
        return Planned(section.name, setup.benchmark, data, len(examples), evaluations, added(plans), judge)

    def _variant(
        self, variant: Variant, setup: Setup, benchmark: Benchmark, examples: Sequence[dspy.Example]
    ) -> Plan | None:
        """The plan of a variant; None where it is known."""
        setup = asked_with(variant, setup)
        config = config_of(variant, setup)
        about = [setup.benchmark, setup.data, dict(setup.options), setup.test, setup.repeat]
        key = json.dumps([about, variant.asked, config], default=str)
        if key in self.variants:
            return None
        self.variants.add(key)
        program = start_program(variant.asked, setup, benchmark, config, ablating=True)
        same = json.dumps([about[:-1], variant.asked, dict(variant.config)], default=str)
        if same not in self.sizes:
            self.sizes[same] = conversing(measure(program, benchmark, examples), benchmark)
        size = self.sizes[same]
        writer = digest([_writer(program), about[:2], about[3:]])
        if writer in self.writers:
            size = replace(size, write_calls=0.0, write_tokens=0.0)
        self.writers.add(writer)
        return evaluation_plan(size, examples, setup.lm)


def _writer(program: MemoryProgram) -> str:
    """What two programs share that write the same memories."""
    with dspy.context(lm=language_model(), adapter=make_adapter(program.adapter)):
        return program.cache.identities.writer_key(program.method.writer)


@dataclass(frozen=True)
class _Judging:
    """Calls of a judge and what they hold."""

    calls: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    def times(self, factor: float) -> _Judging:
        return _Judging(self.calls * factor, self.input_tokens * factor, self.output_tokens * factor)


def _scoring(benchmark: Benchmark, examples: Sequence[dspy.Example], setup: Setup) -> _Judging:
    """What judging the answers of one evaluation takes."""
    if not benchmark.scorer.asked or benchmark.interaction is not None:
        return _Judging(float(len(examples)) if benchmark.scorer.asked else 0.0)
    meter, adapter = Meter(), make_adapter(setup.adapter or "chat")
    lm = language_model(OFFLINE, meter, "judge")
    bound = benchmark.bound(lambda judge: judge(lm, adapter))
    few = benchmark.interleave(examples)[:_JUDGED]
    for example in few:
        bound.score(example, dspy.Prediction(answer=str(example.get("answer") or "an answer")))
    return _read(meter).times(len(examples) / max(1, len(few)))


def _dueling(benchmark: Benchmark, examples: Sequence[dspy.Example], setup: Setup) -> _Judging:
    """What comparing the answers of one duel takes."""
    meter = Meter()
    judge = PreferenceJudge(language_model(OFFLINE, meter, "judge"), make_adapter(setup.adapter or "chat"))
    asked = {str(example.id) for example in examples}
    few = [example for example in informed(benchmark) if str(example.id) in asked][:_JUDGED]
    for example in few:
        judge(example, "one answer", "another answer")
    # Each pair is judged in both orders.
    return _read(meter).times(2 * len(examples) / max(1, len(few)))


def _read(meter: Meter) -> _Judging:
    used = meter.read()
    return _Judging(sum(used.calls.values()), used.input_tokens, used.output_tokens)


def _judge_plan(judging: Sequence[_Judging], setup: Setup) -> Plan:
    calls = sum(each.calls for each in judging)
    tokens = sum(each.input_tokens + each.output_tokens for each in judging)
    share = sum(each.output_tokens for each in judging) / max(1.0, tokens)
    # Answers that are equal, or were judged before, are not judged: the least is nothing.
    asked, held = Range(0, calls), Range(0, 1.4 * tokens)
    usd = price(setup.judge_lm, held, share) if setup.judge_lm else NOTHING
    return Plan(asked, held, usd, {"judging": asked} if calls else {})
