"""An evaluation by several processes, by Ray: each asks questions about some conversations, this one what they leave.

    questions ── by conversation ──> worker: answered, scored ──┐
                                     worker: killed          ───┼── rows ──> journal, meter, guard
                                     here:   what has no row  ──┘

A number of workers starts a Ray of this machine, whose workers share the run's file; an address joins a cluster, which
has the package and the files on every machine at the same path. Every limit is dealt out by questions, and charged in
advance; each worker may overrun its share by one call. What a worker did not spend is the run's again when it ends,
also if it was killed: before each call it says to the ledger what it may have spent then.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..engines.fair_semaphore import IN_FLIGHT
from ..engines.limits import BudgetGuard, Limits
from ..engines.meter import Meter
from ..engines.usage import Usage, UsageReport
from ..errors import EndpointError, MempilerError, ProgramError, UserError
from ..programs.auto_adapter import AutoAdapter
from ..programs.identity import program_digest
from ..programs.program import MemoryProgram
from ..programs.state import PredictorState, dump_predictor, parse_predictor
from ..text import one_line
from .config import Workers
from .scoring import WriteResult, answer_questions, collect_write_results
from .folder import RunFolder
from .inputs import RunInputs
from .ledger import Ledger, LedgerEntry
from .program_address import program_folder
from .reservations import RecordingGuard, Reservations
from .rows import Row
from .run import Run

LEDGER_WAIT = 30.0
"""Seconds for the ledger to say what a worker has spent."""
STORE = 100 << 20
"""Bytes that a Ray of this machine shares between its processes, which send each other little."""

Writes = Mapping[str, WriteResult]
"""How histories were written, by the id of a question about each."""


@dataclass(frozen=True)
class Shard:
    """What a worker needs, to ask some of a run's questions."""

    inputs: RunInputs
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
    number: int
    """The worker's, from 0."""
    ledger: Any
    """The actor of a `Ledger` to which the worker says what it spends; None where there is no limit."""


