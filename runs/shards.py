"""An evaluation by several workers: each asks the questions about some conversations, this process what they leave.

    questions ── by conversation ──> worker: answered, scored ──┐
                                     worker: killed          ───┼── rows ──> journal, meter, guard
                                     here:   what has no row  ──┘

A conversation belongs to one worker, so its memory is written once. Rows are those of an evaluation without workers,
and are filed here, so a resumed run asks none of them again. Every limit is dealt out by questions, and charged in
advance; each worker may overrun its share by one call. What it gives back is left for this process, which asks what
workers left: one whose share was spent, or one that was killed, whose share counts as spent.

Workers of this machine share the run's file, so that a memory is written once for all scorings of a run. Those of a
cluster keep their answers and memories for themselves, until they end.
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
from ..programs.auto_adapter import AutoAdapter
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

PULSE = 1.0
"""Seconds without a row after which a worker tells how far it is."""
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
    items: int
    """Items of histories that were written."""
    row: Row | None = None
    spent: Spending | None = None
    """Told at the end, with `writes`."""
    writes: Writes = field(default_factory=dict)
    schemas: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Told at the end: what the adapter "auto" found out."""


@dataclass(frozen=True)
class Sharing:
    """Gives the questions of a run to workers.

    Args:
        runtime: The run's.
        name: The method or saved program that is scored, or that an optimizer started from.
    """

    runtime: Runtime
    name: str

    def __call__(
        self,
        program: MemoryProgram,
        benchmark: Benchmark,
        examples: Sequence[dspy.Example],
        keep: Callable[[Row], None],
        heard: Callable[[int], None] = lambda more: None,
    ) -> Writes:
        """Asks questions in workers, as far as they come.

        Args:
            program: What is scored; its prompts are sent to the workers.
            benchmark: Whose questions these are.
            examples: The questions.
            keep: Takes each row as it comes.
            heard: Told how many items of histories were written since it last was.

        Raises:
            EndpointError: The model's endpoint is unreachable.
            UserError: It refuses the key.
        """
        setup, meter, guard = self.runtime.setup, self.runtime.meter, self.runtime.guard
        parts = dealt(benchmark, examples, min(count_of(setup.workers), setup.threads))
        if len(parts) < 2:
            return {}
        shards = [self._shard(program, part, len(part) / len(examples), len(parts)) for part in parts]
        reserved, last = [_whole(shard.limits) for shard in shards], [Told(Usage(), 0) for _ in shards]
        for each in reserved:
            guard.charge(each)
        writes, adapter = dict[str, Written](), dspy.settings.adapter
        try:
            with closing(run_parallel(ask, [(shard,) for shard in shards], setup.workers)) as found:
                for n, told in found:
                    meter.include(told.usage - last[n].usage)
                    heard(told.items - last[n].items)
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

    def _shard(self, program: MemoryProgram, part: Sequence[dspy.Example], share: float, workers: int) -> Shard:
        setup, folder = self.runtime.setup, program_folder(self.name)
        data = setup.data and str(Path(setup.data).absolute())
        return Shard(
            replace(setup, data=data, threads=max(1, setup.threads // workers)),
            self.name if folder is None else str(folder.absolute()),
            {name: dump_predictor(predictor) for name, predictor in program.all_predictors().items()},
            program.identities.of_program(program),
            tuple(str(example.id) for example in part),
            self.runtime.guard.left(share),
            max(1, IN_FLIGHT // workers),
            self.runtime.folder.path.absolute() if isinstance(setup.workers, int) else None,
        )


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
    """Asks the questions of a shard: what a worker does.

    Yields:
        What was found and used, row by row.

    Raises:
        EndpointError: The model's endpoint is unreachable.
        UserError: It refuses the key.
    """
    meter, guard, items = Meter(), Guard(shard.limits, shard.in_flight), list[None]()
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
            given = program, benchmark, benchmark.interleave(examples), shard.setup.threads
            with program.cache.telling(lambda: items.append(None)), closing(answered(*given, PULSE)) as rows:
                for row in rows:
                    if not isinstance(row, str):
                        yield Told(meter.read(), len(items), row)
            first = {example.history: str(example.id) for example in reversed(examples)}
            writes = {first[history]: each for history, each in written(program, list(first)).items()}
            schemas = adapter.endpoints.found() if isinstance(adapter, AutoAdapter) else {}
            yield Told(meter.read(), len(items), spent=guard.spent(), writes=writes, schemas=schemas)


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
