"""How much of the gold evidence of a question was recalled, shown, or in a prompt."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
    if not _is_summaries_only(reader, context):
        found_and_shown = _shown_turn_ids(context, query)
        recall[SHOWN_RECALL] = evidence_recall(example.evidence_ids, found_and_shown, 2)
    recall.update(search_recall)

    metrics = {name: value for name, value in recall.items() if value is not None}
    if benchmark.scorer.retrieval_depth:
        metrics.update(benchmark.scorer.retrieval_metrics(example, ranked))
    return metrics


def _is_summaries_only(reader: Reader[Memory], context: Context | None) -> bool:
    """Return whether a context of one of Mempiler's methods has hits, but none that names turns.

    Whether this is the method's way is seen in all rows together (`row_metrics.mean_recall`).
    """
    if not reader.is_search_free or context is None or not context.hits:
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
    except Exception:
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


def _shown_turn_ids(context: Context | None, query: Query) -> list[Collection[str]]:
    """Return two groups of turn ids: those that were found, and those that the task shows anyway.

    A turn that is shown only because the search found nothing is in neither.
    """
    if context is None:
        return []
    fallback_ids = {hit.id for hit in context.hits if hit.fallback}
    return [context.without_fallback().evidence, query.shown_turn_ids - fallback_ids]


def evidence_in_prompts(
    example: dspy.Example,
    memory: Memory | None,
    context: Context | None,
    calls: Sequence[PredictorCall],
) -> list[str] | None:
    """Return which gold evidence was in the inputs of calls.

    Returns:
        Ids of turns; None if the program itself reports all that it recalled, if it reports all of
        the evidence as recalled, or if there is no evidence, memory or context.
    """
    turn_ids = list(example.get("evidence_ids") or ())
    if not turn_ids or memory is None or context is None:
        return None
    if reports_recall(memory, context) or set(turn_ids) <= set(context.sources):
        return None
    return turns_in_inputs([call.inputs for call in calls], turn_ids, example.history)
