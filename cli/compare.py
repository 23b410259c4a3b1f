"""`mempiler compare`: whether runs or programs differ, question by question."""

from __future__ import annotations

import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..errors import UserError
from .options import (
    MIN_N,
    OVERWRITE,
    PART,
    Finite,
    first_line,
    make_setup,
    output,
    parse_settings,
    print_json,
    setup_options,
)
from .progress import progress

if TYPE_CHECKING:
    from ..runs.compare import Comparison, Paired, Recorded
    from ..runs.preference import Preferences
    from ..runs.statistics import Difference

_JUDGING = ("judge_lm", "judge_api_base", "threads")
"""Options of --preference that finished runs do not refuse."""


@click.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="BASELINE OTHER...")
@setup_options
@PART
@click.option("--gate", is_flag=True, help="end with code 1 if another is worse, or nobody can tell")
@MIN_N
@click.option("--margin", type=Finite(0), help="--gate: worse, too, where the mean difference is below -MARGIN")
@click.option("--preference", is_flag=True, help="have --judge-lm say whose responses it prefers: win rates")
@click.option(
    "--page", type=click.Path(dir_okay=False), metavar="FILE", help="write a page of all questions, side by side"
)
@click.option(
    "--wrong-golds",
    multiple=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="leave out questions whose gold answer is known to be wrong; may be given again",
)
@OVERWRITE
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    as_json: bool,
    gate: bool,
    min_n: int,
    margin: float | None,
    preference: bool,
    page: str | None,
    wrong_golds: tuple[str, ...],
    overwrite: bool,
    **values: Any,
) -> None:
    """Compare every OTHER with the BASELINE on the questions that both were asked.

    Each is a run (its folder, the end of the folder's name, or its MLflow run id). A method name or the folder of a
    saved program is evaluated first; that needs --on.
    """
    from ..records.whole_file import refuse_foreign
    from ..runs.compare import compare
    from ..runs.pages.render import GENERATOR

    if not names[1:]:
        raise UserError(f"one run is nothing to compare: name another beside {names[0]!r}")
    if margin is not None and not gate:
        raise UserError(f"--margin {margin:g} is for --gate; add it")
    if preference and not values["judge_lm"]:
        raise UserError("--preference asks a judge; name its model with --judge-lm")
    judging = {name: values[name] for name in _JUDGING}
    if preference:
        from ..runs.setup import check_model

        check_model(judging["judge_lm"], "judge", judging["judge_api_base"])
    if page is not None:
        refuse_foreign(Path(page), GENERATOR, force=overwrite)
    console = output(errors=True) if as_json else output()
    runs = _runs(ctx, names, values, console)
    if wrong_golds:
        from ..runs.wrong_golds import read_wrong_golds

        golds = read_wrong_golds(wrong_golds)
        runs = [golds.left_out(run) for run in runs]
    found = [compare(runs[0], other, min_n) for other in runs[1:]]
    if page is not None:
        _write_page(page, runs, min_n)
    preferred = _preferred(runs, judging) if preference else []
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


# A benchmark is needed only where something is yet to be evaluated.
next(option for option in command.params if option.name == "benchmark").required = False


def _runs(ctx: click.Context, names: Sequence[str], values: dict[str, Any], console: Any) -> list[Recorded]:
    """Every run by its name; all that are there are read before anything is evaluated."""
    from ..runs.compare import recorded

    found = {name: None if _is_program(name) else recorded(name) for name in names}
    missing = [name for name, run in found.items() if run is None]
    if missing:
        found |= _evaluated(missing, [run for run in found.values() if run is not None], values, console)
    else:
        given = [name for name in values if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE]
        given = [name for name in given if not (ctx.params["preference"] and name in _JUDGING)]
        if given:
            option = next(each.opts[-1] for each in ctx.command.params if each.name == given[0])
            raise UserError(f"{option} says how programs are evaluated, but all that is compared are finished runs")
    return [run for run in (found[name] for name in names) if run is not None]


def _write_page(file: str, runs: Sequence[Recorded], min_n: int) -> None:
    from ..records.whole_file import replacing
    from ..runs.pages.keep import as_html
    from ..runs.pages.open import side_by_side

    with replacing(Path(file)) as page:
        page.write(as_html(side_by_side(runs, min_n)))


