"""Answer and score questions with a program, many at a time: `score_questions`.

    with dspy.context(lm=lm):
        evaluation = score_questions(program, benchmark, benchmark.examples, lm.meter)

Every question becomes a `Row`, also one that fails. Questions are interleaved by conversation, so
that threads do not all wait for one memory. A run scores its questions by an `Evaluator`
(`experiment.py`), which hands over the run's limits, journal and workers.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import dspy

from ..data.benchmark import Benchmark
from ..data.text_metrics import evidence_recall
from ..engines.call_context import measure_usage
from ..engines.meter import Meter
from ..engines.model_names import display_name, is_offline
from ..engines.usage import Usage
from ..errors import BudgetError, EndpointError, MempilerError, UserError
from ..memory.memory import Memory
from ..memory.word_count import count_memory_words
from ..programs.call_recorder import CallRecorder, PredictorCall
from ..programs.cache import CachedMemory
from ..programs.evidence import reports_recall, turns_in_inputs
from ..programs.identity import program_digest
from ..programs.program import MemoryProgram
from ..programs.reader import Reader
from ..programs.recording import ExternalError, failure_of, recording
from ..programs.threads import run_unordered
from ..records import Context, Failure, History, Hit, Query, estimate_tokens
from .config import MAX_FAILURE_RATE
from .results import Evaluation, counts_of
from .rows import RECALL_AT, SHOWN, Clock, Row, make_question_trace

if TYPE_CHECKING:
    from .row_table import RowTable

Progress = Callable[[int, int], None]
"""Called after every question, or written item, with the number done and the number of all."""


@dataclass(frozen=True)
class WriteResult:
    """What came of writing the memory of one history."""

    failures: tuple[Failure, ...] = ()
    """What could not be written."""
    usage: Usage = field(default_factory=Usage)
    """What it took; the beginning that it shares with an earlier history is counted there."""
    words: int | None = None
    """Words of the memory; None where nothing was written, or it cannot be read here."""
    operations: Mapping[str, int] = field(default_factory=dict)
    """Operations on the memory by their outcome, of a method that counts them."""
    store_writes: int = 0
    """Sessions that a store of the user's was given; 0 for a method of ours."""


class RemoteEvaluator(Protocol):
    """Asks questions in other processes (`workers.evaluate_remotely`)."""

    def __call__(
        self,
        program: MemoryProgram,
        benchmark: Benchmark,
        examples: Sequence[dspy.Example],
        on_row: Callable[[Row], None],
    ) -> Mapping[str, WriteResult]:
        """Ask questions; some may be left over, e.g. where a process was killed.

        Args:
            program: What answers.
            benchmark: Whose metric scores.
            examples: The questions.
            on_row: Receives each row as it comes.

        Returns:
            How histories were written, by the id of a question about each.
        """
        ...


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
        benchmark: Whose metric scores.
        examples: The questions.
        meter: Where the LM's calls are counted.
        threads: Questions in flight.
        progress: Told after every question.
        journal: Rows of a run that is resumed; those that are there are not asked again.
        phase: What the rows are filed under, beside the program's own digest.
        max_failure_rate: The share of failed questions, of lost predictor calls, or of sessions that
            a store did not take, above which the run is broken.
        remote: Asks questions in other processes; what it leaves is asked here.
        writing_progress: Called where memories are to be written; what it returns is told after
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

    writes: Mapping[str, WriteResult] = {}
    if remote and open_questions:
        writes = remote(program, benchmark, open_questions, keep)

    # Those that no worker has answered.
    remaining = [example for example in open_questions if str(example.id) not in rows_by_id]
    stopped: str | None = None
    answers = answer_questions(program, benchmark, remaining, threads)
    with _show_writing(program, remaining, writing_progress), closing(answers):
        for outcome in answers:
            if isinstance(outcome, Row):
                keep(outcome)
            else:
                # Why the question was not asked.
                stopped = outcome

    new_rows = _rows_of(open_questions, rows_by_id)
    _refuse_silent_zero(new_rows)
    memories = _all_written(program, ordered, writes)
    rows = tuple(_rows_of(examples, rows_by_id))
    embedder = program.method.embedder
    return Evaluation(
        program=program.name,
        benchmark=benchmark.name,
        lm=display_name(lm.model),
        embedder=embedder.name if embedder else None,
        judge=_judge(benchmark),
        comparable=not benchmark.source.sample and not is_offline(lm.model),
        rows=rows,
        aggregate=benchmark.scorer.aggregate(rows),
        confusion=benchmark.scorer.confusion(rows),
        stopped=stopped,
        write_failures=len(memories.failures),
        store_writes=memories.store_writes,
        failed_writes=memories.failures,
        construction=memories.taken,
        histories=memories.histories,
        memory_words=memories.words,
        operations=dict(memories.operations),
        seconds=time.perf_counter() - started,
        names=dict(benchmark.categories),
        expected=benchmark.expected_categories,
        max_failure_rate=max_failure_rate,
        **counts_of(meter.read() - usage_before),
    )


