"""`--plan`: estimates LM calls, tokens, cost and minutes of a run before any paid call.

The start program runs on a few questions under the offline engine, which shows how many calls a question and an item
take, and how long their prompts are; an optimizer's `call_bounds` says how many questions it asks at least and at most.
Corrections, retries and judges are not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import dspy

from ..data.benchmark import Benchmark
from ..engines.limits import BudgetGuard
from ..engines.lm import language_model
from ..engines.local.memory_plan import (
    COLOCATED_SHARE,
    GIGABYTE,
    HALF_BYTES,
    DeviceUse,
    TrainingMemory,
    reader_gigabytes,
    vllm_use,
)
from ..engines.local.model_shape import model_shape
from ..engines.local.processes import started_processes
from ..engines.local.settings import Reinforcement
from ..engines.meter import Meter
from ..engines.model_names import LOCAL, OFFLINE, is_local, is_offline
from ..engines.prices import token_prices
from ..engines.usage import Usage
from ..errors import UserError
from ..optimizers.compile import CompileConfig, plan_job
from ..optimizers.call_bounds import NOTHING, Range
from ..optimizers.logo_grpo.journal import FILE
from ..optimizers.logo_grpo.policy import questions_by_history
from ..optimizers.logo_grpo.settings import TrainingSettings
from ..optimizers.logo_grpo.training_config import TINY, TrainingConfig
from ..programs.adapter import adapter as make_adapter
from ..programs.cache import MemoryCache
from ..programs.program import MemoryProgram
from ..records import History, read_json
from .config import RunConfig
from .evaluate import Part, chosen_examples
from .external import can_be_planned
from .folder import RunFolder
from .inputs import RunInputs
from .program_address import program_folder
from .results_folder import results_folder
from .run import Run
from .split_plan import SplitPlan, plan_split

SAMPLED_ITEMS = 3
"""Items of a history that are written to measure what writing takes."""
SAMPLED_QUESTIONS = 8
SECONDS = Range(0.4, 5)
"""An endpoint's answer to a call."""
SHORTEST = 8
"""Tokens of the shortest completion that a writing predictor's answer is expected to be."""


@dataclass(frozen=True)
class Plan:
    """Ranges for a whole run."""

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
    """Memory on each GPU, of a training of a model whose shape is known."""

    def __add__(self, other: Plan) -> Plan:
        """Both as one, without phases; what is not known of either is not known, unless it asks nothing."""

        def both(name: str) -> Range | None:
            parts = [getattr(each, name) for each in (self, other) if each.calls.high]
            return None if None in parts else sum(parts, NOTHING)

        total = Plan(self.calls + other.calls, self.tokens + other.tokens, both("usd"), both("minutes"))
        return replace(total, devices=_largest((*self.devices, *other.devices)))

    def summary(self) -> dict[str, Any]:
        """Plain JSON."""

        def pair(range: Range | None) -> dict[str, float] | None:
            return None if range is None else {"low": round(range.low, 4), "high": round(range.high, 4)}

        phases = {name: pair(range) for name, range in self.phases.items()}
        totals = {name: pair(getattr(self, name)) for name in ("calls", "tokens", "usd", "minutes")}
        split = {} if self.split is None else {"split": self.split.summary()}
        devices = {"devices": [device.summary() for device in self.devices]} if self.devices else {}
        return {**totals, "phases": phases, **split, **devices}


def _largest(devices: Iterable[DeviceUse]) -> tuple[DeviceUse, ...]:
    """Return of each role the use that takes the most: of several trainings one runs at a time."""
    largest: dict[str, DeviceUse] = {}
    for device in devices:
        known = largest.get(device.role)
        if known is None or device.total > known.total:
            largest[device.role] = device
    return tuple(largest.values())


def plan_evaluate(name: Any, inputs: RunInputs, part: Part = "all") -> Plan:
    """The plan of an evaluation."""
    benchmark = inputs.benchmark
    examples = chosen_examples(inputs, part)
    program = start_program(name, inputs, benchmark)
    size = _measured(program, benchmark, examples)
    questions, writing = len(examples), _writing(program, examples, size)
    phases = {
        "answering": Range(1, 1).times(questions * size.read_calls),
        "writing memories": Range(0.8, 1.25).times(writing.calls),
    }
    tokens = Range(0.7, 1.4).times(questions * size.read_tokens + writing.tokens)
    return _plan(phases, tokens, size, inputs.config)