def _is_program(name: str) -> bool:
    from ..programs.external.resolve import ANSWERS
    from ..programs.names import is_method
    from ..runs.addresses import is_address
    from ..runs.artifact import MANIFEST
    from ..runs.folder import RUN, RunFolder

    folder = Path(name)
    if (folder / RUN).is_file():
        return False
    if (folder / MANIFEST).is_file() or is_address(name) or is_method(name) or name.endswith(ANSWERS):
        return True
    try:
        RunFolder.open(name)
    except UserError as error:
        raise UserError(f"{error}, the folder of a saved program, or a method of `mempiler list`") from error
    return False


def _evaluated(
    names: Sequence[str], others: Sequence[Recorded], values: dict[str, Any], console: Any
) -> dict[str, Recorded]:
    """Evaluates programs; first checks, without paid calls, that they can be compared."""
    from ..engines.meter import Meter
    from ..runs.addresses import program_folder
    from ..runs.artifact import read_states
    from ..runs.compare import recorded
    from ..runs.experiment import chosen_examples, compiled_on, run_evaluate
    from ..runs.results import refuse_broken

    if not values["benchmark"]:
        raise UserError(f"{names[0]!r} is a program, not a run; name the benchmark to evaluate it on with --on")
    if values["resume"] or values.pop("planned", False):
        raise UserError("--resume and --plan are for one run; evaluate the program by itself, then compare the runs")
    part, config, allow_code = values.pop("part"), parse_settings(values.pop("config")), values.pop("allow_code")
    setup, errors, found = make_setup(values), output(errors=True), {}
    first_line(console, setup, part=part)
    benchmark = setup.load()
    asked = {str(example.id) for example in chosen_examples(setup, benchmark, part)}
    for run in others:
        if asked.isdisjoint(row.id for row in run.evaluation.rows):
            raise UserError(f"{run.name} was asked none of these questions; give it the same --data and --part")
    folders = {name: program_folder(name) for name in names}
    for folder in filter(None, folders.values()):
        read_states(folder)
    for name in names:
        folder = folders[name]
        if part == "all" and folder is not None and compiled_on(folder, benchmark):
            errors.print(f"note: {name} was compiled on this file; --part test leaves its training questions out")
        meter = Meter()
        with progress(errors, meter, setup.limits) as note:
            evaluation = run_evaluate(name, setup, part, config, note, allow_code, meter)
        found[name] = recorded(str(evaluation.run_id))
        refuse_broken(evaluation, evaluation.run_id)
    return found


def _preferred(runs: Sequence[Recorded], judging: dict[str, Any]) -> list[Preferences]:
    from ..data.preference import PreferenceJudge
    from ..engines.meter import Meter
    from ..engines.models import endpoint_errors, language_model
    from ..programs.adapter import adapter
    from ..runs.preference import preferences

    model = language_model(judging["judge_lm"], Meter(), "judge", judging["judge_api_base"])
    judge = PreferenceJudge(model, adapter("chat"))
    with endpoint_errors():
        return [preferences(runs[0], other, judge, judging["threads"]) for other in runs[1:]]


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
    from ..runs.report import heading

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
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in ("category", "n", "A", letter, f"{letter} - A", "95 % interval", "+/-/=", "p", "verdict"):
        side = "left" if name in ("category", "verdict") else "right"
        table.add_column(name, justify=side, no_wrap=name not in ("category", "verdict"))
    for found in comparison.by.values():
        table.add_row(Text(found.name if found.in_score else f"{found.name} (not in score)"), *_cells(found))
    table.add_section()
    table.add_row("score", *_cells(comparison.overall))
    return table


def _cells(found: Paired) -> list[str]:
    difference, span = found.difference, found.difference.interval
    return [
        str(difference.n),
        _number(found.a),
        _number(found.b),
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
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in ("", "n", "score", "failed", "LM calls", "cached", "tokens", "cost", "s/question", "prompt"):
        table.add_column(name, justify="left" if name == "" else "right", no_wrap=True)
    for letter, run in zip(letters, runs, strict=True):
        found = run.usage()
        table.add_row(
            letter,
            str(found["n"]),
            _number(found["score"]),
            str(found["failures"]),
            str(sum(count for role, count in found["calls"].items() if role != "cached")),
            str(found["calls"].get("cached", 0)),
            f"{sum(found['tokens'].values()):,}",
            "unknown" if found["cost"] is None else f"${found['cost']:.4f}",
            _number(found["latency"]),
            "-" if found["prompt_tokens"] is None else f"{found['prompt_tokens']:,.0f}",
        )
    return table


def _letter(n: int) -> str:
    letters = string.ascii_uppercase
    return letters[n] if n < len(letters) else f"{letters[n % 26]}{n // 26}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