def _journal_scope(program: MemoryProgram, phase: str) -> str:
    """Return what rows are filed under: the phase, the program, and the model that answers."""
    lm = dspy.settings.lm
    # The same program under other weights is another one.
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


@contextmanager
def _show_writing(
    program: MemoryProgram,
    examples: Sequence[dspy.Example],
    writing_progress: Callable[[], Progress | None],
) -> Generator[None]:
    """Tell how many items of histories are written, of those that are not written yet."""
    histories = {program.history_of(example): None for example in examples}
    num_missing = program.count_missing(histories)
    progress = writing_progress() if num_missing else None
    if progress is None:
        yield
        return

    written = itertools.count(1)
    progress(0, num_missing)

    def on_write() -> None:
        progress(min(next(written), num_missing), num_missing)

    previous = program.cache.on_write
    program.cache.on_write = on_write
    try:
        yield
    finally:
        program.cache.on_write = previous


def answer_questions(
    program: MemoryProgram, benchmark: Benchmark, examples: Sequence[dspy.Example], threads: int
) -> Generator[Row | str]:
    """Answer and score questions, in threads, or as tasks where the caller is bridged; see `run_unordered`.

    Yields:
        The rows as they come; of a question that was not asked, the reason.

    Raises:
        EndpointError: The model's endpoint is unreachable.
        UserError: It refuses the key.
    """
    entry_ids = _EntryIdCheck(program)
    calls = [partial(_answer_question, program, benchmark, example, entry_ids) for example in examples]
    yield from run_unordered(calls, max(1, threads))


class _EntryIdCheck:
    """Refuses memories in which several entries have the same id; looks at each memory once.

    A search finds only one of these entries, so the score would say little, and nothing would say why.
    """

    def __init__(self, program: MemoryProgram) -> None:
        self._program = program
        self._checked: set[int] = set()
        """The Python ids of the memories that were looked at; the cache keeps these."""

    def check(self, remembered: CachedMemory) -> None:
        """Raise a UserError if two entries of a memory have the same id."""
        reader = self._program.method.reader
        # The entries of a system of the user's are the turns of the history.
        if id(remembered) in self._checked or not reader.is_search_free:
            return
        self._checked.add(id(remembered))

        try:
            entries = reader.entries(remembered.memory)
        except Exception:
            # Whoever needs the entries of this memory fails with the error.
            return
        repeated_id = _first_repeated(entry.id for entry in entries)
        if repeated_id is not None:
            raise UserError(
                f"{self._program.name}: entries have the same id: {repeated_id!r}; give every entry of a memory"
                " an id of its own (mempiler.testing.check_method checks this and more)"
            )


def _first_repeated(ids: Iterable[str]) -> str | None:
    """Return the first id that comes a second time; None if all are different."""
    seen: set[str] = set()
    for entry_id in ids:
        if entry_id in seen:
            return entry_id
        seen.add(entry_id)
    return None


def _answer_question(
    program: MemoryProgram, benchmark: Benchmark, example: dspy.Example, entry_ids: _EntryIdCheck
) -> Row | str:
    """Return the row of a question, which no trace and no history of DSPy's keeps."""
    with dspy.context(trace=None, disable_history=True):
        return _row(program, benchmark, example, entry_ids)


def _refuse_silent_zero(rows: Sequence[Row]) -> None:
    """Without any answer there is no score; with few questions the guard stays silent."""
    failures = [row.failure for row in rows if row.failure is not None and row.failure.kind in ("endpoint", "refused")]
    if rows and len(failures) == len(rows):
        raise EndpointError(f"the model's endpoint answered none of {len(rows)} questions: {failures[-1].message}")


def _judge(benchmark: Benchmark) -> str | None:
    scorer = benchmark.scorer
    if not scorer.required_judges:
        return None
    lm = next((getattr(judge, "lm", None) for judge in scorer.judges.values()), None)
    return f"{getattr(lm, 'model', 'unnamed')} (prompt {str(scorer.judge_hash)[:12]})"


