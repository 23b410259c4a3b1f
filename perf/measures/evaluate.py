"""Part "evaluate": what surrounds the calls of a model in an evaluation, beside DSPy.

The model is a stub that answers after a fixed time and uses no CPU, so whatever is above the ideal
is our machinery. Rows in "ms" are CPU of one question or one call. Rows in "ideal/wall" are the
share of the ideal: the time in which nothing but the calls would take place, divided by the time
that passed. 1 is perfect.
"""

from __future__ import annotations

import gc
import math
import tempfile
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import dspy
from mempiler import Store, build
from mempiler.data.locomo import Locomo
from mempiler.engines.embedders import embedder
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.memory.store.owner import Owner
from mempiler.programs.cache import MemoryCache
from mempiler.programs.program import MemoryProgram
from mempiler.runs.run_store import RunStore
from mempiler.runs.scoring import score_questions
from mempiler.serving.memories.memories import Memories
from mempiler.serving.worker.writers import write_all_queued
from mempiler.signatures.answering import AnswerFromContext

from measures.clock import Times, measure_times
from measures.http_calls import measure_http_calls
from measures.scripted import ScriptedEngine, guard_of_a_run, scripted_model, use_model
from measures.table import Aim, Peer, Result, Row

ROUNDS = 3
WRITING_LATENCY = 0.2
"""Seconds of a call where users' sessions are written."""
CALLS_IN_FLIGHT = 128
"""How many calls the model of a service has in flight at most."""
QUESTION_BOTTLENECK = "a third is DSPy's call, a fifth the search"
CONTEXT = (
    "The garden behind the old house was full of apples in that year, and she told him so twice. "
)


@dataclass(frozen=True)
class EvaluationSize:
    """An evaluation whose share of the ideal is measured."""

    latency: float
    """Seconds of a call."""
    threads: int
    questions: int
    aim: float


EVALUATIONS = (
    EvaluationSize(latency=0.2, threads=32, questions=640, aim=0.92),
    EvaluationSize(latency=0.2, threads=128, questions=1280, aim=0.8),
    EvaluationSize(latency=1.0, threads=128, questions=1280, aim=0.95),
    EvaluationSize(latency=1.0, threads=512, questions=5120, aim=0.85),
)


def rows() -> list[Row]:
    """Declare the rows of this part."""
    part = [Row("evaluate: a question", "turn-rag", question_cpu, Aim(1.6))]
    for size in EVALUATIONS:
        part.append(
            Row(
                f"evaluate, calls of {size.latency:g} s: share of ideal",
                f"{size.threads} threads",
                partial(evaluation_share, size),
                Aim(size.aim, larger_is_better=True),
                unit="ideal/wall",
            )
        )
    part.append(
        Row(
            "two sessions each: wall by that of one user",
            "40 users",
            partial(write_many_users, 40),
            Aim(1.3),
            unit="x",
        )
    )
    return part + _http_rows()


def _http_rows() -> list[Row]:
    part: list[Row] = []
    work = "call over HTTP, 100 ms"
    aim = Aim(1, times_peer="dspy.LM")
    for threads in (1, 8, 32, 128):
        part.append(Row(work, f"{threads} threads", partial(http_call_cpu, threads), aim))
    gathered = partial(http_call_cpu, 128, use_threads=False)
    part.append(Row(work, "128 gathered", gathered, aim))

    for threads, limit in ((128, 0.95), (512, 0.85)):
        part.append(
            Row(
                "call over HTTP, 1 s: share of ideal",
                f"{threads} threads",
                partial(http_call_share, threads),
                Aim(limit, larger_is_better=True),
                unit="ideal/wall",
            )
        )
    return part


def question_cpu() -> Result:
    """Measure the CPU of a question, in milliseconds."""
    costs = _measure_evaluation(threads=1, questions=300, latency=0.0)
    peer = Peer("dspy.Evaluate, CPU ms", 1000 * costs.dspy.cpu / 300)
    return Result(1000 * costs.ours.cpu / 300, [peer], bottleneck=QUESTION_BOTTLENECK)


def evaluation_share(size: EvaluationSize) -> Result:
    """Measure the share of the ideal of an evaluation."""
    costs = _measure_evaluation(size.threads, size.questions, size.latency)
    ideal = size.latency * math.ceil(size.questions / size.threads)
    bottleneck = (
        f"one interpreter: {costs.ours.cpu:.1f} s of CPU within {ideal:.1f} s of waiting; "
        f"{QUESTION_BOTTLENECK}"
    )
    peer = Peer("dspy.Evaluate", ideal / costs.dspy.wall)
    return Result(ideal / costs.ours.wall, [peer], bottleneck=bottleneck)


def write_many_users(users: int) -> Result:
    """Measure how much longer so many users' queued sessions take than one user's."""
    # Imports and fills caches.
    _write_queued(1, 0.0)

    one_user = [_write_queued(1, WRITING_LATENCY) for _ in range(ROUNDS)]
    all_users = [_write_queued(users, WRITING_LATENCY) for _ in range(ROUNDS)]
    one_user_wall = median(written.times.wall for written in one_user)
    wall = median(written.times.wall for written in all_users)
    cpu = median(written.times.cpu for written in all_users)
    calls = median(written.model_calls for written in all_users)

    least_wall = WRITING_LATENCY * calls / CALLS_IN_FLIGHT
    return Result(
        wall / one_user_wall,
        remark=f"one user {one_user_wall:.2f} s",
        bottleneck=(
            f"{calls:.0f} calls at {CALLS_IN_FLIGHT} in flight take {least_wall:.1f} s; "
            f"{cpu:.1f} s of CPU"
        ),
    )


