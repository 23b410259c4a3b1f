"""How much of a question's gold evidence was recalled, and how much the memory's plain search finds."""

from __future__ import annotations

from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.text_metrics import evidence_recall
from ..errors import MempilerError
from ..memory.memory import Memory
from ..programs.method import Reader
from ..programs.program import MemoryProgram
from ..programs.recording import Recording
from ..records import Context, Hit, Query
from .rows import RECALL_AT, SHOWN


def evidence_found(
    program: MemoryProgram,
    benchmark: Benchmark,
    example: dspy.Example,
    context: Context | None,
    memory: Memory | None,
    record: Recording,
) -> dict[str, float]:
    """How much of the evidence the task saw (`shown`), and how much the memory's plain search finds, which needs no LM.

    A question that failed counts like any other, with what was recalled for it; nothing, where recalling failed.
    """
    if not example.get("focus"):
        return {}
    # In a conversation there are several, and none of them may be that of the example.
    alone = len(record.queries) == 1
    query = record.queries[0] if alone else program.query_of(example)
    if program.method.reader.free:
        memory = program.remember(example.history).memory if memory is None and context is not None else memory
        known = record.ranked[1] if alone and record.ranked and record.ranked[0] is program.method.reader else None
        ranked = [] if memory is None else _ranked(program, memory, query, search_depth(benchmark), known)
        found = {f"recall@{k}": evidence_recall(example.focus, ranked, k) for k in RECALL_AT}
    else:
        # A search of somebody else's takes something; what it was asked for is all that is looked at.
        ranked, found = [hit.sources for hit in context.hits] if context else [], {}
    # Summaries alone speak of no turn in particular: whether that is the method's way, all questions together tell.
    if (
        not program.method.reader.free
        or context is None
        or not context.hits
        or any(hit.is_evidence for hit in context.hits)
    ):
        seen = [context.evidence, query.shown_ids] if context else []
        found = {SHOWN: evidence_recall(example.focus, seen, 2), **found}
    return {name: value for name, value in found.items() if value is not None} | benchmark.scorer.retrieval(
        example, ranked
    )


def search_depth(benchmark: Benchmark) -> int:
    """How many hits evidence recall looks at."""
    return max(*RECALL_AT, benchmark.scorer.retrieval_depth)


def _ranked(
    program: MemoryProgram, memory: Memory, query: Query, k: int, known: list[Hit] | None
) -> list[tuple[str, ...]]:
    """The sources of the best hits of the memory's plain search; none where searching fails."""
    try:
        hits = evidence_hits(program.method.reader, memory, query.probe, k, known)
    except MempilerError:
        raise
    except Exception:
        return []
    return [hit.sources for hit in hits]


def evidence_hits(reader: Reader, memory: Any, probe: str, k: int, known: list[Hit] | None = None) -> list[Hit]:
    """The k best hits of a plain search that count as evidence: summaries rest on too many turns to count.

    Args:
        reader: Searches.
        memory: What is searched.
        probe: What for.
        k: The most hits.
        known: The best hits of the search, k at least where there are so many; None where it has not been made.
    """
    asked = k
    while True:
        hits, known = known if known is not None else reader.search(memory, [probe], asked)[0], None
        kept = [hit for hit in hits if hit.is_evidence]
        if len(kept) >= k or len(hits) < asked:
            return kept[:k]
        asked *= 4