@dataclass(frozen=True)
class WorkerReply:
    """What a worker has found and used up to now."""

    usage: UsageReport
    row: Row | None = None
    spent: Usage | None = None
    """Told at the end, as what follows."""
    writes: Writes = field(default_factory=dict)
    schemas: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What the adapter "auto" found out."""


def evaluate_remotely(
    run: Run,
    name: str,
    program: MemoryProgram,
    benchmark: Benchmark,
    examples: Sequence[dspy.Example],
    keep: Callable[[Row], None],
) -> Writes:
    """Gives the questions of a run to workers, as far as they come: `evaluate.RemoteEvaluator` for a run and a name."""
    config, meter, guard = run.config, run.meter, run.guard
    workers = config.execution.workers
    # Of a cluster, as many as it has CPUs.
    most = workers if isinstance(workers, int) else int(_connected(workers).cluster_resources().get("CPU", 1))
    parts = split_shards(benchmark, examples, min(max(1, most), config.execution.threads))
    if len(parts) < 2:
        return {}
    limits = [guard.remaining(len(part) / len(examples)) for part in parts]
    ledger = _start_ledger(workers) if guard.has_limits else None
    shards = _make_shards(run, name, program, parts, limits, ledger)
    reservations = Reservations(guard, limits)
    usages = [UsageReport() for _ in shards]
    writes, adapter = dict[str, WriteResult](), dspy.settings.adapter
    try:
        with closing(run_parallel(ask, shards, workers)) as replies:
            for n, reply in replies:
                meter.include(reply.usage - usages[n])
                usages[n] = reply.usage
                if reply.row is not None:
                    keep(reply.row)
                if reply.spent is not None:
                    reservations.settle(n, reply.spent)
                    writes |= reply.writes
                    if isinstance(adapter, AutoAdapter):
                        adapter.add_output_modes(reply.schemas)
    except MempilerError as error:
        guard.stop(error)
        raise
    finally:
        unfinished = reservations.open_workers
        if ledger is not None:
            _close_ledger(ledger, reservations, meter, usages)
    for _ in unfinished:
        told = "a worker ended before it was through; what it left of its questions is asked again"
        logging.getLogger("mempiler.runs.workers").warning(told)
    return writes


def _make_shards(
    run: Run,
    name: str,
    program: MemoryProgram,
    parts: Sequence[Sequence[dspy.Example]],
    limits: Sequence[Limits],
    ledger: Any,
) -> list[Shard]:
    """Return what each worker needs: its questions, and its part of limits, threads and calls in flight."""
    config, folder = run.config, program_folder(name)
    data = config.data.file and str(Path(config.data.file).absolute())
    threads = max(1, config.execution.threads // len(parts))
    # What one process may have in flight, all workers may together; see `Run.start`.
    in_flight = max(IN_FLIGHT, config.execution.threads)
    shared_folder = run.folder.path.absolute() if isinstance(config.execution.workers, int) else None
    states = {path: dump_predictor(predictor) for path, predictor in program.all_predictors().items()}
    return [
        Shard(
            inputs=RunInputs(config.with_options(data=data, threads=threads)),
            name=name if folder is None else str(folder.absolute()),
            states=states,
            identity=program_digest(program),
            questions=tuple(str(example.id) for example in part),
            limits=limits[number],
            in_flight=max(1, in_flight // len(parts)),
            folder=shared_folder,
            number=number,
            ledger=ledger,
        )
        for number, part in enumerate(parts)
    ]


def _close_ledger(ledger: Any, reservations: Reservations, meter: Meter, usages: Sequence[UsageReport]) -> None:
    """Count what workers that ended early have spent by their last entries, and end the ledger.

    What nobody knows of a worker stays reserved: its part of the limits may be spent.

    Args:
        ledger: The actor that has the entries.
        reservations: Hold the parts of those workers.
        meter: Counts the calls that they have not told of.
        usages: What each worker has told of.
    """
    import ray  # pyright: ignore[reportMissingImports]
    from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]

    if not ray.is_initialized():
        return
    for worker in reservations.open_workers:
        try:
            entry: LedgerEntry | None = ray.get(ledger.last_entry.remote(worker), timeout=LEDGER_WAIT)
        except RayError:
            continue
        if entry is None:
            reservations.settle(worker, Usage())
            continue
        reservations.settle(worker, entry.reserved_usage)
        untold = entry.metered_usage - usages[worker]
        if untold.calls.total() > 0:
            # Its answers to questions that are asked again are counted there.
            meter.include(replace(untold, cached=0, answers=Counter(), faults=Counter()))
    ray.kill(ledger)


def split_shards(benchmark: Benchmark, examples: Sequence[dspy.Example], parts: int) -> list[list[dspy.Example]]:
    """Questions in at most so many parts of about the same size; those about one conversation are in one part."""
    groups: dict[str, list[dspy.Example]] = {}
    for example in examples:
        groups.setdefault(benchmark.group(example), []).append(example)
    split_shards: list[list[dspy.Example]] = [[] for _ in range(min(parts, len(groups)))]
    for group in sorted(groups.values(), key=len, reverse=True):
        min(split_shards, key=len).extend(group)
    return split_shards


def ask(shard: Shard) -> Generator[WorkerReply]:
    """Asks the questions of a shard, and tells what was found and used, row by row: what a worker does."""
    meter = Meter()
    guard = _guard_of(shard, meter)
    with _folder(shard) as folder:
        run = Run(shard.inputs, meter, guard, folder)
        program, benchmark = run.load_target(shard.name)
        for name, predictor in program.all_predictors().items():
            parse_predictor(predictor, shard.states[name], name).assign_to(predictor)
        if program_digest(program) != shard.identity:
            raise ProgramError(f"{shard.name}: is another program here than where the run was started")
        asked = set(shard.questions)
        examples = [example for example in benchmark.examples if str(example.id) in asked]
        adapter = run.adapter(shard.inputs.config.method.adapter or program.adapter)
        with dspy.context(lm=run.model(), adapter=adapter, warn_on_type_mismatch=False):
            with closing(
                answer_questions(program, benchmark, benchmark.interleave(examples), shard.inputs.config.execution.threads)
            ) as rows:
                for row in rows:
                    if isinstance(row, Row):
                        yield WorkerReply(meter.read(), row)
            first = {program.history_of(example): str(example.id) for example in reversed(examples)}
            writes = {first[history]: each for history, each in collect_write_results(program, list(first)).items()}
            schemas = adapter.output_modes() if isinstance(adapter, AutoAdapter) else {}
            yield WorkerReply(meter.read(), spent=guard.spent(), writes=writes, schemas=schemas)


@contextmanager
def _folder(shard: Shard) -> Generator[RunFolder]:
    if shard.folder is not None:
        yield RunFolder(shard.folder)
        return
    with tempfile.TemporaryDirectory(prefix="mempiler-shard-") as path:
        found = RunFolder(Path(path))
        found.write({"settings": {}})
        yield found


def _guard_of(shard: Shard, meter: Meter) -> BudgetGuard:
    """The guard of a worker; where there is a ledger, it says before each call what may have been spent then."""
    ledger = shard.ledger
    if ledger is None:
        return BudgetGuard(shard.limits, shard.in_flight)

    import ray  # pyright: ignore[reportMissingImports]
    from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]

    def record(number: int, spent: Usage) -> None:
        entry = LedgerEntry(number, spent, meter.read())
        try:
            ray.get(ledger.record.remote(shard.number, entry))
        except RayError as error:
            # A call that nobody knows of might be paid twice.
            stop = EndpointError(f"the process that keeps the budget of the workers is gone: {type(error).__name__}")
            guard.stop(stop)
            raise stop from error

    guard = RecordingGuard(shard.limits, shard.in_flight, record)
    return guard


def run_parallel(
    work: Callable[[Any], Iterator[Any]], given: Sequence[Any], workers: Workers
) -> Generator[tuple[int, Any]]:
    """Does pieces of work at the same time, each in a process of its own; closing it ends them.

    A piece that fails without one of our errors, or is killed, tells no more.

    Yields:
        The number of a piece, and what it told.

    Raises:
        UserError: A piece cannot be sent to another process.
        MempilerError: A piece raised it; the others have come to their end, since what they had begun is paid.
    """
    ray = _connected(workers)
    task = ray.remote(num_cpus=1, max_retries=0, max_calls=1, num_returns="streaming")(_telling)
    try:
        streams = {task.remote(work, each): n for n, each in enumerate(given)}
    except TypeError as error:
        # Ray's own message quotes the whole piece.
        reason = one_line(error.__cause__ or error, 100)
        raise UserError(
            f"--workers: a model or metric of your own cannot be sent to another process ({reason}); "
            "name a model that is behind an endpoint, or leave workers out"
        ) from error
    failed = None
    try:
        while streams:
            for stream in ray.wait(list(streams), num_returns=1)[0]:
                try:
                    what = ray.get(next(stream))
                except (StopIteration, ray.exceptions.RayError) as error:
                    del streams[stream]
                    cause = getattr(error, "cause", None)
                    failed = failed or (cause if isinstance(cause, MempilerError) else None)
                    continue
                yield streams[stream], what
        if failed is not None:
            raise failed
    finally:
        for stream in streams:
            # Ray ends this whole process if it is told to cancel what is completing.
            if not ray.wait([stream.completed()], timeout=0)[0]:
                ray.cancel(stream, force=True)


def _telling(work: Callable[[Any], Iterator[Any]], given: Any) -> Iterator[Any]:
    try:
        yield from work(given)
    except MempilerError as error:
        # Those that make their own message cannot be sent.
        kind: Any = type(error) if type(error).__init__ is MempilerError.__init__ else UserError
        raise kind(str(error)) from None


def _start_ledger(workers: Workers) -> Any:
    """Start the process in which workers say what they spend; it takes no CPU from them."""
    return _connected(workers).remote(num_cpus=0)(Ledger).remote()


def _connected(workers: Workers) -> Any:
    """Ray, connected; where this process has connected it already, as that is."""
    import ray  # pyright: ignore[reportMissingImports]

    if ray.is_initialized():
        return ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if isinstance(workers, int):
        ray.init("local", num_cpus=workers, object_store_memory=STORE, include_dashboard=False, **quiet)
        return ray
    try:
        if workers != "auto":
            # Ray itself would try for minutes.
            host, _, port = workers.rpartition(":")
            socket.create_connection((host, int(port)), timeout=5).close()
        ray.init(workers, **quiet)
    except (OSError, ValueError) as error:
        raise UserError(f"--workers {workers}: no Ray cluster answers there: {str(error).splitlines()[0]}") from error
    return ray
