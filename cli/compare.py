"""`mempiler compare`: whether runs differ, question by question."""

from __future__ import annotations

import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ..errors import UserError
from .options import JSON, MIN_N, OVERWRITE, Finite
from .printing import output, print_json, table

if TYPE_CHECKING:
    from rich.table import Table

    from ..runs.compare import Comparison, Preferences, Recorded
    from ..runs.pages.page import Category
    from ..runs.statistics import Difference


@click.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="BASELINE OTHER...")
@click.option("--gate", is_flag=True, help="end with code 1 if another is worse, or nobody can tell")
@MIN_N
@click.option("--margin", type=Finite(0), help="--gate: worse, too, where the mean difference is below -MARGIN")
@click.option("--preference", is_flag=True, help="have --judge-lm say whose responses it prefers: win rates")
@click.option(
    "--page", type=click.Path(dir_okay=False), metavar="FILE", help="write a page of all questions, side by side"
)
@click.option("--judge-lm", help="the judge of --preference: any model name DSPy takes")
@click.option("--judge-api-base", help="address of its server")
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="answers the judge has in flight")
@OVERWRITE
@JSON
def command(
    names: tuple[str, ...],
    gate: bool,
    min_n: int,
    margin: float | None,
    preference: bool,
    page: str | None,
    judge_lm: str | None,
    judge_api_base: str | None,
    threads: int,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Compare every OTHER with the BASELINE on the questions that both were asked.

    Each is a run: its folder, the end of the folder's name, its MLflow run id, or `last`.
    """
    from ..records.whole_file import refuse_foreign
    from ..runs.compare import compare, recorded
    from ..runs.pages.html import GENERATOR

    if not names[1:]:
        raise UserError(f"one run is nothing to compare: name another beside {names[0]!r}")
    if margin is not None and not gate:
        raise UserError(f"--margin {margin:g} is for --gate; add it")
    if preference:
        from ..runs.setup import check_model

        if not judge_lm:
            raise UserError("--preference asks a judge; name its model with --judge-lm")
        check_model(judge_lm, "judge", judge_api_base)
    if page is not None:
        refuse_foreign(Path(page), GENERATOR, force=overwrite)
    console = output(errors=True) if as_json else output()
    runs = [recorded(name) for name in names]
    found = [compare(runs[0], other, min_n) for other in runs[1:]]
    if page is not None:
        _write_page(page, runs, min_n)
    preferred = _preferred(runs, str(judge_lm), judge_api_base, threads) if preference else []
    verdict = _gate(found, margin) if gate else None
    if as_json:
        print_json(
            {
                "runs": [run.usage() for run in runs],
                "comparisons": [each.to_dict() for each in found],
                **({"preferences": [each.to_dict() for each in preferred]} if preference else {}),
                "gate": verdict and {"passed": verdict[0], "message": verdict[1]},
            }
        )
    else:
        _print(console, runs, found)
        for each in preferred:
            console.print(_win_rate(each, runs[0].name), soft_wrap=True)
        if verdict:
            console.print(verdict[1], soft_wrap=True)
    if verdict and not verdict[0]:
        sys.exit(1)


def _write_page(file: str, runs: Sequence[Recorded], min_n: int) -> None:
    from ..records.whole_file import replacing
    from ..runs.compare import side_by_side
    from ..runs.pages.html import as_html

    with replacing(Path(file)) as page:
        page.write(as_html(side_by_side(runs, min_n)))


def _preferred(runs: Sequence[Recorded], lm: str, api_base: str | None, threads: int) -> list[Preferences]:
    from ..data.judge import PreferenceJudge
    from ..engines.meter import Meter
    from ..engines.models import endpoint_errors, language_model
    from ..programs.adapter import adapter
    from ..runs.compare import preferences

    model = language_model(lm, Meter(), "judge", api_base)
    judge = PreferenceJudge(model, adapter("chat"))
    with endpoint_errors():
        return [preferences(runs[0], other, judge, threads) for other in runs[1:]]


def _win_rate(found: Preferences, baseline: str) -> str:
    span = found.interval
    sure = f", 95 % interval [{span.low:.3f}, {span.high:.3f}] (resampled by {span.unit})" if span else ""
    counts = f"{found.wins} preferred, {found.ties} ties, {found.losses} not, {found.unreadable} unreadable"
    rate = f"win rate of {found.run} over {baseline}: {_number(found.rate)}{sure}, {_number(found.tied)} tied"
    return f"{rate}; {counts}; judge prompt {found.judge_hash[:12]}"


def _gate(found: Sequence[Comparison], margin: float | None) -> tuple[bool, str]:
    """Whether nothing is worse than the baseline and everything can be told, and that in one line."""
    refused = [(each, why) for each in found if (why := each.refusal(margin))]
    told = "; ".join(f"{each.other.name} {why} ({each.overall.difference})" for each, why in refused)
    if refused:
        return False, f"gate: against {found[0].baseline.name}: {told}"
    told = "; ".join(f"{each.other.name} ({each.overall.difference})" for each in found)
    return True, f"gate: nothing worse than {found[0].baseline.name}: {told}"


def _print(console: Any, runs: Sequence[Recorded], found: Sequence[Comparison]) -> None:
    from ..runs.pages.page import heading

    letters = [_letter(n) for n in range(len(runs))]
    for letter, run in zip(letters, runs, strict=True):
        console.print(Text(f"{letter} = {run.name}: {heading(run.evaluation)}"), soft_wrap=True)
    for letter, each in zip(letters[1:], found, strict=True):
        console.print()
        console.print(_table(letter, each))
        console.print(f"{letter} against {letters[0]}: {_told(each.overall.difference)}", soft_wrap=True)
        for warning in each.warnings:
            console.print(f"note: {warning}", soft_wrap=True)
    console.print()
    console.print(_usage_table(letters, runs))


def _table(letter: str, comparison: Comparison) -> Table:
    heads = ("category", "n", "A", letter, f"{letter} - A", "95 % interval", "+/-/=", "p", "verdict")
    parts = comparison.by.values()
    named = [(found.name if found.counts else f"{found.name} (not in score)", found) for found in parts]
    rows = [(name, *_cells(found)) for name, found in (*named, ("score", comparison.overall))]
    return table(heads, rows, section=len(named))


def _cells(found: Category) -> list[str]:
    difference, span = found.difference, found.difference.interval
    return [
        str(difference.n),
        *(_number(each.value) for each in found.scores),
        f"{difference.mean:+.3f}" if difference.n else "-",
        f"{span.low:+.3f} {span.high:+.3f}" if span else "-",
        f"{difference.wins}/{difference.losses}/{difference.ties}",
        difference.short_p if difference.n else "-",
        difference.verdict,
    ]


def _told(found: Difference) -> str:
    """The headline difference in words."""
    unit = f" (95 % interval and p by {found.interval.unit})" if found.interval else ""
    few = f"; --min-n is {found.min_n}" if found.verdict == "too few to tell" else ""
    return f"{found}{unit}: {found.verdict}{few}"


def _usage_table(letters: Sequence[str], runs: Sequence[Recorded]) -> Table:
    heads = ("", "n", "score", "failed", "LM calls", "cached", "tokens", "cost", "s/question", "prompt")
    rows = list[Sequence[str]]()
    for letter, run in zip(letters, runs, strict=True):
        found = run.usage()
        calls = sum(count for role, count in found["calls"].items() if role != "cached")
        rows.append(
            (
                letter,
                str(found["n"]),
                _number(found["score"]),
                str(found["failures"]),
                str(calls),
                str(found["calls"].get("cached", 0)),
                f"{sum(found['tokens'].values()):,}",
                "unknown" if found["cost"] is None else f"${found['cost']:.4f}",
                _number(found["latency"]),
                "-" if found["prompt_tokens"] is None else f"{found['prompt_tokens']:,.0f}",
            )
        )
    return table(heads, rows)


def _letter(n: int) -> str:
    letters = string.ascii_uppercase
    return letters[n] if n < len(letters) else f"{letters[n % 26]}{n // 26}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
