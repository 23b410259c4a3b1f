"""How much of the gold evidence of a question was recalled, shown, or in a prompt."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from ..data.benchmark import Benchmark
from ..data.text_metrics import evidence_recall
from ..errors import MempilerError
from ..memory.memory import Memory
from ..programs.call_recorder import CallRecorder, PredictorCall
from ..programs.evidence import reports_recall, turns_in_inputs
from ..programs.program import MemoryProgram
from ..programs.reader import Reader
from ..programs.writer import MemoryT
from ..records import Context, Hit, Query
from .rows import RECALL_AT, SHOWN_RECALL


def search_depth(benchmark: Benchmark, example: dspy.Example) -> int:
    """Return how many hits of a plain search the recall of a question's evidence looks at."""
    if not example.get("evidence_ids"):
        return 0
    return max(*RECALL_AT, benchmark.scorer.retrieval_depth)


def measure_recall(
    program: MemoryProgram,
    benchmark: Benchmark,
    example: dspy.Example,
    context: Context | None,
    memory: Memory | None,
    recorder: CallRecorder,
) -> dict[str, float]:
    """Return how much of a question's gold evidence was found; empty if it names no evidence.

    A question that failed is measured like any other, by what was recalled for it.

    Args:
        program: What answers.
        benchmark: The benchmark, whose scorer may have further metrics.
        example: The question.
        context: What was recalled; None if recalling failed.
        memory: The memory that was asked; None if writing it failed, or if the question belongs to
            a simulated conversation.
        recorder: The recording of the question.

    Returns:
        The share of the evidence that the prompt showed ("shown"), and the shares that the
        memory's plain search finds ("recall@5"), which takes no language model.
    """
    if not example.get("evidence_ids"):
        return {}

    # A conversation has several queries, and none of them need be that of the example.
    has_one_query = len(recorder.recalled) == 1
    query = recorder.recalled[0].recalled.query if has_one_query else program.query_of(example)

    reader = program.method.reader
    ranked: list[tuple[str, ...]] = []
    search_recall: dict[str, float | None] = {}
    if reader.is_search_free:
        if memory is None and context is not None:
            memory = program.remember(program.history_of(example)).memory
        ranking = _recorded_ranking(recorder, reader) if has_one_query else None
        hits = _search_for_evidence(reader, memory, query, recorder.ranking_depth, ranking)
        ranked = [hit.sources for hit in hits]
        for k in RECALL_AT:
            search_recall[f"recall@{k}"] = evidence_recall(example.evidence_ids, ranked, k)
    elif context is not None:
        # A search of a user's own system costs something, so only what it recalled is looked at.
        ranked = [hit.sources for hit in context.without_fallback().hits]

    recall: dict[str, float | None] = {}
    if not _has_only_summaries(reader, context):
        shown_turn_ids = _shown_turn_ids(context, query)
        recall[SHOWN_RECALL] = evidence_recall(example.evidence_ids, [shown_turn_ids], 1)
    recall.update(search_recall)

    metrics = {name: value for name, value in recall.items() if value is not None}
    if benchmark.scorer.retrieval_depth:
        metrics.update(benchmark.scorer.retrieval_metrics(example, ranked))
    return metrics


def _has_only_summaries(reader: Reader[Memory], context: Context | None) -> bool:
    """Return whether a method recalled something, but only summaries and the like.

    Such hits rest on no particular turns, so it cannot be said how much evidence they show. The
    question then has no figure for it; `row_metrics.mean_recall` decides what this means for the
    mean.
    """
    # A search that is not free is that of a user's own system; its hits are always counted.
    is_own_system = not reader.is_search_free
    if is_own_system or context is None or not context.hits:
        return False
    return not any(hit.is_evidence for hit in context.hits)


def _recorded_ranking(recorder: CallRecorder, reader: Reader[Memory]) -> list[Hit] | None:
    """Return the hits of the search that the recall has made; None if it made none."""
    ranked = recorder.ranked
    if ranked is None or ranked.reader is not reader:
        return None
    return ranked.hits


def _search_for_evidence(
    reader: Reader[Memory],
    memory: Memory | None,
    query: Query,
    depth: int,
    ranking: list[Hit] | None,
) -> list[Hit]:
    """Return the best hits of a plain search that count as evidence; none if the search fails.

    Raises:
        MempilerError: A limit of the run was reached, for instance.
    """
    if memory is None:
        return []
    try:
        return evidence_hits(reader, memory, query.search_text, depth, ranking)
    except MempilerError:
        raise
    except (Exception, SystemExit):  # code of the user's may call `exit`
        return []


def evidence_hits(
    reader: Reader[MemoryT],
    memory: MemoryT,
    search_text: str,
    k: int,
    ranking: list[Hit] | None = None,
) -> list[Hit]:
    """Return the `k` best hits of a plain search that count as evidence.

    Args:
        reader: What searches.
        memory: The memory.
        search_text: What is searched for.
        k: How many hits are wanted.
        ranking: The best hits, if the search was made already.
    """
    limit = k
    hits = reader.search(memory, [search_text], limit)[0] if ranking is None else ranking
    while True:
        evidence = [hit for hit in hits if hit.is_evidence]
        is_exhausted = len(hits) < limit
        if len(evidence) >= k or is_exhausted:
            return evidence[:k]
        limit *= 4
        hits = reader.search(memory, [search_text], limit)[0]


def _shown_turn_ids(context: Context | None, query: Query) -> set[str]:
    """Return the ids of the turns that a prompt shows: recalled ones, and those of the task.

    A fallback hit is shown only because the search found nothing. It does not count.
    """
    if context is None:
        return set()

    recalled_ids = context.without_fallback().evidence
    # A task may show turns beside the recalled context.
    fallback_ids = {hit.id for hit in context.hits if hit.fallback}
    task_ids = query.shown_turn_ids - fallback_ids
    return {*recalled_ids, *task_ids}


def evidence_in_prompts(
    example: dspy.Example,
    memory: Memory | None,
    context: Context | None,
    calls: Sequence[PredictorCall],
) -> list[str] | None:
    """Return the gold evidence that stood in the prompts of a program.

    It is looked for only if the program does not say from which turns its context comes. Evidence
    that it does not name may have been recalled all the same.

    Returns:
        Ids of turns; None if they were not looked for.
    """
    evidence_ids = list(example.get("evidence_ids") or ())
    if not evidence_ids:
        return None
    # The question failed before anything was recalled.
    if memory is None or context is None:
        return None
    # The program names the turns of everything that it recalled.
    if reports_recall(memory, context):
        return None
    # It names all of the evidence, so none is left to look for.
    if set(evidence_ids) <= set(context.sources):
        return None

    inputs = [call.inputs for call in calls]
    return turns_in_inputs(inputs, evidence_ids, example.history)
