"""Tables for people. All numbers come from `results`.

Every table says which model, which data and how many questions it rests on. A bundled sample or the offline engine
heads it with "wiring check, not comparable".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .results import Evaluation, cached_share
from .rows import SHOWN
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


def print_evaluation(console: Console, evaluation: Evaluation) -> None:
    """Prints scores by category, retrieval, calls and failures."""
    summary = evaluation.summary()
    # Outside the table, which would break the line at its own width.
    console.print(Text(heading(evaluation)), soft_wrap=True)
    table = Table()
    for name in ("category", "n", "score", *summary["metrics"], "context tokens", "failures"):
        table.add_column(name, justify="left" if name == "category" else "right")
    for found in summary["by"].values():
        label = _label(found)
        parts = [*(_number(found.get(name)) for name in summary["metrics"]), _size(found["context_tokens"])]
        table.add_row(label, str(found["n"]), _number(found["score"]), *parts, str(found["failures"]))
    table.add_section()
    size = summary["context"]["tokens"] if evaluation.n else None
    parts = [*(_number(value) for value in summary["metrics"].values()), _size(size)]
    table.add_row("score", str(evaluation.n), _number(evaluation.score), *parts, str(evaluation.failures))
    console.print(table)
    print_aggregate(console, evaluation.aggregate)
    console.print(_interval_line(summary))
    console.print(usage_line(evaluation), soft_wrap=True)
    print_answers(console, evaluation)


def print_answers(console: Console, evaluation: Evaluation, name: str = "") -> None:
    """Prints how predictor calls ended, on one line."""
    counts = evaluation.outcomes
    if not sum(counts.values()):
        return
    ended = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    console.print(Text(f"{name}{': ' if name else ''}answers: {ended}"), soft_wrap=True)


def print_comparison(
    console: Console,
    start: Evaluation,
    result: Evaluation,
    difference: Difference,
    refused: str | None = None,
) -> None:
    """Prints before and after by category, and the paired difference with its interval, or why the start was kept."""
    console.print(Text(f"test questions, {heading(result)}"), soft_wrap=True)
    table = Table()
    for name in ("category", "n", "before", "after", "difference"):
        table.add_column(name, justify="left" if name == "category" else "right")
    after = result.by_category()
    for key, before in start.by_category().items():
        then = after[key]["score"] if key in after else None
        table.add_row(
            _label(before), str(before["n"]), _number(before["score"]), _number(then), _signed(then, before["score"])
        )
    table.add_section()
    table.add_row(
        "score", str(start.n), _number(start.score), _number(result.score), _signed(result.score, start.score)
    )
    sizes = start.prompt_tokens, result.prompt_tokens
    if None not in sizes:
        change = f"{(sizes[1] or 0) - (sizes[0] or 0):+,.0f}"
        table.add_row("prompt tokens a question", "", _size(sizes[0]), _size(sizes[1]), change)
    console.print(table)
    console.print(difference_line(difference, refused), soft_wrap=True)
    for name, evaluation in (("before", start), ("after", result)):
        console.print(f"{name}: {usage_line(evaluation)}", soft_wrap=True)
        print_answers(console, evaluation, name)


def difference_line(difference: Difference, refused: str | None = None) -> str:
    """The paired difference in words, or why the compiled program was not kept."""
    if refused is not None:
        return f"{refused}. Kept the original program; use --force to keep the compiled one."
    return f"test questions, after minus before: {difference}: {difference.verdict}"


def print_aggregate(console: Console, found: Mapping[str, int | float]) -> None:
    """Prints the metrics of all answers together: those named "thing METRIC" as a table of things, others on a line."""
    parts = {name: tuple(name.rpartition(" ")[::2]) for name in found}
    tabled = {name: place for name, place in parts.items() if place[0] and place[1].isupper()}
    if tabled:
        metrics = list(dict.fromkeys(metric for _, metric in tabled.values()))
        table = Table()
        for name in ("over all answers", *metrics):
            table.add_column(name, justify="left" if name == "over all answers" else "right")
        for thing in dict.fromkeys(thing for thing, _ in tabled.values()):
            table.add_row(Text(thing), *(_counted(found.get(f"{thing} {metric}")) for metric in metrics))
        console.print(table)
    rest = {name: value for name, value in found.items() if name not in tabled}
    words = [f"{name} {value}" if isinstance(value, int) else f"{name} {value:.3f}" for name, value in rest.items()]
    if words:
        console.print(Text(f"over all answers: {', '.join(words)}"), soft_wrap=True)


def usage_line(evaluation: Evaluation) -> str:
    """Calls, tokens, cost, time and failures on one line."""
    writes = f", {evaluation.write_failures} failed writes" if evaluation.write_failures else ""
    recall = evaluation.retrieval()
    found = [f"evidence recall of the context that the task saw {recall.pop(SHOWN):.3f}"] if SHOWN in recall else []
    found += (
        [f"of the index alone {', '.join(f'{name} {value:.3f}' for name, value in recall.items())}"] if recall else []
    )
    spent = spent_line(evaluation.spent)
    size = evaluation.context()
    recalled = f"context {size['hits']:.1f} entries, {size['tokens']:,.0f} tokens"
    recalled += f"; prompts {evaluation.prompt_tokens:,.0f} tokens a question" if evaluation.prompt_tokens else ""
    line = f"{spent}; {evaluation.seconds:.1f} s; {evaluation.failures} failures{writes}"
    return "; ".join([line, *found, recalled])


def known_facts(parameters: Mapping[str, Any], program: str) -> list[tuple[str, str]]:
    """What `run.json` says of the settings, but no path and no address.

    Args:
        parameters: As `setup.parameters` gives them.
        program: Digest of the program.
    """
    found = [(words, str(parameters[key])) for key, words in _FACTS.items() if parameters.get(key) is not None]
    for words, prefix in (("Settings", "method."), ("LM settings", "lm."), ("Optimizer", "optimizer.")):
        own = {key.removeprefix(prefix): value for key, value in parameters.items() if key.startswith(prefix)}
        told = ", ".join(f"{key} = {value}" for key, value in own.items() if value not in (None, {}, ""))
        found += [(words, told)] if told else []
    digests = [("Data, sha256", parameters.get("data_sha256")), ("Program, digest", program)]
    return found + [(words, str(value)[:16]) for words, value in digests if value]


def spent_facts(phases: Mapping[str, Evaluation]) -> list[tuple[str, str]]:
    """Calls, tokens, cost and time of evaluations, a name and a value each."""
    told = []
    for name, found in phases.items():
        # A training counts what it takes by itself.
        if not found.calls and not found.seconds:
            continue
        calls = ", ".join(f"{count:,} {role}" for role, count in found.calls.items() if count) or "none"
        cost = "price not known" if found.cost is None else f"${found.cost:.4f}"
        where = f", {name}" if len(phases) > 1 else ""
        told.append((f"Calls{where}", f"{calls}; {tokens_line(found.tokens)}; {cost}; {found.seconds:.1f} s"))
    return told


def spent_line(usage: Mapping[str, Any]) -> str:
    """Calls, tokens and cost, as `results.counts_of` gives them, on one line."""
    calls = ", ".join(f"{count} {role}" for role, count in usage["calls"].items() if count or role == "task")
    share = cached_share(usage.get("prompt_cache") or {})
    reused = "" if share is None else f" ({share:.0%} of the prompts from the server's cache)"
    tokens = f"{tokens_line(usage['tokens'])}{reused}"
    cost = "no price known" if usage["cost"] is None else f"${usage['cost']:.4f}"
    return f"LM calls: {calls}; {tokens}; {cost}"


def tokens_line(tokens: Mapping[str, int]) -> str:
    """Tokens in words; and of how many calls they are estimated, where the endpoint did not tell."""
    calls = tokens.get("estimated_calls", 0)
    estimated = f" (estimated for {calls:,} calls: the endpoint reports no usage)" if calls else ""
    return f"{tokens.get('input', 0):,} + {tokens.get('output', 0):,} tokens{estimated}"


def _label(category: dict[str, Any]) -> Text:
    """A category's name as it is: a user's own may hold brackets, which rich takes for markup."""
    return Text(category["name"] if category["in_score"] else f"{category['name']} (not in score)")


def _interval_line(summary: dict[str, Any]) -> str:
    if summary["interval"] is None:
        return "too few questions for an interval"
    low, high = summary["interval"]
    return f"95 % interval [{low:.3f}, {high:.3f}] (resampled by {summary['interval_unit']})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _counted(value: float | None) -> str:
    """A number of things as it is, others as scores."""
    return str(value) if isinstance(value, int) else _number(value)


def _size(tokens: float | None) -> str:
    return "-" if tokens is None else f"{tokens:,.0f}"


def _signed(after: float | None, before: float | None) -> str:
    return "-" if after is None or before is None else f"{after - before:+.3f}"
