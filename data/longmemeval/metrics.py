"""LongMemEval's retrieval metrics over sessions, and the sums of its answers.

    recall_any@k   1 when one of the evidence sessions is among the first k
    recall_all@k   1 when all of them are
    ndcg@k         DCG of the first k over the DCG of the best order, DCG = rel_1 + sum_{i>=2} rel_i / log2(i)

Source: LongMemEval (Wu et al., ICLR 2025), src/retrieval/eval_utils.py. In its DCG the second place is divided by
log2(2) = 1 as well, so the first two places count the same; that is kept.

Example:
    >>> from mempiler.data.longmemeval.metrics import retrieval_metrics
    >>> retrieval_metrics(["D4", "D1"], gold=["D1"], sessions=["D1", "D2", "D3", "D4"], k=2)
    {'recall_any@2': 1.0, 'recall_all@2': 1.0, 'ndcg@2': 1.0}

Where hits are single turns, k grows until the first hits are of k sessions, and several turns of a session fill several
places of NDCG, in the ranking as in the best order: as released.

Limits: the released code ranks the turns of the user alone, and takes those of an evidence session that do not hold the
answer for another session; here every turn that a memory holds is ranked, under its own session.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import log2

REFUSALS = (
    *("not mention", "n't mention", "not mentioned", "no information", "no mention", "not enough information"),
    *("information is incomplete", "information provided is not", "don't know", "do not know", "not specified"),
    *("cannot be answered", "can't be answered", "not provided", "not known", "unknown", "no record"),
)
"""Phrases that the metric without a judge takes for declining to answer."""


def dcg(relevances: Sequence[float], k: int) -> float:
    """Discounted cumulative gain of the first k places, as released: places 1 and 2 are not discounted."""
    return sum(value / (log2(place) if place > 1 else 1.0) for place, value in enumerate(relevances[:k], 1))


def retrieval_metrics(
    ranked: Sequence[str], gold: Collection[str], sessions: Sequence[str], k: int, turns: bool = False
) -> dict[str, float]:
    """The three metrics of one question.

    Args:
        ranked: Ids of sessions, best first: of each hit its session.
        gold: Ids of the evidence sessions.
        sessions: Ids of all sessions that could have been found: of every turn its session, where turns are ranked.
        k: How many sessions count.
        turns: Whether turns are ranked, so that a session may be there several times.
    """
    places = _places(ranked, len(sessions), k) if turns else k
    found, wanted = set(ranked[:places]), set(gold)
    relevances = [float(id in wanted) for id in ranked]
    ideal = dcg(sorted((float(id in wanted) for id in sessions), reverse=True), places)
    return {
        f"recall_any@{k}": float(bool(wanted & found)),
        f"recall_all@{k}": float(wanted <= found),
        f"ndcg@{k}": dcg(relevances, places) / ideal if ideal else 0.0,
    }


def _places(ranked: Sequence[str], turns: int, k: int) -> int:
    """How many of the ranked turns it takes to have k different sessions, k at least; all where there are fewer."""
    seen: set[str] = set()
    for place, session in enumerate(ranked, 1):
        seen.add(session)
        if len(seen) == k:
            return place
    return max(k, turns + 1)


def declines(answer: str) -> bool:
    """Whether an answer states that it is not known."""
    text = " ".join(answer.lower().replace("\u2019", "'").split())
    return any(phrase in text for phrase in REFUSALS)


def mean(values: Sequence[float]) -> float:
    """The mean; 0 if empty."""
    return sum(values) / len(values) if values else 0.0
