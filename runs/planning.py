"""`--plan`: what a compile or an evaluation will take, before any paid call: ranges of LM calls, tokens and cost.

Sizes are measured, not guessed: the start program runs on a few questions under the offline engine, which costs
nothing and shows how many calls a question and an item of a history take, and how long their prompts are. `effort`
turns an optimizer's settings into a range of program runs and proposals; prices come from litellm's table.

Calls that a cache answers are part of the range; they are free. Corrections of malformed answers, retries, and judges
are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
from rich.console import Console
from rich.table import Table

from ..data.benchmark import Benchmark
from ..engines.embedders import embedder as make_embedder
from ..engines.meter import Meter
from ..engines.models import language_model
from ..engines.prices import token_prices
from ..errors import UserError
from ..optimizers.compile import Compilation, plan_job
from ..optimizers.effort import NOTHING, Range, effort
from ..programs.adapter import adapter as make_adapter
from ..programs.catalog import answering, build, needs_embedder, preset
from ..programs.program import MemoryProgram
from ..programs.remember import MemoryCache
from ..records import History
from .addresses import program_folder
from .experiment import Part, chosen_examples
from .external import plannable
from .setup import Setup

SAMPLED_ITEMS = 3
"""Items of a history that are written to measure what writing takes."""
SAMPLED_QUESTIONS = 8


@dataclass(frozen=True)
class Plan:
    """Ranges for a whole run."""

    calls: Range = NOTHING
    tokens: Range = NOTHING
    usd: Range | None = NOTHING
    """None where litellm knows no price."""
    phases: Mapping[str, Range] = field(default_factory=dict)
    """Calls by phase."""

    def __add__(self, other: Plan) -> Plan:
        """Both as one, without phases; the cost is not known where that of either is not, unless it asks nothing."""
        known = all(each.usd is not None or each.calls.high == 0 for each in (self, other))
        usd = (self.usd or NOTHING) + (other.usd or NOTHING) if known else None
        return Plan(self.calls + other.calls, self.tokens + other.tokens, usd)

    def summary(self) -> dict[str, Any]:
        """Plain JSON."""

        def pair(range: Range | None) -> dict[str, float] | None:
            return None if range is None else {"low": round(range.low, 4), "high": round(range.high, 4)}

        phases = {name: pair(range) for name, range in self.phases.items()}
        return {"calls": pair(self.calls), "tokens": pair(self.tokens), "usd": pair(self.usd), "phases": phases}


def plan_evaluate(
    name: str, setup: Setup, part: Part = "all", config: Mapping[str, Any] | None = None, allow_code: bool = False
) -> Plan:
    """The plan of an evaluation; arguments as `experiment.run_evaluate`."""
    benchmark = setup.load()
    examples = chosen_examples(setup, benchmark, part)
    size = _measured(start_program(name, setup, benchmark, config, allow_code), benchmark, examples)
    questions, items = len(examples), _items(examples)
    phases = {
        "answering": Range(1, 1).times(questions * size.read_calls),
        "writing memories": Range(0.8, 1.25).times(items * size.write_calls),
    }
    tokens = Range(0.7, 1.4).times(questions * size.read_tokens + items * size.write_tokens)
    return _plan(phases, tokens, size, setup.lm)


def plan_compile(
    method: str,
    setup: Setup,
    how: Compilation,
    config: Mapping[str, Any] | None = None,
    allow_code: bool = False,
) -> Plan:
    """The plan of a compile: scoring before and after, and the optimizer between; checks the optimizer's needs, too.

    Arguments as `experiment.run_compile`.
    """
    benchmark = setup.load(compiling=True)
    split = setup.split(benchmark)
    program = start_program(method, setup, benchmark, config, allow_code)
    with dspy.context(lm=language_model()):
        job = plan_job(program, benchmark, split.train, how)
    size = _measured(program, benchmark, split.train, conversing=False)
    visible = {name for name, _ in job.student.named_predictors()}
    done = effort(how.optimizer, job.settings, len(job.train), len(job.val), len(visible))
    # Whether the optimizer may change writing prompts, so that memories are written anew.
    rewrites = bool(visible & program.writer_names()) and how.optimizer not in ("labeled", "knn")
    learned, held = [*job.train, *job.val], _items([*split.dev, *split.test]) * size.write_calls
    written = done.writings if rewrites else Range(min(1, done.writings.low), min(1, done.writings.high))
    before = (len(split.dev) + len(split.test)) * size.read_calls
    phases = {
        "scoring before": Range(before + held * 0.8, before + held * 1.25),
        # Of the calls that a question takes, recalling takes all but the answer; of tried questions it is known then.
        f"optimizing on {len(learned)} questions": done.runs.times(size.read_calls)
        + Range(0, done.recalls.high).times(max(0.0, size.read_calls - 1)),
        "writing training memories": Range(written.low * 0.8, written.high * 1.25).times(
            _items(learned) * size.write_calls
        ),
        "proposals": done.proposals,
        "scoring after": Range(len(split.dev) * size.read_calls, before + (held * 1.25 if rewrites else 0.0)),
    }
    calls = sum(phases.values(), NOTHING)
    each = (size.read_tokens + size.write_tokens) / max(1.0, size.read_calls + size.write_calls)
    # Demos make prompts longer: up to four times, as measured with 16 demos.
    return _plan(phases, Range(calls.low * each * 0.7, calls.high * each * 4), size, setup.lm)


def print_plan(console: Console, plan: Plan) -> None:
    """Prints the ranges of a plan."""
    table = Table(title="planned LM calls (those a cache answers are free)", title_justify="left")
    for name in ("phase", "low", "high"):
        table.add_column(name, justify="left" if name == "phase" else "right")
    for phase, found in plan.phases.items():
        table.add_row(phase, f"{found.low:,.0f}", f"{found.high:,.0f}")
    table.add_section()
    table.add_row("calls", f"{plan.calls.low:,.0f}", f"{plan.calls.high:,.0f}")
    table.add_row("tokens", f"{plan.tokens.low:,.0f}", f"{plan.tokens.high:,.0f}")
    low, high = (f"${plan.usd.low:.2f}", f"${plan.usd.high:.2f}") if plan.usd else ("price not known", "")
    table.add_row("cost", low, high)
    console.print(table)


def start_program(
    name: str,
    setup: Setup,
    benchmark: Benchmark,
    config: Mapping[str, Any] | None,
    allow_code: bool = False,
) -> MemoryProgram:
    """A method's program or a saved one as a run begins with it, without its models.

    Raises:
        UserError: The settings or the task do not fit.
    """
    folder = program_folder(name)
    if folder is not None:
        return answering(setup.saved(folder, allow_code), benchmark.task)
    if not plannable(name):
        raise UserError(f"{name}: what it takes is not known before; leave --plan out, and set --max-calls")
    # The offline embedder replaces a paid one: the recalled context has the same size.
    embedder = make_embedder() if needs_embedder(name) else None
    settings = {**preset(name, benchmark.name, benchmark.unsaid), **dict(config or {})}
    return build(name, benchmark.task, embedder, adapter=setup.default_adapter, **settings)


@dataclass(frozen=True)
class _Size:
    """What one question and one item take."""

    read_calls: float
    read_tokens: float
    """Tokens, in and out, of answering one question."""
    output_share: float
    """Share of output tokens."""
    write_calls: float
    write_tokens: float
    """Tokens of writing one item."""


def _measured(
    program: MemoryProgram, benchmark: Benchmark, examples: Sequence[dspy.Example], conversing: bool = True
) -> _Size:
    """Runs a program on a few questions under the offline engine; its own cache is not touched."""
    probe, meter = program.deepcopy(), Meter()
    probe.cache = MemoryCache()
    chosen = benchmark.interleave(examples)[:SAMPLED_QUESTIONS]
    # Whole where writing costs no call.
    most = SAMPLED_ITEMS if program.method.writer.predictors_below() else None
    short = {each.history.id: History(id=each.history.id, items=each.history.items[:most]) for each in chosen}
    adapter = make_adapter(program.adapter)
    with dspy.context(lm=language_model(meter=meter), adapter=adapter, trace=None, disable_history=True):
        for history in short.values():
            probe.remember(history)
        written = meter.read()
        for example in chosen:
            probe(**{**example.inputs(), "history": short[example.history.id]})
        read = meter.read() - written
    items = sum(map(len, short.values())) or 1
    calls, tokens = sum(read.calls.values()), read.input_tokens + read.output_tokens
    asked = max(1, len(chosen))
    size = _Size(
        read_calls=calls / asked,
        read_tokens=tokens / asked,
        output_share=read.output_tokens / max(1, tokens),
        write_calls=sum(written.calls.values()) / items,
        write_tokens=(written.input_tokens + written.output_tokens) / items,
    )
    if benchmark.interaction is None or not conversing:
        return size
    # Two assistants reply, and the user writes before each reply.
    turns = 2 * benchmark.interaction.replies
    return replace(size, read_calls=turns * (size.read_calls + 1), read_tokens=2 * turns * size.read_tokens)


def _plan(phases: Mapping[str, Range], tokens: Range, size: _Size, lm: str) -> Plan:
    calls, prices = sum(phases.values(), NOTHING), token_prices(lm)
    each = 0.0 if prices is None else prices[0] * (1 - size.output_share) + prices[1] * size.output_share
    usd = None if prices is None else tokens.times(each)
    return Plan(Range(int(calls.low), int(calls.high + 0.999)), tokens, usd, phases)


def _items(examples: Sequence[dspy.Example]) -> int:
    return sum(len(history) for history in {example.history for example in examples})