def _row(
    program: MemoryProgram, benchmark: Benchmark, example: dspy.Example, entry_ids: _EntryIdCheck
) -> Row | str:
    clock = Clock()
    prediction, failure, score = dspy.Prediction(answer=""), None, None
    memory, asked, taken = None, program, Usage()
    program_calls: list[PredictorCall] = []
    depth = max(*RECALL_AT, benchmark.scorer.retrieval_depth) if example.get("evidence_ids") else 0
    with recording(True, depth) as record:
        try:
            if benchmark.interaction is None:
                # First, since what it takes belongs to all questions about it.
                node = program.remember(program.history_of(example))
                entry_ids.check(node)
                memory, asked = node.memory, partial(program, remembered=node)
                clock.mark("remembered")
            with measure_usage() as work:
                try:
                    prediction = benchmark.answer(asked, example)
                finally:
                    taken = work.usage
                    clock.mark("answered")
                    # Calls that are recorded from here on are those of judges.
                    program_calls = list(record.calls)
            score = benchmark.scorer.score(example, prediction)
        except BudgetError as error:
            return str(error)
        except MempilerError:
            raise
        except (Exception, SystemExit) as error:
            # SystemExit too: code of the user's that calls `exit` must not end the whole run.
            failure = failure_of(str(example.id), error)
        if len(record.recalled) == 1:
            clock.mark("recalled", record.recalled[0].at)
        spans = [1000 * sum(each) / max(1, len(record.recalled)) for each in zip(*record.searches, strict=True)]
        context = prediction.get("context") or (record.recalled[-1].recalled.full_context() if record.recalled else None)
        try:
            recall = _evidence_found(program, benchmark, example, context, memory, record)
        except BudgetError as error:  # an embedding endpoint's
            return str(error)
    known = context or Context()
    return Row(
        id=str(example.id),
        group=benchmark.group(example),
        category=benchmark.category(example),
        in_headline=benchmark.scorer.in_headline(example),
        question=str(example.get("question") or ""),
        gold=str(example.get("answer") or ""),
        answer=str(prediction.get("answer") or ""),
        score=score.value if score else 0.0,
        parts=dict(score.parts) if score else {},
        recall=recall,
        sources=known.sources,
        seconds=time.perf_counter() - clock.started,
        hits=len(known.hits),
        context_tokens=estimate_tokens(known.text()),
        prompt_tokens=int(taken.input_tokens),
        recall_counts=dict(known.counts),
        repeated_id=_repeated_hit_id(program, example, known),
        calls=int(taken.calls),
        output_tokens=int(taken.output_tokens),
        cost=None if taken.unpriced else taken.cost,
        answering=taken.seconds,
        search=spans[0] if spans else None,
        search_cpu=spans[1] if spans else None,
        failure=failure,
        trace=make_question_trace(
            example,
            _shown_context(program, context, record),
            record.calls,
            score.feedback if score else "",
            clock,
            _evidence_in_prompts(example, memory, context, program_calls),
        ),
    )


def _repeated_hit_id(program: MemoryProgram, example: dspy.Example, context: Context) -> str:
    """Return an id that several hits of a user's system have, or "".

    Hits that have the id of a turn are parts of it, and may be several.
    """
    if program.method.reader.is_search_free or len(context.hits) < 2:
        return ""
    turns = example.history.turns
    own_ids = [hit.id for hit in context.hits if hit.id not in turns]
    return _first_repeated(own_ids) or ""


def _shown_context(program: MemoryProgram, context: Context | None, record: CallRecorder) -> Context | None:
    """Return what a prompt shows of a recalled context; None without a context."""
    if context is None:
        return None
    # Dates are looked for in every hit. That takes long, so what the prompt showed is not made again.
    in_prompt = record.shown_context
    if in_prompt is not None and in_prompt.recalled is context:
        return in_prompt.shown
    return program.task.context_as_shown(context)


def _evidence_in_prompts(
    example: dspy.Example, memory: Memory | None, context: Context | None, calls: Sequence[PredictorCall]
) -> list[str] | None:
    """Return which gold evidence stood in the inputs of calls; None where the program reports what it recalled."""
    turn_ids = list(example.get("evidence_ids") or ())
    if not turn_ids or memory is None or context is None:
        return None
    if reports_recall(memory, context) or set(turn_ids) <= set(context.sources):
        return None
    return turns_in_inputs([call.inputs for call in calls], turn_ids, example.history)


def _evidence_found(
    program: MemoryProgram,
    benchmark: Benchmark,
    example: dspy.Example,
    context: Context | None,
    memory: Memory | None,
    record: CallRecorder,
) -> dict[str, float]:
    """How much of the evidence the task saw (`shown`), and how much the memory's plain search finds, which needs no LM.

    A question that failed counts like any other, with what was recalled for it; nothing, where recalling failed.
    """
    if not example.get("evidence_ids"):
        return {}
    # In a conversation there are several, and none of them may be that of the example.
    alone = len(record.recalled) == 1
    query = record.recalled[0].recalled.query if alone else program.query_of(example)
    if program.method.reader.is_search_free:
        if memory is None and context is not None:
            memory = program.remember(program.history_of(example)).memory
        known = record.ranked.hits if alone and record.ranked and record.ranked.reader is program.method.reader else None
        try:
            reader = program.method.reader
            hits = (
                [] if memory is None else evidence_hits(reader, memory, query.search_text, record.ranking_depth, known)
            )
        except MempilerError:
            raise
        except Exception:
            hits = []
        ranked = [hit.sources for hit in hits]
        found = {f"recall@{k}": evidence_recall(example.evidence_ids, ranked, k) for k in RECALL_AT}
    else:
        # A search of somebody else's takes something; what it was asked for is all that is looked at.
        ranked, found = [hit.sources for hit in context.without_fallback().hits] if context else [], {}
    # Summaries alone speak of no turn in particular: whether that is the method's way, all questions together tell.
    if (
        not program.method.reader.is_search_free
        or context is None
        or not context.hits
        or any(hit.is_evidence for hit in context.hits)
    ):
        found = {SHOWN: evidence_recall(example.evidence_ids, _turns_found(context, query), 2), **found}
    return {name: value for name, value in found.items() if value is not None} | (
        benchmark.scorer.retrieval_metrics(example, ranked) if benchmark.scorer.retrieval_depth else {}
    )


