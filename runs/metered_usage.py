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
    """How much of the prompts the endpoints had in their caches; empty if none reports it.

    "told" is the number of prompt tokens of the calls whose endpoint told how many of them it had
    in its cache. "reused" is the number of those that it had there.
    """
    cost: float | None
    """US dollars of the calls whose price is known; None if that says nothing (`known_cost`)."""


class MeteredUsage(UsageSummary):
    """What a meter counted, as JSON."""

    call_outcomes: dict[str, dict[str, int]]
    """Predictor calls by predictor and how they ended: ok, repaired, retried, lost."""
    faults: dict[str, dict[str, int]]
    """What was wrong with answers, by predictor and kind."""


def metered_usage(report: UsageReport) -> MeteredUsage:
    """Return what a meter counted, as JSON."""
    tokens = {"input": report.input_tokens, "output": report.output_tokens}
    if report.estimated:
        # Not tokens, but calls: those whose tokens in the two sums are estimates.
        tokens["estimated_calls"] = report.estimated

    prompt_cache: dict[str, int] = {}
    if report.cache_reported_tokens:
        prompt_cache = {"told": report.cache_reported_tokens, "reused": report.cached_tokens}

    return MeteredUsage(
        calls=report.by_role(),
        tokens=tokens,
        prompt_cache=prompt_cache,
        cost=known_cost(report),
        call_outcomes=_counts_by_predictor(report.answers),
        faults=_counts_by_predictor(report.faults),
    )


def known_cost(report: UsageReport) -> float | None:
    """Return the cost of the calls whose price is known, in US dollars; None if it says nothing.

    A cost above 0 is reported even if some calls have no known price: so much was paid at least. A
    cost of 0 is reported only if calls were made and every one of them was free.
    """
    if report.cost > 0:
        return report.cost
    all_were_free = report.calls.total() > 0 and report.unpriced == 0
    return 0.0 if all_were_free else None


def usage_totals(usage: UsageSummary | Mapping[str, Any]) -> dict[str, float | None]:
    """Return the sums of a usage: calls that reached a model, tokens, and cost in US dollars.

    Args:
        usage: A `UsageSummary`, or the same read from a file.
    """
    # Beside the roles, "cached" counts the calls that a cache answered: no model was asked.
    calls_by_role = {name: count for name, count in usage["calls"].items() if name != "cached"}
    num_calls = sum(calls_by_role.values())
    num_tokens = usage["tokens"].get("input", 0) + usage["tokens"].get("output", 0)
    return {"calls": float(num_calls), "tokens": float(num_tokens), "cost": usage["cost"]}


def cached_share(prompt_cache: Mapping[str, int]) -> float | None:
    """Return the share of prompt tokens that the endpoint had in its cache.

    Args:
        prompt_cache: See `UsageSummary.prompt_cache`.

    Returns:
        0 to 1; None if no endpoint told how many tokens it had there.
    """
    reported_tokens = prompt_cache.get("told", 0)
    if reported_tokens == 0:
        return None
    return prompt_cache["reused"] / reported_tokens


def _counts_by_predictor(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Return counts of (predictor, name) by predictor, and then by name, both sorted."""
    by_predictor: dict[str, dict[str, int]] = {}
    for (predictor, name), count in sorted(counts.items()):
        by_predictor.setdefault(predictor, {})[name] = count
    return by_predictor