def http_call_cpu(callers: int, use_threads: bool = True) -> Result:
    """Measure the CPU of a call over HTTP that takes 100 ms, in milliseconds."""
    costs = measure_http_calls(callers, latency=0.1, use_threads=use_threads)
    return Result(
        costs.ours.cpu_ms,
        [Peer("dspy.LM", costs.dspy_lm.cpu_ms)],
        remark=(f"of ideal {costs.ours.ideal_share:.2f}, dspy.LM {costs.dspy_lm.ideal_share:.2f}"),
    )


def http_call_share(callers: int) -> Result:
    """Measure the share of the ideal of calls over HTTP that take a second."""
    costs = measure_http_calls(callers, latency=1.0)
    return Result(
        costs.ours.ideal_share,
        remark=(
            f"dspy.LM {costs.dspy_lm.ideal_share:.2f}; "
            f"CPU of a call of ours {costs.ours.cpu_ms:.2f} ms"
        ),
    )


@dataclass(frozen=True)
class _EvaluationTimes:
    """Medians of the times of the same evaluation, ours and DSPy's."""

    ours: Times
    dspy: Times


@cache
def _measure_evaluation(threads: int, questions: int, latency: float) -> _EvaluationTimes:
    """Measure an evaluation of turn RAG, and one of `dspy.Evaluate` with prompts of equal length.

    Args:
        threads: How many questions are asked at the same time.
        questions: How many there are.
        latency: Seconds of a call.
    """
    ours: list[Times] = []
    theirs: list[Times] = []
    # Import and compile what is first needed in an evaluation.
    _evaluate(4, 100, 0.0)
    _evaluate_by_dspy(4, 8, 0.0)
    for _ in range(ROUNDS):
        ours.append(_evaluate(threads, questions, latency))
        theirs.append(_evaluate_by_dspy(threads, questions, latency))
    return _EvaluationTimes(_median_times(ours), _median_times(theirs))


def _median_times(rounds: list[Times]) -> Times:
    return Times(
        wall=median(times.wall for times in rounds),
        cpu=median(times.cpu for times in rounds),
    )


def _evaluate(threads: int, questions: int, latency: float) -> Times:
    """Time the questions of an evaluation with the store of a run; its memories are there."""
    benchmark = _benchmark_of_size(questions)
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder) / "run.sqlite")
        metering = Metering(answers=store.answers, guard=guard_of_a_run(threads))
        lm = scripted_model(ScriptedEngine(latency), metering)
        with use_model(lm):
            program = build("turn-rag", embedder=embedder(), cache=MemoryCache(store.memories))
            _prepare_memories(program, benchmark)
            # A full collection takes 150 ms here. Without this, it falls into one run of three.
            gc.collect()
            times = measure_times(
                partial(
                    score_questions,
                    program,
                    benchmark,
                    benchmark.examples,
                    lm.meter,
                    threads,
                    journal=store.rows,
                )
            )
        store.close()
    return times


def _benchmark_of_size(questions: int) -> Locomo:
    """Repeat the questions of LoCoMo's bundled sample until there are so many, each different.

    Equal questions would be one call: the store of the run knows the answer the second time.
    """
    sample = Locomo.load()
    examples: list[dspy.Example] = []
    for n in range(questions):
        example = sample.examples[n % len(sample.examples)]
        changed = example.copy(id=str(n), question=f"{example.question} ({n})")
        examples.append(changed.with_inputs(*example.inputs().keys()))
    return Locomo(examples, sample.source)


def _prepare_memories(program: MemoryProgram, benchmark: Locomo) -> None:
    """Write the memories of all conversations, and build their indexes."""
    reader: Any = program.method.reader
    histories = dict.fromkeys(example.history for example in benchmark.examples)
    for history in histories:
        reader.search(program.remember(history).memory, ["anything"])


def _evaluate_by_dspy(threads: int, questions: int, latency: float) -> Times:
    """Time the same prompt by `dspy.Evaluate`, without memory, store and meter."""
    examples: list[dspy.Example] = []
    for n in range(questions):
        example = dspy.Example(
            context=CONTEXT * 10, question=f"When was that ({n})?", answer="on Monday"
        )
        examples.append(example.with_inputs("context", "question"))

    evaluate = dspy.Evaluate(
        devset=examples,
        metric=_exact_match,
        num_threads=threads,
        display_progress=False,
    )
    engine: Any = ScriptedEngine(latency)
    with use_model(dspy.LM("scripted/free", engine=engine, cache=False, temperature=0.0)):
        return measure_times(lambda: evaluate(dspy.Predict(AnswerFromContext)))


def _exact_match(example: dspy.Example, prediction: dspy.Prediction, trace: object = None) -> float:
    return float(example.answer == prediction.answer)


@dataclass(frozen=True)
class _WrittenQueues:
    """What writing queued sessions took."""

    times: Times
    model_calls: int


def _write_queued(users: int, latency: float) -> _WrittenQueues:
    """Write two queued sessions of each of so many users with Memory-R2."""
    sessions = Locomo.load().examples[0].history.items[:2]
    engine = ScriptedEngine(latency, max_facts=1)
    lm: MeteredLM = scripted_model(engine)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "memories.sqlite") as store:
        for user in range(users):
            for session in sessions:
                store.items.add(Owner(f"user {user}"), session)

        memories = Memories(build("memory-r2", embedder=embedder()), store, lm)
        with use_model(lm):
            times = measure_times(partial(write_all_queued, memories))
        if any(status.queued for status in store.users.list_all()):
            raise RuntimeError("sessions are still queued")
    return _WrittenQueues(times, engine.calls)
