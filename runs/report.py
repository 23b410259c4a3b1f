"""What people are told of a run, a line each: what its numbers rest on, what it took, and what differs.

A bundled sample or the offline engine is a "wiring check, not comparable".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .results import Evaluation, cached_share
from .statistics import Difference

WIRING = "wiring check, not comparable"
_FACTS = {
    "task": "Task",
    "lm": "Language model",
    "prompt_lm": "Prompt model",
    "judge_lm": "Judge",
    "embedder": "Embedder",
    "adapter": "Adapter",
    "seed": "Seed",
}
"""Parameters of a run that its page shows, as they are."""


def heading(evaluation: Evaluation) -> str:
    """One line on how reliable the numbers are."""
    warning = "" if evaluation.comparable else f" ({WIRING})"
    judge = f", judge {evaluation.judge}" if evaluation.judge else ""
    models = f"LM {evaluation.lm}" + (f", embedder {evaluation.embedder}" if evaluation.embedder else "")
    return f"{evaluation.program} on {evaluation.benchmark}, {models}{judge}{warning}"


def difference_line(difference: Difference, refused: str | None = None) -> str:
    """The paired difference in words, or why the compiled program was not kept."""
    if refused is not None:
        return f"{refused}. Kept the original program; use --force to keep the compiled one."
    return f"test questions, after minus before: {difference}: {difference.verdict}"


def known_facts(parameters: Mapping[str, Any], program: str) -> list[tuple[str, str]]:
    """What a run's `parameters` say of the settings, and the program's digest, but no path and no address."""
    found = [(words, str(parameters[key])) for key, words in _FACTS.items() if parameters.get(key) is not None]
    for words, prefix in (("Settings", "method."), ("LM settings", "lm."), ("Optimizer", "optimizer.")):
        own = {key.removeprefix(prefix): value for key, value in parameters.items() if key.startswith(prefix)}
        told = ", ".join(f"{key} = {value}" for key, value in own.items() if value not in (None, {}, ""))
        found += [(words, told)] if told else []
    digests = [("Data, sha256", parameters.get("data_sha256")), ("Program, digest", program)]
    return found + [(words, str(value)[:16]) for words, value in digests if value]


def spent_facts(phases: Mapping[str, Evaluation]) -> list[tuple[str, str]]:
    """Calls, tokens, cost and time of evaluations, a name and a value each."""
    # A training counts what it takes by itself.
    told = {name: found for name, found in phases.items() if found.calls or found.seconds}
    return [
        (f"LM calls, {name}" if len(phases) > 1 else "LM calls", f"{spent_line(found.spent)}; {found.seconds:.1f} s")
        for name, found in told.items()
    ]


def spent_line(usage: Mapping[str, Any]) -> str:
    """Calls, tokens and cost, as `results.counts_of` gives them, on one line."""
    calls = ", ".join(f"{count} {role}" for role, count in usage["calls"].items() if count or role == "task")
    share = cached_share(usage.get("prompt_cache") or {})
    reused = "" if share is None else f" ({share:.0%} of the prompts from the server's cache)"
    tokens, cost = usage["tokens"], "no price known" if usage["cost"] is None else f"${usage['cost']:.4f}"
    guessed = tokens.get("estimated_calls", 0)
    estimated = f" (estimated for {guessed:,} calls: the endpoint reports no usage)" if guessed else ""
    return f"{calls}; {tokens.get('input', 0):,} + {tokens.get('output', 0):,} tokens{estimated}{reused}; {cost}"
