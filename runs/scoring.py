"""Answer and score questions with a program, many at a time: `score_questions`.

    with dspy.context(lm=lm):
        evaluation = score_questions(program, benchmark, benchmark.examples, lm.meter)

Every question becomes a `Row`, even if it fails. Questions are interleaved by conversation, so that
threads do not all wait for one memory. A run scores its questions by an `Evaluator`
(`evaluate.py`), which adds the run's limits, journal and workers.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import dspy

from ..data.benchmark import Benchmark
from ..data.scorer import Score
from ..engines.call_context import measure_usage
from ..engines.meter import Meter
from ..engines.model_names import display_name, is_offline
from ..engines.usage import Usage
from ..errors import BudgetError, EndpointError, MempilerError
from ..memory.memory import Memory
from ..programs.call_recorder import CallRecorder, PredictorCall
from ..programs.identity import program_digest
from ..programs.program import MemoryProgram
from ..programs.recording import failure_of, recording
from ..programs.threads import run_unordered
from ..records import Context, Failure, estimate_tokens
from .config import MAX_FAILURE_RATE
from .entry_ids import EntryIdCheck, duplicate_hit_id
from .evidence import evidence_in_prompts, measure_recall, search_depth
from .metered_usage import metered_usage
from .question_trace import Clock, make_question_trace
from .results import Evaluation
from .rows import Row
from .write_precision import write_precision
from .write_results import WriteResult, total_write_results

if TYPE_CHECKING:
    from .row_table import RowTable

Progress = Callable[[int, int], None]
"""Called after every question, or written item, with how many are done and how many there are."""


class RemoteEvaluator(Protocol):
    """Asks questions in other processes (`workers.evaluate_remotely`)."""

    def __call__(
        self,
        program: MemoryProgram,
        benchmark: Benchmark,
        examples: Sequence[dspy.Example],
        on_row: Callable[[Row], None],
    ) -> Mapping[str, WriteResult]:
        """Ask questions; some may be left over, e.g. if a process was killed.

        Args:
            program: What answers.
            benchmark: The benchmark, whose metric scores.
            examples: The questions.
            on_row: Receives each row as it comes.

        Returns:
            How histories were written, by the id of a question about each.
        """
        ...


@dataclass(frozen=True)
class NotAsked:
    """A question that was not asked, because a limit of the run was reached."""

    reason: str
    """E.g. "budget reached: max-calls 100"."""


def no_writing_progress() -> Progress | None:
    """Return no callback: nobody watches how memories are written."""
    return None


def score_questions(
    program: MemoryProgram,
    benchmark: Benchmark,
    examples: Sequence[dspy.Example],
    meter: Meter,
    threads: int = 8,
    *,
    progress: Progress | None = None,
    journal: RowTable | None = None,
    phase: str = "",
    max_failure_rate: float = MAX_FAILURE_RATE,
    remote: RemoteEvaluator | None = None,
    writing_progress: Callable[[], Progress | None] = no_writing_progress,
) -> Evaluation:
    """Answer and score questions under the LM of the current context.

    Args:
        program: What answers.
        benchmark: The benchmark, whose metric scores.
        examples: The questions.
        meter: Counts the calls of the LM.
        threads: How many questions are in flight.
        progress: Called after every question.
        journal: The rows of a run that may be resumed. Questions with a row are not asked again.
        phase: What the rows are filed under, beside the program's own digest.
        max_failure_rate: The run is broken if a larger share fails: of questions, of predictor
            calls, or of the sessions that a store is given.
        remote: Asks questions in other processes; what it leaves is asked here.
        writing_progress: Called if memories are to be written. What it returns is called after
            every item of a history.

    Raises:
        EndpointError: The model's endpoint is unreachable, or answered none of the questions.
        UserError: The endpoint refuses the key.
    """
    started = time.perf_counter()
    usage_before = meter.read()
    lm = dspy.settings.lm
    ordered = benchmark.interleave(examples)
    scope = _journal_scope(program, phase)

    rows_by_id: dict[str, Row] = {}
    if journal:
        rows_by_id = journal.answered_rows(scope, [str(example.id) for example in ordered])
    open_questions = [example for example in ordered if str(example.id) not in rows_by_id]

    def keep(row: Row) -> None:
        rows_by_id[row.id] = row
        if journal:
            journal.put(scope, row)
        if progress:
            progress(len(rows_by_id), len(ordered))

    remote_results: Mapping[str, WriteResult] = {}
    if remote and open_questions:
        remote_results = remote(program, benchmark, open_questions, keep)

    # Questions that no worker has answered are asked here.
    remaining = [example for example in open_questions if str(example.id) not in rows_by_id]
    stopped: str | None = None
    outcomes = answer_questions(program, benchmark, remaining, threads)
    with _show_writing(program, remaining, writing_progress), closing(outcomes):
        for outcome in outcomes:
            if isinstance(outcome, NotAsked):
                stopped = outcome.reason
            else:
                keep(outcome)

    new_rows = _rows_of(open_questions, rows_by_id)
    _check_endpoint_answered(new_rows)
    asks_for_answers = benchmark.scorer.needs_answer
    reads_entries = not asks_for_answers
    writes = total_write_results(
        program, ordered, remote_results, benchmark.group, reads_entries=reads_entries
    )
    rows = tuple(_rows_of(examples, rows_by_id))
    aggregate = benchmark.scorer.aggregate(rows)
    if reads_entries:
        aggregate |= write_precision(ordered, rows_by_id, writes.entries)
    embedder = program.method.embedder
    return Evaluation(
        program=program.name,
        benchmark=benchmark.name,
        lm=display_name(lm.model),
        embedder=embedder.name if embedder else None,
        judge=_judge_name(benchmark),
        comparable=not benchmark.source.sample and not is_offline(lm.model),
        rows=rows,
        aggregate=dict(aggregate),
        confusion=benchmark.scorer.confusion(rows),
        asks_for_answers=asks_for_answers,
        stopped=stopped,
        write_failures=len(writes.failures),
        store_writes=writes.store_writes,
        failed_writes=writes.failures,
        construction=writes.usage,
        writing_tokens=dict(writes.tokens_by_group),
        histories=writes.num_histories,
        memory_words=writes.mean_words,
        operations=dict(writes.operations),
        seconds=time.perf_counter() - started,
        names=dict(benchmark.categories),
        expected=benchmark.expected_categories,
        max_failure_rate=max_failure_rate,
        **metered_usage(meter.read() - usage_before),
    )


def _journal_scope(program: MemoryProgram, phase: str) -> str:
    """Return what rows are filed under: the phase, the program, and the model that answers."""
    lm = dspy.settings.lm
    # The same program with other weights counts as another program.
    weights = getattr(getattr(lm, "engine", None), "weights_version", "")
    return f"{phase}:{program_digest(program)}:{getattr(lm, 'model', '')}:{weights}"


def _rows_of(examples: Sequence[dspy.Example], rows_by_id: Mapping[str, Row]) -> list[Row]:
    """Return the rows of examples in their order, without those that were not answered."""
    rows: list[Row] = []
    for example in examples:
        row = rows_by_id.get(str(example.id))
        if row is not None:
            rows.append(row)
    return rows


def _check_endpoint_answered(rows: Sequence[Row]) -> None:
    """Raise an EndpointError if the model's endpoint answered no question: there is no score.

    The guard of a run notices this too, but not if there are only a few questions.
    """
    failures: list[Failure] = []
    for row in rows:
        if row.failure is not None and row.failure.kind in ("endpoint", "refused"):
            failures.append(row.failure)
    if rows and len(failures) == len(rows):
        count = f"answered none of {len(rows)} questions"
        raise EndpointError(f"the model's endpoint {count}: {failures[-1].message}")


def _judge_name(benchmark: Benchmark) -> str | None:
    """Return the model and the prompt hash of the judge; None if the metric needs no judge."""
    scorer = benchmark.scorer
    if not scorer.required_judges:
        return None
    lm = next((getattr(judge, "lm", None) for judge in scorer.judges.values()), None)
    return f"{getattr(lm, 'model', 'unnamed')} (prompt {str(scorer.judge_hash)[:12]})"


@contextmanager
def _show_writing(
    program: MemoryProgram,
    examples: Sequence[dspy.Example],
    writing_progress: Callable[[], Progress | None],
) -> Generator[None]:
    """Report how many items of the examples' histories are written while the block runs.

    Items that are in memory already are not counted.

    Args:
        program: The program that writes.
        examples: The questions whose histories are written.
        writing_progress: Called if items are missing, and not otherwise. What it returns is called
            with the numbers of written and of missing items; None if nobody watches.
    """
    histories = [program.history_of(example) for example in examples]
    num_missing = program.count_missing(histories)
    progress: Progress | None = None
    if num_missing:
        progress = writing_progress()
    if progress is None:
        yield
        return

    # Threads write at the same time. Each takes the next number of this counter, which is safe.
    write_numbers = itertools.count(1)
    progress(0, num_missing)

    def on_write() -> None:
        # Other programs with the same cache may write too, such as the rival in a conversation.
        num_written = min(next(write_numbers), num_missing)
        progress(num_written, num_missing)

    previous = program.cache.on_write
    program.cache.on_write = on_write
    try:
        yield
    finally:
        program.cache.on_write = previous


def answer_questions(
    program: MemoryProgram, benchmark: Benchmark, examples: Sequence[dspy.Example], threads: int
) -> Generator[Row | NotAsked]:
    """Answer and score questions at the same time, and yield the outcomes as they come.

    Threads answer them, or tasks if the caller is bridged to asyncio; see `run_unordered`.

    Raises:
        EndpointError: The model's endpoint is unreachable.
        UserError: It refuses the key.
    """
    if not benchmark.scorer.needs_answer:
        program = program.recalling_only()
    entry_ids = EntryIdCheck(program)
    calls: list[Callable[[], Row | NotAsked]] = []
    for example in examples:
        calls.append(partial(_answer_question, program, benchmark, example, entry_ids))
    yield from run_unordered(calls, max(1, threads))


def _answer_question(
    program: MemoryProgram,
    benchmark: Benchmark,
    example: dspy.Example,
    entry_ids: EntryIdCheck,
) -> Row | NotAsked:
    """Answer and score one question; return its row, or why it was not asked."""
    depth = search_depth(benchmark, example)
    with (
        # DSPy would keep all calls of the run in its trace and history, which nobody reads here.
        dspy.context(trace=None, disable_history=True),
        recording(keep_completions=True, ranking_depth=depth) as recorder,
    ):
        attempt = _Attempt(program, benchmark, example, recorder)
        try:
            attempt.answer_and_score(entry_ids)
            attempt.measure_recall()
        except BudgetError as error:
            return NotAsked(str(error))

    # The calls of the recording are in order when it has ended, so the row is made afterwards.
    return attempt.row()


class _Attempt:
    """The attempt to answer one question, whose results are kept even if a later step fails.

    Call `answer_and_score`, then `measure_recall`, and `row` after the recording has ended.

    Args:
        program: What answers.
        benchmark: The benchmark, whose metric scores.
        example: The question.
        recorder: The recording around the attempt.
    """

    def __init__(
        self,
        program: MemoryProgram,
        benchmark: Benchmark,
        example: dspy.Example,
        recorder: CallRecorder,
    ) -> None:
        self._program = program
        self._benchmark = benchmark
        self._example = example
        self._recorder = recorder
        self._clock = Clock()
        self._memory: Memory | None = None
        self._prediction = dspy.Prediction(answer="")
        self._score: Score | None = None
        self._failure: Failure | None = None
        self._usage = Usage()
        """What recalling and answering took."""
        self._program_calls: Sequence[PredictorCall] = ()
        """The calls of the program, without those of judges."""
        self._context: Context | None = None
        """What was recalled; None if recalling failed."""
        self._recall: Mapping[str, float] = {}
        self._search_ms: float | None = None
        self._search_cpu_ms: float | None = None

    def answer_and_score(self, entry_ids: EntryIdCheck) -> None:
        """Answer the question and score the answer; an error of either becomes a failure.

        Args:
            entry_ids: Refuses memories in which several entries have the same id.

        Raises:
            BudgetError: A limit of the run was reached.
            MempilerError: The run cannot go on, e.g. because the endpoint refuses the key.
        """
        try:
            self._answer(entry_ids)
            self._score = self._benchmark.scorer.score(self._example, self._prediction)
        except MempilerError:
            raise
        except (Exception, SystemExit) as error:
            # SystemExit too: code of the user's that calls `exit` must not end the whole run.
            self._failure = failure_of(str(self._example.id), error)

        # In a simulated conversation there are several recalls, and no single moment.
        if len(self._recorder.recalled) == 1:
            self._clock.mark("recalled", self._recorder.recalled[0].at)
        self._set_search_times()
        self._context = self._recalled_context()

    def _answer(self, entry_ids: EntryIdCheck) -> None:
        """Remember the history of the question, and answer it."""
        program = self._program
        answerer: Callable[..., dspy.Prediction] = program
        if self._benchmark.interaction is None:
            # The memory comes first, because what writing it takes belongs to all its questions.
            cached = program.remember(program.history_of(self._example))
            entry_ids.check(cached)
            self._memory = cached.memory
            answerer = partial(program, remembered=cached)
            self._clock.mark("remembered")

        with measure_usage() as tracker:
            try:
                self._prediction = self._benchmark.answer(answerer, self._example)
            finally:
                self._usage = tracker.usage
                self._clock.mark("answered")
                # Calls that are recorded from here on are those of judges.
                self._program_calls = list(self._recorder.calls)

    def _set_search_times(self) -> None:
        """Set how long one recall has searched, in milliseconds, if anything was searched."""
        searches = self._recorder.searches
        if not searches:
            return
        num_recalls = max(1, len(self._recorder.recalled))
        self._search_ms = 1000 * sum(search.wall for search in searches) / num_recalls
        self._search_cpu_ms = 1000 * sum(search.cpu for search in searches) / num_recalls

    def _recalled_context(self) -> Context | None:
        """Return what the prediction rests on, or else what was recalled last; None if nothing."""
        context: Context | None = self._prediction.get("context")
        if context:
            return context
        if self._recorder.recalled:
            return self._recorder.recalled[-1].recalled.full_context()
        return None

    def measure_recall(self) -> None:
        """Measure how much of the gold evidence was recalled.

        Raises:
            BudgetError: The endpoint of an embedder was needed, and a limit of the run is reached.
        """
        self._recall = measure_recall(
            self._program,
            self._benchmark,
            self._example,
            self._context,
            self._memory,
            self._recorder,
        )

    def row(self) -> Row:
        """Return the row of the question.

        Call it after the recording around the attempt has ended: its calls are in order then.
        """
        example = self._example
        score = self._score
        usage = self._usage
        context = self._context or Context()
        return Row(
            id=str(example.id),
            group=self._benchmark.group(example),
            category=self._benchmark.category(example),
            in_headline=self._benchmark.scorer.in_headline(example),
            question=str(example.get("question") or ""),
            gold=str(example.get("answer") or ""),
            answer=str(self._prediction.get("answer") or ""),
            score=score.value if score else 0.0,
            parts=dict(score.parts) if score else {},
            recall=dict(self._recall),
            sources=context.sources,
            seconds=time.perf_counter() - self._clock.started,
            hits=len(context.hits),
            context_tokens=estimate_tokens(context.text()),
            prompt_tokens=int(usage.input_tokens),
            recall_counts=dict(context.counts),
            counted_entries=self._benchmark.scorer.counted_entries(self._prediction),
            repeated_id=duplicate_hit_id(self._program, example, context),
            calls=int(usage.calls),
            output_tokens=int(usage.output_tokens),
            cost=None if usage.unpriced else usage.cost,
            answering=usage.seconds,
            search=self._search_ms,
            search_cpu=self._search_cpu_ms,
            failure=self._failure,
            trace=make_question_trace(
                example,
                self._shown_context(),
                self._recorder.calls,
                score.feedback if score else "",
                self._clock,
                evidence_in_prompts(example, self._memory, self._context, self._program_calls),
            ),
        )

    def _shown_context(self) -> Context | None:
        """Return what a prompt shows of the recalled context; None if nothing was recalled."""
        context = self._context
        if context is None:
            return None
        # If a prompt has shown this context, its text is taken from there: searching all hits for
        # relative dates once more would take long.
        in_prompt = self._recorder.shown_context
        if in_prompt is not None and in_prompt.recalled is context:
            return in_prompt.shown
        return self._program.task.context_as_shown(context)
