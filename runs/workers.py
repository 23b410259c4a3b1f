"""An evaluation that several processes share, by Ray.

Each worker asks the questions about some conversations. This process asks those that they leave:

    questions -- by conversation --> worker: answered, scored --+
                                     worker: killed           --+-- rows --> journal, meter, guard
                                     here:   what has no row  --+

Workers on this machine share the folder of the run; workers of a cluster each have their own.

Every limit of the run is divided among the workers by their questions, and counts as spent until a
worker ends; each worker may overrun its part by one call. What a worker did not spend then goes
back to the run, even if the worker was killed: before each call it records in the ledger what it
may have spent then.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import dspy

from ..data.benchmark import Benchmark
from ..engines.fair_semaphore import IN_FLIGHT
from ..engines.limits import BudgetGuard, Limits
from ..engines.meter import Meter
from ..engines.usage import Usage, UsageReport
from ..errors import EndpointError, MempilerError, ProgramError
from ..programs.auto_adapter import AutoAdapter
from ..programs.identity import program_digest
from ..programs.program import MemoryProgram
from ..programs.state import PredictorState, dump_predictor, parse_predictor
from ..records import History
from .config import Workers
from .folder import RunFolder
from .inputs import RunInputs
from .ledger import LedgerEntry
from .program_address import program_folder
from .ray_tasks import connect_ray, run_in_processes
from .remote_ledger import RemoteLedger
from .reservations import RecordingGuard, Reservations
from .rows import Row
from .run import Run
from .scoring import answer_questions
from .write_results import WriteResult, collect_write_results

WriteResults = Mapping[str, WriteResult]
"""How histories were written, by the id of a question about each."""


@dataclass(frozen=True)
class Shard:
    """The questions of one worker, with all that it needs to ask them."""

    inputs: RunInputs
    target: str
    """The name or folder of the program."""
    states: Mapping[str, PredictorState]
    """The states of the program's predictors, by name."""
    digest: str
    """Digest of the program; a worker that loads a program with another digest asks nothing."""
    question_ids: tuple[str, ...]
    limits: Limits
    in_flight: int
    """Most calls in flight at one endpoint."""
    folder: Path | None
    """The folder of the run; None if the worker cannot share it, and keeps rows for itself."""
    worker: int
    """The number of the worker, from 0."""
    ledger: RemoteLedger | None
    """Where the worker records what it spends; None if the run has no limit."""


@dataclass(frozen=True)
class WorkerEnd:
    """What a worker sends when it has asked its questions."""

    spent: Usage
    """What it has spent of its part of the limits."""
    write_results: WriteResults = field(default_factory=dict[str, WriteResult])
    output_modes: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]]
    )
    """What the adapter "auto" has learned about endpoints."""


@dataclass(frozen=True)
class WorkerReply:
    """What a worker sends after every row, and once more at its end."""

    usage: UsageReport
    """What the worker has used up to now."""
    row: Row | None = None
    end: WorkerEnd | None = None


def evaluate_remotely(
    run: Run,
    target: str,
    program: MemoryProgram,
    benchmark: Benchmark,
    examples: Sequence[dspy.Example],
    on_row: Callable[[Row], None],
) -> WriteResults:
    """Ask the questions of a run in its workers, as far as they get.

    This is a `scoring.RemoteEvaluator`, if the first two arguments are bound.

    Args:
        run: The run.
        target: The name or folder from which workers load the program.
        program: What answers.
        benchmark: The benchmark, whose metric scores.
        examples: The questions.
        on_row: Receives each row as it comes.

    Returns:
        How histories were written, by the id of a question about each.
    """
    workers = run.config.execution.workers
    num_workers = min(_max_workers(workers), run.config.execution.threads)
    parts = split_by_conversation(benchmark, examples, num_workers)
    if len(parts) < 2:
        return {}

    limits = [run.guard.remaining(len(part) / len(examples)) for part in parts]
    ledger = RemoteLedger.start(workers) if run.guard.has_limits else None
    shards = _make_shards(run, target, program, parts, limits, ledger)
    reservations = Reservations(run.guard, limits)
    usages = [UsageReport() for _ in shards]
    write_results: dict[str, WriteResult] = {}
    adapter = dspy.settings.adapter
    try:
        with closing(run_in_processes(answer_shard, shards, workers)) as outputs:
            for output in outputs:
                reply = output.value
                run.meter.include(reply.usage - usages[output.number])
                usages[output.number] = reply.usage
                if reply.row is not None:
                    on_row(reply.row)
                if reply.end is not None:
                    reservations.settle(output.number, reply.end.spent)
                    write_results.update(reply.end.write_results)
                    if isinstance(adapter, AutoAdapter):
                        adapter.add_output_modes(reply.end.output_modes)
    except MempilerError as error:
        run.guard.stop(error)
        raise
    finally:
        unfinished = reservations.open_workers
        if ledger is not None and ledger.is_connected:
            _settle_unfinished(ledger, reservations, run.meter, usages)
            ledger.end()

    for _ in unfinished:
        logging.getLogger("mempiler.runs.workers").warning(
            "a worker ended before it was through; what it left of its questions is asked again"
        )
    return write_results