def plan_compile(method: Any, inputs: RunInputs, how: CompileConfig) -> Plan:
    """The plan of a compile: scoring before and after, and the optimizer between; checks the optimizer's needs, too."""
    config = inputs.config
    benchmark = inputs.benchmark_for_compiling()
    split = inputs.split()
    program = start_program(method, inputs, benchmark)
    with dspy.context(lm=language_model()):
        how = replace(how, seed=config.data.seed, threads=config.execution.threads)
        job = plan_job(program, benchmark, split.train, how)
    size = _measured(program, benchmark, split.train, conversing=False)
    visible = {name for name, _ in job.student.named_predictors()}
    bounds = how.make_optimizer().call_bounds(job)
    if bounds is None:
        raise UserError(f"{how.optimizer}: what it takes is not known before; leave --plan out, and set --max-calls")
    # Whether the optimizer may change writing prompts, so that memories are written anew.
    rewrites = bool(visible & program.writer_names()) and how.optimizer not in ("labeled", "knn")
    learned, held = [*job.train, *job.val], _writing(program, [*split.dev, *split.test], size).calls
    written = bounds.memory_writings
    if not rewrites:
        written = Range(min(1, written.low), min(1, written.high))
    before = (len(split.dev) + len(split.test)) * size.read_calls
    phases = {
        "scoring before": Range(before + held * 0.8, before + held * 1.25),
        # Of the calls that a question takes, recalling takes all but the answer; of tried questions it is known then.
        f"optimizing on {len(learned)} questions": bounds.answers.times(size.read_calls)
        + Range(0, bounds.recalls.high).times(max(0.0, size.read_calls - 1)),
        "writing training memories": Range(written.low * 0.8, written.high * 1.25).times(
            _writing(program, learned, size).calls
        ),
        "proposals": bounds.proposals,
        # On dev and test, whether the result is kept or refused.
        "scoring after": Range(before, before + (held * 1.25 if rewrites else 0.0)),
    }
    calls = sum(phases.values(), NOTHING)
    # Demos make prompts longer: up to four times, as measured with 16 demos.
    tokens = Range(calls.low * size.each * 0.7, calls.high * size.each * 4)
    return replace(_plan(phases, tokens, size, config), split=plan_split(inputs))


