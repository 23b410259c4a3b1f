"""Lines of text about a run: what its scores rest on, and what its calls took.

The page of a run, the terminal and `print(result)` show the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..metered_usage import cached_share
from ..results import Evaluation
from ..statistics import Difference

SMOKE_TEST = "smoke test, not comparable"
"""What is said of scores on a bundled sample, or of the offline engine."""

_SETTING_TITLES = {
    "task": "Task",
    "metric": "Metric",
    "lm": "Language model",
    "prompt_lm": "Prompt model",
    "judge_lm": "Judge",
    "answer_lm": "Answering model",
    "embedder": "Embedder",
    "adapter": "Adapter",
    "seed": "Seed",
}
"""Logged parameters that are shown, each in a line of its own, and what the line is called."""

_SETTING_GROUP_TITLES = {
    "method.": "Settings",
    "lm.": "LM settings",
    "optimizer.": "Optimizer",
}
"""Beginnings of the names of logged parameters that are shown together on one line."""

_DIGEST_LENGTH = 16
"""Digits of a digest that are shown."""


class Fact(NamedTuple):
    """A named line of a page."""

    name: str
    value: str


def describe_evaluation(evaluation: Evaluation) -> str:
    """Return program, benchmark and models on one line, with a warning if it is a smoke test."""
    models = f"LM {evaluation.lm}"
    if evaluation.embedder:
        models += f", embedder {evaluation.embedder}"
    if evaluation.judge:
        models += f", judge {evaluation.judge}"
    warning = "" if evaluation.comparable else f" ({SMOKE_TEST})"
    return f"{evaluation.program} on {evaluation.benchmark}, {models}{warning}"


def difference_line(difference: Difference, questions: str = "test questions") -> str:
    """Return the paired difference on some questions with its verdict and scope, on one line."""
    return f"{questions}, after minus before: {difference.statement}"


def setting_facts(parameters: Mapping[str, Any], program_digest: str) -> list[Fact]:
    """Return the settings among a run's logged parameters, and the digests of data and program.

    Paths and addresses of endpoints are left out, since a page may be shown to others.
    """
    facts: list[Fact] = []
    for key, title in _SETTING_TITLES.items():
        if parameters.get(key) is not None:
            facts.append(Fact(title, str(parameters[key])))

    for prefix, title in _SETTING_GROUP_TITLES.items():
        settings: list[str] = []
        for key, value in parameters.items():
            if key.startswith(prefix) and value not in (None, {}, ""):
                settings.append(f"{key.removeprefix(prefix)} = {value}")
        if settings:
            facts.append(Fact(title, ", ".join(settings)))

    data_digest = parameters.get("data_sha256")
    if data_digest:
        facts.append(Fact("Data, sha256", str(data_digest)[:_DIGEST_LENGTH]))
    if program_digest:
        facts.append(Fact("Program, digest", program_digest[:_DIGEST_LENGTH]))
    return facts


def usage_facts(phases: Mapping[str, Evaluation]) -> list[Fact]:
    """Return what the calls and the searches of every evaluation took, by the name of its phase."""
    facts: list[Fact] = []
    for phase, evaluation in phases.items():
        suffix = f", {phase}" if len(phases) > 1 else ""
        calls = usage_line(evaluation.metered_usage)
        facts.append(Fact(f"LM calls{suffix}", f"{calls}; {evaluation.seconds:.1f} s"))

        has_searches = any(row.search is not None for row in evaluation.rows)
        if has_searches:
            times = "p50 {p50:.1f} ms, p95 {p95:.1f} ms, CPU {cpu:.1f} ms"
            facts.append(Fact(f"Retrieval{suffix}", times.format(**evaluation.search_ms())))
    return facts


def usage_line(usage: Mapping[str, Any]) -> str:
    """Return calls, tokens and cost, as `metered_usage.UsageSummary` gives them, on one line."""
    calls: list[str] = []
    for role, count in usage["calls"].items():
        # Calls of the task are named even if there were none.
        if count or role == "task":
            calls.append(f"{count} {role}")

    token_counts = usage["tokens"]
    input_tokens = token_counts.get("input", 0)
    output_tokens = token_counts.get("output", 0)
    tokens = f"{input_tokens:,} prompt + {output_tokens:,} answer tokens"
    estimated_calls = token_counts.get("estimated_calls", 0)
    if estimated_calls:
        reason = "the endpoint reports none, or too few"
        tokens += f" (estimated for {estimated_calls:,} calls: {reason})"

    share = cached_share(usage.get("prompt_cache") or {})
    if share is not None:
        tokens += f" ({share:.0%} of the prompts from the server's cache)"

    cost = "no price known"
    if usage["cost"] is not None:
        cost = f"${usage['cost']:.4f}"
    return f"{', '.join(calls)}; {tokens}; {cost}"