def _turns_found(context: Context | None, query: Query) -> list[Collection[str]]:
    """Ids of the turns that were found, and of those that the task shows anyway, for `evidence_recall`.

    What is shown only because nothing was found is neither.
    """
    if context is None:
        return []
    fallback = {hit.id for hit in context.hits if hit.fallback}
    return [context.without_fallback().evidence, query.shown_turn_ids - fallback]


def evidence_hits(reader: Reader, memory: Any, probe: str, k: int, known: list[Hit] | None = None) -> list[Hit]:
    """The k best hits of a plain search that count as evidence; `known` are its best hits, if it was made already."""
    asked = k
    while True:
        hits, known = known if known is not None else reader.search(memory, [probe], asked)[0], None
        kept = [hit for hit in hits if hit.is_evidence]
        if len(kept) >= k or len(hits) < asked:
            return kept[:k]
        asked *= 4


def collect_write_results(program: MemoryProgram, histories: Sequence[History]) -> dict[History, WriteResult]:
    """How distinct histories were written, whose memories are in the cache where anything was asked to write them.

    Histories that begin alike share their first nodes: what these took, and what failed there, is counted once.
    """
    found, seen = dict[History, WriteResult](), set[int]()
    for history in histories:
        nodes, failures = [], list[Failure]()
        spent = Usage()
        if program.method.writer.calls_model:
            # An error has failed all questions about the history, and is counted with these.
            try:
                nodes = program.remember(history).ancestors()
            except ExternalError as error:
                spent = error.usage
            except (Exception, SystemExit):
                pass
        fresh = [node for node in nodes if id(node) not in seen]
        seen.update(map(id, fresh))
        for node in fresh:
            where = f"{history.id}, {f'item {node.item.id}' if node.item else 'settling'}"
            failures += [each.model_copy(update={"where": f"{where}, {each.where}"}) for each in node.failures]
        spent = sum((node.usage for node in fresh), spent)
        words, operations = None, dict[str, int]()
        if nodes and program.method.reader.is_search_free:
            memory = nodes[-1].memory
            words = count_memory_words(memory)
            operations = dict(memory.operations)
        store_writes = len(history) if nodes and program.method.writes_stores else 0
        found[history] = WriteResult(tuple(failures), spent, words, operations, store_writes)
    return found


@dataclass(frozen=True)
class _Written:
    """How the distinct histories of some questions were written, taken together."""

    failures: tuple[Failure, ...]
    taken: Usage
    histories: int
    words: float | None
    """Mean length of a memory; None where none could be read."""
    operations: Mapping[str, int]
    store_writes: int


def _all_written(
    program: MemoryProgram, examples: Sequence[dspy.Example], writes: Mapping[str, WriteResult]
) -> _Written:
    """Return how the histories of questions were written, some of which `writes` says.

    Where questions about one history have what came since written too, that history counts once, as its last question
    has it.
    """
    known = {program.history_of(example): writes[str(example.id)] for example in examples if str(example.id) in writes}
    whole: dict[History, History] = {}
    histories: dict[History, None] = {}
    for example in examples:
        past = program.history_of(example)
        histories[past] = None
        if len(past) >= len(whole.get(example.history, ())):
            whole[example.history] = past
    with dspy.context(trace=None, disable_history=True):
        known |= collect_write_results(program, [history for history in histories if history not in known])

    failures: list[Failure] = []
    taken = Usage()
    store_writes = 0
    for history in histories:
        failures += known[history].failures
        taken += known[history].usage
        store_writes += known[history].store_writes

    lengths: list[int] = []
    operations: Counter[str] = Counter()
    for history in whole.values():
        operations.update(known[history].operations)
        words = known[history].words
        if words is not None:
            lengths.append(words)
    mean_length = sum(lengths) / len(lengths) if lengths else None
    return _Written(tuple(failures), taken, len(whole), mean_length, dict(operations), store_writes)
