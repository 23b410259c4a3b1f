"""Calls, tokens and cost in the form in which reports hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypedDict

from ..engines.usage import UsageReport


class UsageSummary(TypedDict):
    """Calls, tokens and cost, as JSON."""

    calls: dict[str, int]
    """Calls by role; those that a cache answered are "cached"."""
    tokens: dict[str, int]
    """Tokens as "input" and "output", and "estimated_calls" if some tokens are estimates."""
    prompt_cache: dict[str, int]
    """See `Evaluation.prompt_cache`."""
    cost: float | None
    """US dollars; None if the price of a call is not known."""


class MeteredUsage(UsageSummary):
    """What a meter counted, as JSON."""

    call_outcomes: dict[str, dict[str, int]]
    """Predictor calls by predictor and how they ended: ok, repaired, retried, lost."""
    faults: dict[str, dict[str, int]]
    """What was wrong with answers, by predictor and kind."""


def metered_usage(report: UsageReport) -> MeteredUsage:
    """Return what a meter counted in the form in which evaluations hold it."""
    tokens = {"input": report.input_tokens, "output": report.output_tokens}
    if report.estimated:
        tokens["estimated_calls"] = report.estimated

    prompt_cache: dict[str, int] = {}
    if report.cache_reported_tokens:
        prompt_cache = {"told": report.cache_reported_tokens, "reused": report.cached_tokens}

    # A cost of 0 says something only if calls were made, and all of them have a price.
    is_cost_known = report.unpriced == 0 and report.calls.total() > 0
    return MeteredUsage(
        calls=report.by_role(),
        tokens=tokens,
        prompt_cache=prompt_cache,
        cost=report.cost if is_cost_known or report.cost else None,
        call_outcomes=_counts_by_predictor(report.answers),
        faults=_counts_by_predictor(report.faults),
    )


def usage_totals(usage: UsageSummary | Mapping[str, Any]) -> dict[str, float | None]:
    """Return the sums of a usage: calls that reached a model, tokens, and cost in US dollars.

    Args:
        usage: A `UsageSummary`, or the same read from a file.
    """
    num_calls = sum(count for role, count in usage["calls"].items() if role != "cached")
    num_tokens = usage["tokens"].get("input", 0) + usage["tokens"].get("output", 0)
    return {"calls": float(num_calls), "tokens": float(num_tokens), "cost": usage["cost"]}


def cached_share(prompt_cache: Mapping[str, int]) -> float | None:
    """Return the share of prompt tokens that the endpoint had in its cache.

    Args:
        prompt_cache: See `Evaluation.prompt_cache`.

    Returns:
        0 to 1; None if the endpoint does not report it.
    """
    if not prompt_cache.get("told"):
        return None
    return prompt_cache["reused"] / prompt_cache["told"]


def _counts_by_predictor(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Return counts of (predictor, name) by predictor, and then by name, both sorted."""
    by_predictor: dict[str, dict[str, int]] = {}
    for (predictor, name), count in sorted(counts.items()):
        by_predictor.setdefault(predictor, {})[name] = count
    return by_predictor
