"""`--plan`: estimate the calls, tokens, cost and minutes of a run before any paid call.

    plan = plan_evaluate("turn-rag", inputs)
    plan.calls.high                 # at most so many calls of language models

What a question and an item take is measured with the offline engine (`plan_sizes`). How often an
optimizer asks, at least and at most, its `call_bounds` say. Trainings are in `training_plan`.
Corrections, retries and judges are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..engines.limits import BudgetGuard
from ..engines.lm import language_model
from ..engines.local.memory_plan import DeviceUse
from ..engines.meter import Meter
from ..engines.model_names import OFFLINE, is_local, is_offline
from ..engines.prices import token_prices
from ..errors import UserError
from ..optimizers.call_bounds import NOTHING, CallBounds, Range
from ..optimizers.compile import CompileConfig, plan_job
from ..optimizers.job import OptimizerJob
from ..programs.cache import MemoryCache
from ..programs.program import MemoryProgram
from .config import RunConfig
from .evaluate import Part, chosen_examples
from .external import can_be_planned
from .folder import RunFolder
from .inputs import RunInputs
from .plan_sizes import MeanWork, estimate_writing, measure_program
from .program_address import program_folder
from .run import Run
from .split_plan import SplitPlan, plan_split

SECONDS_OF_CALL = Range(0.4, 5)
"""Seconds in which an endpoint answers a call."""
WAITING_THREADS = 4
"""One thread in so many is busy at worst: the calls of one memory wait for one another."""

# How far calls and tokens may be from what was measured, as factors.
WRITING_SPREAD = Range(0.8, 1.25)
"""The calls that write memories."""
TOKENS_OF_EVALUATION = Range(0.7, 1.4)
"""The tokens of an evaluation."""
TOKENS_OF_COMPILE = Range(0.7, 4)
"""The tokens of a compile. Demos make prompts up to four times longer, as measured with 16."""

_OPTIMIZERS_WITH_FIXED_PROMPTS = ("labeled", "knn")
"""Optimizers after which memories are not written anew, whatever predictors they may change."""


@dataclass(frozen=True)
class Plan:
    """What a whole run takes, as ranges."""

    calls: Range = NOTHING
    tokens: Range = NOTHING
    usd: Range | None = NOTHING
    """None where litellm knows no price."""
    minutes: Range | None = NOTHING
    """None where no endpoint is asked: the machine decides."""
    phases: Mapping[str, Range] = field(default_factory=dict)
    """Calls by phase."""
    split: SplitPlan | None = None
    """What the split of the questions allows, for a run that needs all three parts."""
    devices: tuple[DeviceUse, ...] = ()
    """The memory on each GPU, for a training of a model whose shape is known."""

    def __add__(self, other: Plan) -> Plan:
        """Return the plan of both runs together, without phases.

        Cost or minutes that one of them does not know are not known of both. A run without calls
        does not count here.
        """
        plans_with_calls = [plan for plan in (self, other) if plan.calls.high]
        return Plan(
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            usd=_sum_if_known([plan.usd for plan in plans_with_calls]),
            minutes=_sum_if_known([plan.minutes for plan in plans_with_calls]),
            devices=_largest_by_role([*self.devices, *other.devices]),
        )

    def summary(self) -> dict[str, Any]:
        """Return plain JSON."""
        summary: dict[str, Any] = {
            "calls": _range_summary(self.calls),
            "tokens": _range_summary(self.tokens),
            "usd": _range_summary(self.usd),
            "minutes": _range_summary(self.minutes),
            "phases": {name: _range_summary(calls) for name, calls in self.phases.items()},
        }
        if self.split is not None:
            summary["split"] = self.split.summary()
        if self.devices:
            summary["devices"] = [device.summary() for device in self.devices]
        return summary


def _sum_if_known(ranges: Sequence[Range | None]) -> Range | None:
    """Return the sum of ranges; None if one of them is not known."""
    total = NOTHING
    for part in ranges:
        if part is None:
            return None
        total += part
    return total


def _range_summary(value: Range | None) -> dict[str, float] | None:
    if value is None:
        return None
    return {"low": round(value.low, 4), "high": round(value.high, 4)}


def _largest_by_role(devices: Iterable[DeviceUse]) -> tuple[DeviceUse, ...]:
    """Return the largest use of each role: of several trainings, one runs at a time."""
    largest: dict[str, DeviceUse] = {}
    for device in devices:
        known = largest.get(device.role)
        if known is None or device.total > known.total:
            largest[device.role] = device
    return tuple(largest.values())


def plan_evaluate(target: object, inputs: RunInputs, part: Part = "all") -> Plan:
    """Return the plan of an evaluation.

    Args:
        target: What is evaluated, as `run_evaluate` takes it.
        inputs: Data, models, and the method's settings.
        part: Which questions are asked.

    Raises:
        UserError: What the target takes cannot be known before it runs, or its settings do not fit.
    """
    benchmark = inputs.benchmark
    examples = chosen_examples(inputs, part)
    program = start_program(target, inputs, benchmark)
    mean_work = measure_program(program, benchmark, examples)

    answering = mean_work.answering.times(len(examples))
    writing = estimate_writing(program, examples, mean_work)
    phases = {
        # Every question is answered once, so both ends are equal.
        _questions_phase(benchmark): Range(answering.calls, answering.calls),
        # How often a writer asks depends on what it reads, so few items show it only roughly.
        "writing memories": WRITING_SPREAD.times(writing.calls),
    }
    tokens = TOKENS_OF_EVALUATION.times(answering.tokens + writing.tokens)
    return make_plan(phases, tokens, mean_work, inputs.config)


def plan_compile(method: object, inputs: RunInputs, compilation: CompileConfig) -> Plan:
    """Return the plan of a compile: scoring before and after it, and the optimizer between.

    Args:
        method: What is compiled, as `run_compile` takes it.
        inputs: Data, models, and the method's settings.
        compilation: The optimizer, the stage and the settings.

    Raises:
        UserError: The optimizer lacks something that it needs, or what it takes is not known
            before it runs. As `plan_evaluate` besides.
    """
    config = inputs.config
    benchmark = inputs.benchmark_for_compiling()
    split = inputs.split()
    program = start_program(method, inputs, benchmark)
    compilation = replace(compilation, seed=config.data.seed, threads=config.execution.threads)
    with dspy.context(lm=language_model()):
        job = plan_job(program, benchmark, split.train, compilation)
    mean_work = measure_program(program, benchmark, split.train)
    bounds = compilation.make_optimizer().call_bounds(job)
    if bounds is None:
        raise UserError(
            f"{compilation.optimizer}: how many calls it makes is not known before it runs;"
            " leave --plan out, and set --max-calls"
        )

    rewrites_memories = _rewrites_memories(job, program, compilation)
    held_out = [*split.dev, *split.test]
    answering = mean_work.answering.times(len(held_out)).calls
    writing = WRITING_SPREAD.times(estimate_writing(program, held_out, mean_work).calls)
    answering_only = Range(answering, answering)

    phases = {"scoring before": answering_only + writing}
    answers = benchmark.scorer.needs_answer
    phases |= _optimizing_phases(job, program, mean_work, bounds, rewrites_memories, answers)
    # At least, the compiled program uses the memories that were written for scoring before.
    rewriting = Range(0, writing.high) if rewrites_memories else NOTHING
    phases["scoring after"] = answering_only + rewriting

    calls = sum(phases.values(), NOTHING)
    tokens = mean_work.tokens_of(calls, TOKENS_OF_COMPILE)
    plan = make_plan(phases, tokens, mean_work, config)
    return replace(plan, split=plan_split(inputs))


def _questions_phase(benchmark: Benchmark) -> str:
    """Return what a plan calls the calls for questions: some metrics need no answer."""
    return "answering" if benchmark.scorer.needs_answer else "recalling"


def _rewrites_memories(
    job: OptimizerJob, program: MemoryProgram, compilation: CompileConfig
) -> bool:
    """Return whether the optimizer may change prompts that write, so memories are written anew."""
    if compilation.optimizer in _OPTIMIZERS_WITH_FIXED_PROMPTS:
        return False
    tunable_names = {name for name, _ in job.student.named_predictors()}
    return bool(tunable_names & program.writer_names())


def _optimizing_phases(
    job: OptimizerJob,
    program: MemoryProgram,
    mean_work: MeanWork,
    bounds: CallBounds,
    rewrites_memories: bool,
    answers: bool,
) -> dict[str, Range]:
    """Return how many calls the optimizer of a compile takes at least and at most, by phase.

    Args:
        job: The questions that the optimizer works with.
        program: The program that it optimizes.
        mean_work: The mean numbers of calls to answer a question and to write an item.
        bounds: How many questions the optimizer has answered, and how many times it has the
            memories of all questions written.
        rewrites_memories: Whether the optimizer may change prompts that write memories.
        answers: Whether the program answers; some metrics only need what is recalled.
    """
    examples = [*job.train, *job.val]

    memory_writings = bounds.memory_writings
    if not rewrites_memories:
        # The prompts that write stay the same, so memories that were written once are used again.
        memory_writings = Range(min(1, memory_writings.low), min(1, memory_writings.high))

    # The estimate of one writing is uncertain. `WRITING_SPREAD` says by which factors.
    calls_per_writing = estimate_writing(program, examples, mean_work).calls
    writing = Range(
        memory_writings.low * calls_per_writing * WRITING_SPREAD.low,
        memory_writings.high * calls_per_writing * WRITING_SPREAD.high,
    )
    answering = _answer_and_recall_calls(bounds, mean_work, answers)
    return {
        f"optimizing on {len(examples)} questions": answering,
        "writing training memories": writing,
        "proposals": bounds.proposals,
    }


def _answer_and_recall_calls(bounds: CallBounds, mean_work: MeanWork, answers: bool) -> Range:
    """Return the calls that the program makes while an optimizer tries it on questions.

    Some questions are answered. Others are only recalled, because their gold answer becomes a demo:
    the demo needs the context that a prompt would show, but no answer of the program. For example,
    if answering takes 4 calls, 3 of them recall, and a question that is only recalled takes 3.
    """
    calls_per_answer = mean_work.answering.calls
    # The last call of answering writes the answer; all calls before it recall.
    calls_per_recall = max(0.0, calls_per_answer - 1) if answers else calls_per_answer

    # A question may be both recalled and answered. Its recall is then paid for once, with the
    # answer. So at least, recalling by itself takes no call.
    recalls = Range(0, bounds.recalls.high)
    return bounds.answers.times(calls_per_answer) + recalls.times(calls_per_recall)


def make_plan(
    phases: Mapping[str, Range], tokens: Range, mean_work: MeanWork, config: RunConfig
) -> Plan:
    """Return the plan of a run whose calls and tokens are known, with its cost and minutes.

    Args:
        phases: Calls by phase.
        tokens: Tokens of all calls.
        mean_work: The share of output tokens, which have another price.
        config: The model, and the number of threads.
    """
    calls = sum(phases.values(), NOTHING)
    # Rounded outwards. High ends are sums of floats, which may lie just above a whole number.
    whole_calls = Range(int(calls.low), int(calls.high + 0.999))
    return Plan(
        calls=whole_calls,
        tokens=tokens,
        usd=_cost(tokens, mean_work.output_share, config),
        minutes=_minutes(whole_calls, config),
        phases=phases,
    )


def _cost(tokens: Range, output_share: float, config: RunConfig) -> Range | None:
    """Return the US dollars of so many tokens; None where the price is not known."""
    prices = token_prices(config.models.task.name)
    if prices is None:
        return None
    return tokens.times(prices.input * (1 - output_share) + prices.output * output_share)


def _minutes(calls: Range, config: RunConfig) -> Range | None:
    """Return how long an endpoint takes for so many calls; None where none is asked."""
    lm = config.models.task.name
    if is_offline(lm) or is_local(lm):
        return None

    # At best all threads make calls all the time. At worst only one thread in `WAITING_THREADS`
    # does, because the calls of one memory wait for one another; at least one thread always does.
    threads = config.execution.threads
    fewest_busy_threads = max(1.0, threads / WAITING_THREADS)
    return Range(
        calls.low * SECONDS_OF_CALL.low / threads / 60,
        calls.high * SECONDS_OF_CALL.high / fewest_busy_threads / 60,
    )


def start_program(target: object, inputs: RunInputs, benchmark: Benchmark) -> MemoryProgram:
    """Return the program that a run begins with, to plan the run.

    A plan costs nothing, so no paid model or embedder is asked.

    Args:
        target: A method, a saved program or an external system, as `Run.program` takes it.
        inputs: The method's settings.
        benchmark: Whose task the program is for.

    Raises:
        UserError: The settings or the task do not fit, or it is not known before the run how many
            calls the target makes.
    """
    is_saved = isinstance(target, str) and program_folder(target) is not None
    if not is_saved:
        if isinstance(target, str) and not can_be_planned(target):
            raise UserError(
                f"{target}: how many calls it makes is not known before it runs;"
                " leave --plan out, and set --max-calls"
            )
        # The offline embedder replaces a paid one: the recalled context has the same size. A saved
        # program brings its own embedder.
        offline_config = inputs.config.with_options(embedder=OFFLINE, embedder_api_base=None)
        inputs = replace(inputs, config=offline_config)

    # This run is not started: it only makes the program, and nothing is written to its folder.
    run = Run(inputs, Meter(), BudgetGuard(), RunFolder(Path()))
    return run.program(target, benchmark, MemoryCache())