def _max_workers(workers: Workers) -> int:
    """Return how many workers may run: of a cluster, as many as it has CPUs."""
    if isinstance(workers, int):
        return max(1, workers)
    return max(1, int(connect_ray(workers).cluster_resources().get("CPU", 1)))


def _make_shards(
    run: Run,
    target: str,
    program: MemoryProgram,
    parts: Sequence[Sequence[dspy.Example]],
    limits: Sequence[Limits],
    ledger: RemoteLedger | None,
) -> list[Shard]:
    """Return the shards of the workers, which share limits, threads and calls in flight.

    Paths are made absolute, because workers have another working directory.
    """
    config = run.config
    data_file = config.data.file
    if data_file:
        data_file = str(Path(data_file).absolute())
    folder_of_program = program_folder(target)
    if folder_of_program is not None:
        target = str(folder_of_program.absolute())

    shared_folder: Path | None = None
    if isinstance(config.execution.workers, int):
        shared_folder = run.folder.path.absolute()

    # All workers together may have in flight what one process may; see `Run.start`.
    in_flight = max(IN_FLIGHT, config.execution.threads)
    threads = max(1, config.execution.threads // len(parts))
    # Models and questions that the caller made go to the workers too.
    inputs = replace(run.inputs, config=config.with_options(data=data_file, threads=threads))
    digest = program_digest(program)
    states: dict[str, PredictorState] = {}
    for name, predictor in program.all_predictors().items():
        states[name] = dump_predictor(predictor)

    shards: list[Shard] = []
    for worker, part in enumerate(parts):
        shard = Shard(
            inputs=inputs,
            target=target,
            states=states,
            digest=digest,
            question_ids=tuple(str(example.id) for example in part),
            limits=limits[worker],
            in_flight=max(1, in_flight // len(parts)),
            folder=shared_folder,
            worker=worker,
            ledger=ledger,
        )
        shards.append(shard)
    return shards


def _settle_unfinished(
    ledger: RemoteLedger,
    reservations: Reservations,
    meter: Meter,
    usages: Sequence[UsageReport],
) -> None:
    """Settle the parts of the budget of workers that ended early, e.g. because they were killed.

    Such a worker has not reported what it spent, but its last entry in the ledger says it. There
    are two accounts. The guard, which keeps the limits, is charged with the most that the worker
    can have spent; the rest of its part of the budget goes back to the run. The meter, which makes
    the run's report, counts the calls that the worker is known to have made.

    Args:
        ledger: Has the entries.
        reservations: The parts of the limits that these workers hold.
        meter: The meter of the run.
        usages: What each worker has reported up to now, and the meter has counted.
    """
    for worker in reservations.open_workers:
        try:
            entry = ledger.last_entry(worker)
        except EndpointError:
            # The ledger cannot be read. The whole part may be spent, so it stays charged.
            continue
        if entry is None:
            # A worker makes an entry before its first call, so this one has spent nothing.
            reservations.settle(worker, Usage())
            continue

        reservations.settle(worker, entry.reserved_usage)
        unreported = entry.metered_usage - usages[worker]
        if unreported.calls.total() > 0:
            # The questions of these calls have no row, so they are asked again: by this process, or
            # when the run is resumed. What is counted for each question, such as the outcomes of
            # its answers, is counted then. Only the calls and their cost are past.
            meter.include(replace(unreported, cached=0, answers=Counter(), faults=Counter()))


def split_by_conversation(
    benchmark: Benchmark, examples: Sequence[dspy.Example], max_parts: int
) -> list[list[dspy.Example]]:
    """Divide questions into parts of about the same size.

    All questions about one conversation are in one part.
    """
    groups: dict[str, list[dspy.Example]] = {}
    for example in examples:
        groups.setdefault(benchmark.group(example), []).append(example)

    parts: list[list[dspy.Example]] = [[] for _ in range(min(max_parts, len(groups)))]
    for group in sorted(groups.values(), key=len, reverse=True):
        smallest_part = min(parts, key=len)
        smallest_part.extend(group)
    return parts


def answer_shard(shard: Shard) -> Generator[WorkerReply]:
    """Do the work of one worker: ask the questions of its shard, and yield the rows as they come.

    The last reply has no row. It says what the worker has spent and learned.

    Raises:
        ProgramError: The program that is loaded here is not the one of the run.
    """
    meter = Meter()
    guard = _make_guard(shard, meter)
    execution = shard.inputs.config.execution
    with _worker_folder(shard) as folder:
        run = Run(shard.inputs, meter, guard, folder)
        program, benchmark = _load_program(run, shard)
        question_ids = set(shard.question_ids)
        examples = [example for example in benchmark.examples if str(example.id) in question_ids]
        adapter = run.adapter(shard.inputs.config.method.adapter or program.adapter)

        with dspy.context(lm=run.model(), adapter=adapter, warn_on_type_mismatch=False):
            ordered = benchmark.interleave(examples)
            outcomes = answer_questions(program, benchmark, ordered, execution.threads)
            with closing(outcomes):
                for outcome in outcomes:
                    # The process of the run sees which questions have no row, and asks them itself
                    # if its limits allow.
                    if isinstance(outcome, Row):
                        yield WorkerReply(meter.read(), outcome)

            reads_entries = not benchmark.scorer.needs_answer
            write_results = _write_results(program, examples, reads_entries)
            output_modes = adapter.output_modes() if isinstance(adapter, AutoAdapter) else {}
            end = WorkerEnd(guard.spent(), write_results, output_modes)
            yield WorkerReply(meter.read(), end=end)


def _load_program(run: Run, shard: Shard) -> tuple[MemoryProgram, Benchmark]:
    """Return the program of a shard, with the states of its predictors, and the benchmark."""
    program, benchmark = run.load_target(shard.target)
    for name, predictor in program.all_predictors().items():
        parse_predictor(predictor, shard.states[name], name).assign_to(predictor)
    if program_digest(program) != shard.digest:
        raise ProgramError(
            f"{shard.target}: is another program here than where the run was started"
        )
    return program, benchmark


def _write_results(
    program: MemoryProgram, examples: Sequence[dspy.Example], reads_entries: bool
) -> WriteResults:
    """Return how the histories of questions were written.

    A history is named by the id of the first question about it.

    Args:
        program: The program that remembers.
        examples: The questions.
        reads_entries: Whether the results say what the memories hold.
    """
    first_question_ids: dict[History, str] = {}
    for example in examples:
        first_question_ids.setdefault(program.history_of(example), str(example.id))
    results = collect_write_results(program, list(first_question_ids), reads_entries)
    return {first_question_ids[history]: result for history, result in results.items()}


@contextmanager
def _worker_folder(shard: Shard) -> Generator[RunFolder]:
    """Yield the folder of the run if the worker shares it, or else a temporary folder."""
    if shard.folder is not None:
        yield RunFolder(shard.folder)
        return
    # The answers and memories of the worker need a folder that has the record of a run.
    with tempfile.TemporaryDirectory(prefix="mempiler-shard-") as path:
        folder = RunFolder(Path(path))
        folder.write({"settings": {}})
        yield folder


def _make_guard(shard: Shard, meter: Meter) -> BudgetGuard:
    """Return the guard of a worker. If there is a ledger, it makes an entry there before each call.

    Args:
        shard: The limits of the worker, and the ledger.
        meter: Counts the calls of the worker.
    """
    ledger = shard.ledger
    if ledger is None:
        return BudgetGuard(shard.limits, shard.in_flight)

    def record_call(call_number: int, most_usage: Usage) -> None:
        """Make an entry in the ledger. `RecordingGuard` calls this before each call of a model.

        If the ledger cannot be reached, the worker is stopped and the call is not made.

        Args:
            call_number: The number of the call.
            most_usage: The most that the worker has spent when this call, and all others that it
                has begun, have ended.
        """
        # If the worker is killed, the budget is charged with `most_usage`. What the meter has
        # counted is smaller: only calls that have ended.
        entry = LedgerEntry(call_number, reserved_usage=most_usage, metered_usage=meter.read())
        try:
            ledger.record(shard.worker, entry)
        except EndpointError as error:
            # If the worker were killed now, a call without an entry would be paid, but not charged.
            guard.stop(error)
            raise

    # The guard calls `record_call`, which in turn stops the guard if it fails.
    guard = RecordingGuard(shard.limits, shard.in_flight, record_call)
    return guard
