"""An evaluation by several workers: each asks the questions about some conversations, this process what they leave.

    questions ── by conversation ──> worker: answered, scored ──┐
                                     worker: killed          ───┼── rows ──> journal, meter, guard
                                     here:   what has no row  ──┘

Every limit is dealt out by questions, and charged in advance; each worker may overrun its share by one call. Workers of
this machine share the run's file. Those of a cluster keep their answers and memories for themselves, until they end.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import dspy

from ..data.benchmark import Benchmark
from ..engines.endpoint.lanes import IN_FLIGHT
from ..engines.guard import Guard, Limits
from ..engines.meter import Meter, Usage
from ..engines.spending import Spending
from ..errors import MempilerError, ProgramError
from ..programs.adapter import AutoAdapter
from ..programs.program import MemoryProgram
from ..programs.state import PredictorState, dump_predictor, load_predictor, parse_predictor
from .evaluate import Written, answered, written
from .folder import RunFolder
from .registry import program_folder
from .rows import Row
from .runtime import Runtime
from .setup import Setup
from .workers import count_of, run_parallel

_log = logging.getLogger("mempiler.runs.shards")

Writes = Mapping[str, Written]
"""How histories were written, by the id of a question about each."""


@dataclass(frozen=True)
class Shard:
    """What a worker needs, to ask some of a run's questions."""

    setup: Setup
    name: str
    states: Mapping[str, PredictorState]
    """Of the program's predictors, by name."""
    identity: str
    """Digest of the program: a worker whose own differs asks nothing."""
    questions: tuple[str, ...]
    limits: Limits
    in_flight: int
    folder: Path | None
    """The run's; None where the worker is to keep what it finds for itself."""


@dataclass(frozen=True)
class Told:
    """What a worker has found and used up to now."""

    usage: Usage
    row: Row | None = None
    spent: Spending | None = None
    """Told at the end, with `writes`."""
    writes: Writes = field(default_factory=dict)
    schemas: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Told at the end: what the adapter "auto" found out."""


def share(
    runtime: Runtime,
    name: str,
    program: MemoryProgram,
    benchmark: Benchmark,
    examples: Sequence[dspy.Example],
    keep: Callable[[Row], None],
) -> Writes:
    """Gives the questions of a run to workers, as far as they come: `evaluate.Elsewhere` for a run and a name."""
    setup, meter, guard, folder = runtime.setup, runtime.meter, runtime.guard, program_folder(name)
    parts = dealt(benchmark, examples, min(count_of(setup.workers), setup.threads))
    if len(parts) < 2:
        return {}
    data, threads = setup.data and str(Path(setup.data).absolute()), max(1, setup.threads // len(parts))
    shards = [
        Shard(
            replace(setup, data=data, threads=threads),
            name if folder is None else str(folder.absolute()),
            {path: dump_predictor(predictor) for path, predictor in program.all_predictors().items()},
            program.identities.of_program(program),
            tuple(str(example.id) for example in part),
            guard.left(len(part) / len(examples)),
            max(1, IN_FLIGHT // len(parts)),
            runtime.folder.path.absolute() if isinstance(setup.workers, int) else None,
        )
        for part in parts
    ]
    reserved, last = [_whole(shard.limits) for shard in shards], [Told(Usage()) for _ in shards]
    for each in reserved:
        guard.charge(each)
    writes, adapter = dict[str, Written](), dspy.settings.adapter
    try:
        with closing(run_parallel(ask, [(shard,) for shard in shards], setup.workers)) as found:
            for n, told in found:
                meter.include(told.usage - last[n].usage)
                last[n] = told
                if told.row is not None:
                    keep(told.row)
                if told.spent is not None:
                    guard.charge(told.spent - reserved[n])
                    writes |= told.writes
                    if isinstance(adapter, AutoAdapter):
                        adapter.endpoints.include(told.schemas)
    except MempilerError as error:
        guard.stop(error)
        raise
    for _ in (each for each in last if each.spent is None):
        _log.warning("a worker ended before it was through; what it left of its questions is asked again")
    return writes


def dealt(benchmark: Benchmark, examples: Sequence[dspy.Example], parts: int) -> list[list[dspy.Example]]:
    """Questions in at most so many parts of about the same size; those about one conversation are in one part."""
    groups: dict[str, list[dspy.Example]] = {}
    for example in examples:
        groups.setdefault(benchmark.group(example), []).append(example)
    dealt: list[list[dspy.Example]] = [[] for _ in range(min(parts, len(groups)))]
    for group in sorted(groups.values(), key=len, reverse=True):
        min(dealt, key=len).extend(group)
    return dealt


def ask(shard: Shard) -> Generator[Told]:
    """Asks the questions of a shard, and tells what was found and used, row by row: what a worker does."""
    meter, guard = Meter(), Guard(shard.limits, shard.in_flight)
    with _folder(shard) as folder:
        runtime = Runtime(shard.setup, meter, guard, folder)
        benchmark = runtime.judged(shard.setup.load())
        program = runtime.program(shard.name, benchmark)
        for name, predictor in program.all_predictors().items():
            load_predictor(predictor, parse_predictor(predictor, shard.states[name], name))
        if program.identities.of_program(program) != shard.identity:
            raise ProgramError(f"{shard.name}: is another program here than where the run was started")
        benchmark = runtime.company(benchmark, program)
        asked = set(shard.questions)
        examples = [example for example in benchmark.examples if str(example.id) in asked]
        adapter = runtime.adapter(shard.setup.adapter or program.adapter)
        with dspy.context(lm=runtime.model(), adapter=adapter, warn_on_type_mismatch=False):
            with closing(answered(program, benchmark, benchmark.interleave(examples), shard.setup.threads)) as rows:
                for row in rows:
                    if isinstance(row, Row):
                        yield Told(meter.read(), row)
            first = {example.history: str(example.id) for example in reversed(examples)}
            writes = {first[history]: each for history, each in written(program, list(first)).items()}
            schemas = adapter.endpoints.found() if isinstance(adapter, AutoAdapter) else {}
            yield Told(meter.read(), spent=guard.spent(), writes=writes, schemas=schemas)


@contextmanager
def _folder(shard: Shard) -> Generator[RunFolder]:
    if shard.folder is not None:
        yield RunFolder(shard.folder)
        return
    with tempfile.TemporaryDirectory(prefix="mempiler-shard-") as path:
        found = RunFolder(Path(path))
        found.write({"settings": {}})
        yield found


def _whole(limits: Limits) -> Spending:
    """What is spent where limits are reached; nothing of those that are none."""
    calls, minutes = limits.max_calls or 0, limits.max_minutes or 0
    return Spending(calls, limits.max_tokens or 0, cost=limits.max_usd or 0.0, seconds=60 * minutes)
