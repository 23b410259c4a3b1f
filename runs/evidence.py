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
from .entry_ids import is_own_system
from .rows import RECALL_AT, SHOWN_RECALL

_DEPTH_GROWTH = 4
"""How many times more hits a search asks for if too few of the hits were evidence."""


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
    if not is_own_system(reader):
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
    question then has no figure of how much evidence its prompt showed; `row_metrics.mean_recall`
    decides what this means for the mean.
    """
    # What a user's own system finds is always counted.
    if is_own_system(reader) or context is None or not context.hits:
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

    This search only measures recall. If the code of the user's method fails in it, the question
    keeps its score, and its recall is 0.

    Args:
        reader: What searches.
        memory: The memory; None if writing it failed.
        query: What is searched for.
        depth: How many hits are wanted.
        ranking: The hits that recalling has found already; None makes a search.

    Raises:
        MempilerError: The run cannot go on, for instance because a limit was reached.
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

    Among the best hits there may be others, such as summaries. So ever more hits are searched for,
    until `k` of them are evidence or the memory has no more.

    Args:
        reader: What searches.
        memory: The memory.
        search_text: What is searched for.
        k: How many hits are wanted.
        ranking: The hits of a search for `k` hits or more, if one was made already.
    """
    limit = k
    hits = _search(reader, memory, search_text, limit) if ranking is None else ranking
    while True:
        evidence = [hit for hit in hits if hit.is_evidence]
        is_exhausted = len(hits) < limit
        if len(evidence) >= k or is_exhausted:
            return evidence[:k]
        limit *= _DEPTH_GROWTH
        hits = _search(reader, memory, search_text, limit)


def _search(reader: Reader[MemoryT], memory: MemoryT, search_text: str, limit: int) -> list[Hit]:
    """Return the best hits for one text; a reader takes several texts at once."""
    return reader.search(memory, [search_text], limit)[0]


def _shown_turn_ids(context: Context | None, query: Query) -> set[str]:
    """Return the ids of the turns that a prompt shows: recalled turns, and `shown_turn_ids`.

    The latter are turns that the prompt shows beside the recalled context. A fallback hit is shown
    only because the search found nothing, so no figure of recall counts it.

    Args:
        context: What was recalled; None if recalling failed. Then there was no prompt.
        query: What was searched for, with the turns that the prompt shows beside the context.
    """
    if context is None:
        return set()

    recalled_ids = context.without_fallback().evidence
    # If the search found nothing, a method may show the newest turns instead. They are fallback
    # hits, and among the turns beside the context too.
    fallback_ids = {hit.id for hit in context.hits if hit.fallback}
    query_ids = query.shown_turn_ids - fallback_ids
    return {*recalled_ids, *query_ids}


def evidence_in_prompts(
    example: dspy.Example,
    memory: Memory | None,
    context: Context | None,
    calls: Sequence[PredictorCall],
) -> list[str] | None:
    """Return the gold evidence whose text stood in the prompts of a program.

    Most programs name the turns that their context comes from, and nothing need be looked for. If a
    program does not name the turns, it may have recalled evidence all the same. So its prompts are
    searched for the text of the evidence.

    Returns:
        The ids of the turns that were found; None if the prompts were not searched.
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
    # The program names all of the evidence, so there is no other evidence to look for.
    if set(evidence_ids) <= set(context.sources):
        return None

    inputs = [call.inputs for call in calls]
    return turns_in_inputs(inputs, evidence_ids, example.history)