def plan_train(method: Any, inputs: RunInputs, training: TrainingConfig) -> Plan:
    """The plan of a training: its steps and validations, and the test questions before and after.

    A budget of tokens says how many completions there can be, not how long they are. Hours follow from the completions
    a second of the last training of this model that is kept here, cost from the course's `usd_per_hour`.
    """
    config = inputs.config
    benchmark = inputs.benchmark
    split = inputs.split()
    program, settings = start_program(method, inputs, benchmark), training.training(0)
    size = _measured(program, benchmark, split.train)
    scored = _written(program, split.test, size)
    checked = _written(program, split.dev, size).times(1 + settings.samples)
    steps, calls = _steps(settings, training.answer_tokens, split.train, size)
    stages = len(settings.curriculum.horizons)
    checks = Range(1, steps.high // settings.validate_every + stages + 1)
    validated = Range(checked.low * checks.low, checked.high * checks.high)
    phases = {"scoring before": scored, "training": calls, "validating": validated, "scoring after": scored}
    calls = sum(phases.values(), NOTHING)
    tokens = Range(calls.low * size.each * 0.5, calls.high * size.each * 2)
    found = replace(
        _plan(phases, tokens, size, config), split=plan_split(inputs), devices=_devices(config, training, size)
    )
    rate = trained_rate(config.models.task.name)
    if rate is None:
        return found
    seconds = found.calls.times(1 / rate)
    usd = found.usd if training.usd_per_hour is None else seconds.times(training.usd_per_hour / 3600)
    return replace(found, minutes=seconds.times(1 / 60), usd=usd)


def _devices(config: RunConfig, training: TrainingConfig, size: _Size) -> tuple[DeviceUse, ...]:
    """Return the memory that a training takes on each GPU, with that of the servers which it asks."""
    lm = config.models.task.name
    shape = model_shape(lm.removeprefix(LOCAL)) if is_local(lm) and lm != TINY else None
    if shape is None:
        return ()
    trainer = Reinforcement.parse(training.trainer_settings)
    asks_vllm = bool(trainer.trl.get("use_vllm"))
    # As TRL has it where nothing is said.
    is_colocated = asks_vllm and trainer.trl.get("vllm_mode", "colocate") == "colocate"
    training_memory = TrainingMemory(
        shape,
        gpus=training.train_gpus or started_processes(),
        sharded=bool(trainer.trl.get("fsdp")),
        rows=trainer.micro_batch_size,
        tokens=_longest_row(training, size),
        lora=training.lora,
        has_reference=trainer.beta > 0,
        is_checkpointed=trainer.gradient_checkpointing,
        colocated=float(trainer.trl.get("vllm_gpu_memory_utilization", COLOCATED_SHARE)) if is_colocated else 0.0,
        capacity=training.gpu_memory,
    )
    devices = [training_memory.use()]
    if asks_vllm and not is_colocated:
        weights = shape.parameters * HALF_BYTES / GIGABYTE
        devices.append(vllm_use("sampling", training.sampling_gpus or 1, weights, training.gpu_memory))
    if training.answer_lm and training.reader_gpus:
        weights = reader_gigabytes(training.answer_lm)
        share = None if weights is None else weights / training.reader_gpus
        devices.append(vllm_use("answers for rewards", training.reader_gpus, share, training.gpu_memory))
    return tuple(devices)


def _longest_row(config: TrainingConfig, size: _Size) -> int:
    """Return the tokens of a long prompt with its completion: twice a mean call, and as much as may be answered."""
    mean = size.write_tokens / size.write_calls if size.write_calls else 0.0
    return int(2 * mean) + config.answer_tokens


def trained_rate(lm: str) -> float | None:
    """Completions a second, steps and all, of the last training of a model whose journal is kept here."""
    for path in sorted(results_folder().glob(f"*/training/{FILE}"), reverse=True):
        if RunFolder(path.parent.parent).read()["settings"].get("lm") != lm:
            continue
        rows = [row for row in read_json(path)["rows"] if "completions" in row]
        seconds = sum(row["seconds"] for row in rows)
        if seconds:
            return sum(row["completions"] for row in rows) / seconds
    return None


def _steps(
    settings: TrainingSettings, answer_tokens: int, train: Sequence[dspy.Example], size: _Size
) -> tuple[Range, Range]:
    asked = list(questions_by_history(train).items())
    longest, curriculum = max(len(history) for history, _ in asked), settings.curriculum
    drawn = min(settings.histories, len(asked))
    questions = min(settings.reward.questions, max(len(found) for _, found in asked))
    stages = curriculum.stages(longest)
    steps_by_stage = [curriculum.steps_of(stage) for stage in range(len(stages))]
    steps = float("inf") if None in steps_by_stage else float(sum(count or 0 for count in steps_by_stage))

    # Calls of a mean step: stages weigh by their steps, or, where a budget of tokens ends them, alike.
    writes = reads = 0.0
    for horizon, stage_steps in zip(stages, steps_by_stage, strict=True):
        share = 1 / len(stages) if stage_steps is None else stage_steps / steps
        rollouts, reruns = drawn * settings.num_rollouts, 0.0
        if settings.objective != "grpo":
            reruns = drawn * horizon * settings.local_fraction * settings.local_n
        writes += (rollouts * horizon + reruns) * size.write_calls * share
        writes += (rollouts + reruns) * size.settle_calls * share
        reads += (rollouts + reruns) * questions * size.read_calls * share

    low = high = steps
    if curriculum.tokens is not None:
        # A completion has at least so many tokens, and at most as many as it may; the last step overruns its stage.
        low = min(low, curriculum.tokens / answer_tokens / writes)
        high = min(high, curriculum.tokens / SHORTEST / writes + len(stages))
    return Range(low, high), Range(low * writes * 0.5, high * (writes * 1.5 + reads))


def _written(program: MemoryProgram, examples: Sequence[dspy.Example], size: _Size) -> Range:
    reads, writes = len(examples) * size.read_calls, _writing(program, examples, size).calls
    return Range(reads + writes * 0.5, reads + writes * 1.5)


def start_program(name: Any, inputs: RunInputs, benchmark: Benchmark) -> MemoryProgram:
    """A method's program or a saved one as a run begins with it.

    Raises:
        UserError: The settings or the task do not fit.
    """
    is_saved = isinstance(name, str) and program_folder(name) is not None
    if not is_saved:
        if isinstance(name, str) and not can_be_planned(name):
            raise UserError(f"{name}: what it takes is not known before; leave --plan out, and set --max-calls")
        # The offline embedder replaces a paid one: the recalled context has the same size.
        offline_config = inputs.config.with_options(embedder=OFFLINE, embedder_api_base=None)
        inputs = replace(inputs, config=offline_config)
    return Run(inputs, Meter(), BudgetGuard(), RunFolder(Path())).program(name, benchmark, MemoryCache())


@dataclass(frozen=True)
class _Size:
    read_calls: float
    read_tokens: float
    """Tokens, in and out, of answering one question."""
    output_share: float
    """Share of output tokens."""
    write_calls: float
    write_tokens: float
    """Tokens of writing one item."""
    settle_calls: float
    settle_tokens: float
    """Tokens of settling one history."""

    @property
    def each(self) -> float:
        calls = self.read_calls + self.write_calls + self.settle_calls
        tokens = self.read_tokens + self.write_tokens + self.settle_tokens
        return tokens / max(1.0, calls)


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
        nodes = {id: probe.remember(history) for id, history in short.items()}
        written = meter.read()
        for example in chosen:
            id = example.history.id
            probe(**{**example.inputs(), "history": short[id]}, remembered=nodes[id])
        read = meter.read() - written
    items, histories = sum(map(len, short.values())) or 1, len(nodes) or 1
    # A node without an item is that of settling, as practice on all records does.
    settled = sum((node.usage for node in nodes.values() if node.item is None), Usage())
    written_calls = max(0, sum(written.calls.values()) - settled.calls)
    written_tokens = max(0, written.input_tokens + written.output_tokens - settled.tokens)
    calls, tokens = sum(read.calls.values()), read.input_tokens + read.output_tokens
    asked = max(1, len(chosen))
    size = _Size(
        read_calls=calls / asked,
        read_tokens=tokens / asked,
        output_share=read.output_tokens / max(1, tokens),
        write_calls=written_calls / items,
        write_tokens=written_tokens / items,
        settle_calls=settled.calls / histories,
        settle_tokens=settled.tokens / histories,
    )
    if benchmark.interaction is None or not conversing:
        return size
    # Two assistants reply, and the user writes before each reply.
    turns = 2 * benchmark.interaction.replies
    return replace(size, read_calls=turns * (size.read_calls + 1), read_tokens=2 * turns * size.read_tokens)


def _plan(phases: Mapping[str, Range], tokens: Range, size: _Size, config: RunConfig) -> Plan:
    calls, prices = sum(phases.values(), NOTHING), token_prices(config.models.task.name)
    each = 0.0 if prices is None else prices[0] * (1 - size.output_share) + prices[1] * size.output_share
    usd = None if prices is None else tokens.times(each)
    calls = Range(int(calls.low), int(calls.high + 0.999))
    minutes = None
    if not (is_offline(config.models.task.name) or is_local(config.models.task.name)):
        # All threads are busy at best, and at worst one in four: calls of one memory wait for one another.
        minutes = Range(calls.low * SECONDS.low, calls.high * SECONDS.high * min(4, config.execution.threads))
        minutes = minutes.times(1 / (60 * config.execution.threads))
    return Plan(calls, tokens, usd, minutes, phases)


class _Writing(NamedTuple):
    """What writing the memories of some questions takes."""

    calls: float
    tokens: float


def _writing(program: MemoryProgram, examples: Sequence[dspy.Example], size: _Size) -> _Writing:
    items = _items(program, examples)
    settled = len({program.history_of(example) for example in examples})
    calls = items * size.write_calls + settled * size.settle_calls
    return _Writing(calls, items * size.write_tokens + settled * size.settle_tokens)


def _items(program: MemoryProgram, examples: Sequence[dspy.Example]) -> int:
    """Count the items that are written: those of every history, and those since its end that questions have written."""
    histories = {example.history for example in examples}
    known = {prefix for history in histories for prefix in history.prefixes}
    extended = {program.history_of(example) for example in examples}
    since = {prefix for history in extended for prefix in history.prefixes} - known
    return sum(map(len, histories)) + len(since)
