"""Running a program over questions: many threads, every failure a row, nothing lost.

DSPy's `Evaluate` keeps no error text, resubmits stragglers and knows no categories; this runner keeps one `Row` per
question. Questions are interleaved by conversation, so that threads do not all wait for one memory.

Example:
    >>> with dspy.context(lm=lm):
    ...     evaluation = evaluate(program, benchmark, split.test, meter=lm.meter, threads=32)
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import dspy
from dspy.utils.exceptions import AdapterParseError, LMAuthError, LMError

from ..data.benchmark import Benchmark
from ..data.text_metrics import evidence_recall
from ..engines.meter import Meter
from ..engines.models import is_offline
from ..errors import EndpointError, RecollectError, UserError
from ..programs.program import MemoryProgram
from ..records import Failure
from .results import RECALL_AT, Evaluation, Row, counts_of

DEAD_AFTER = 5
"""So many endpoint failures in a row stop the run."""

Progress = Callable[[int, int], None]
"""Called after every question with the number done and the number of all."""


def evaluate(
    program: MemoryProgram,
    benchmark: Benchmark,
    examples: Sequence[dspy.Example],
    meter: Meter,
    threads: int = 8,
    progress: Progress | None = None,
) -> Evaluation:
    """Answers and scores questions under the LM of the current context.

    Args:
        program: What answers.
        benchmark: Whose metric scores.
        examples: The questions.
        meter: Where the LM's calls are counted.
        threads: Questions in flight.
        progress: Told after every question.

    Returns:
        One row per question, in the order of `examples`.

    Raises:
        EndpointError: The model's endpoint is dead: `DEAD_AFTER` questions in a row could not reach it.
        UserError: The endpoint refuses the key.
    """
    before, started = meter.read(), time.perf_counter()
    health = _Health()
    order = benchmark.interleave(examples)
    with dspy.context(trace=None, disable_history=True), ThreadPoolExecutor(max(1, threads)) as pool:
        futures = {
            pool.submit(contextvars.copy_context().run, _row, program, benchmark, example, health): n
            for n, example in enumerate(order)
        }
        rows: dict[int, Row] = {}
        try:
            for future in as_completed(futures):
                rows[futures[future]] = future.result()
                if progress:
                    progress(len(rows), len(order))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        write_failures = _write_failures(program, order)
    lm = dspy.settings.lm
    name = "offline" if is_offline(lm.model) else lm.model
    embedder = program.method.embedder
    return Evaluation(
        program=program.name,
        benchmark=benchmark.name,
        lm=name,
        embedder=embedder.name if embedder else None,
        comparable=not benchmark.source.sample and name != "offline",
        rows=tuple(rows[n] for n in range(len(order))),
        write_failures=write_failures,
        seconds=time.perf_counter() - started,
        names=dict(benchmark.category_names),
        **counts_of(meter.read() - before),
    )


class _Health:
    """Counts endpoint failures in a row over all threads, and says when the endpoint is dead."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed = 0

    def worked(self) -> None:
        with self._lock:
            self._failed = 0

    def failed(self, error: Exception) -> None:
        if isinstance(error, LMAuthError):
            raise UserError(f"the model's endpoint refuses the key: {one_line(error)}") from error
        with self._lock:
            self._failed += 1
            dead = self._failed >= DEAD_AFTER
        if dead:
            raise EndpointError(
                f"the model's endpoint failed {DEAD_AFTER} times in a row, stopped: {one_line(error)}"
            ) from error


def _row(program: MemoryProgram, benchmark: Benchmark, example: dspy.Example, health: _Health) -> Row:
    started = time.perf_counter()
    prediction, failure = dspy.Prediction(answer=""), None
    try:
        prediction = program(**example.inputs())
        health.worked()
    except RecollectError:
        raise
    except AdapterParseError as error:
        health.worked()
        failure = Failure(kind="parse", where=str(example.id), message=one_line(error))
    except LMError as error:
        health.failed(error)
        failure = Failure(kind="endpoint", where=str(example.id), message=one_line(error))
    except Exception as error:
        failure = Failure(kind="error", where=str(example.id), message=f"{type(error).__name__}: {one_line(error)}")
    score = None if failure else benchmark.score(example, prediction)
    context = prediction.get("context")
    return Row(
        id=str(example.id),
        group=benchmark.group(example),
        category=benchmark.category(example),
        counts=benchmark.counts(example),
        question=str(example.get("question") or ""),
        gold=str(example.get("answer") or ""),
        answer=str(prediction.get("answer") or ""),
        score=score.value if score else 0.0,
        parts=dict(score.parts) if score else {},
        recall={} if failure else _recall(program, example),
        sources=context.sources if context else (),
        seconds=time.perf_counter() - started,
        failure=failure,
    )


def _recall(program: MemoryProgram, example: dspy.Example) -> dict[str, float]:
    """Evidence recall of the memory's plain search, which needs no LM."""
    if not example.focus:
        return {}
    memory = program.remember(example.history).memory
    query = program.task.query(**{name: example[name] for name in program.task.inputs})
    hits = program.method.search(memory, [query], max(RECALL_AT))[0]
    ranked = [hit.sources for hit in hits]
    found = {f"recall@{k}": evidence_recall(example.focus, ranked, k) for k in RECALL_AT}
    return {name: value for name, value in found.items() if value is not None}


def _write_failures(program: MemoryProgram, examples: Sequence[dspy.Example]) -> int:
    """Failed writes over the distinct histories; every memory is in the cache by now."""
    failures = 0
    for history in {example.history for example in examples}:
        try:
            failures += sum(len(node.failures) for node in program.remember(history).chain())
        except Exception:
            continue  # its questions have failed, and are counted as such
    return failures


def one_line(error: BaseException) -> str:
    """The message of an error on one line, cut to a length that fits a table."""
    return " ".join(str(error).split())[:300]
