"""`mempiler judge`: how lenient a judge is."""

from __future__ import annotations

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from .options import JSON, output, print_json


@click.group("judge")
def command() -> None:
    """Look into judges before their scores are believed."""


@command.command("check")
@click.option("--judge-lm", default="offline", show_default=True, help="the judge: any model name DSPy takes")
@click.option("--judge-api-base", help="address of its server")
@click.option("--adapter", default="chat", show_default=True, help="chat, json, auto or compact")
@click.option("--data", type=click.Path(), help="labelled answers, one JSON object a line [default: the bundled ones]")
@click.option("--on", "benchmark", metavar="BENCHMARK", help="check the judge of this benchmark [default: ours]")
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="answers in flight")
@JSON
def check(
    judge_lm: str,
    judge_api_base: str | None,
    adapter: str,
    data: str | None,
    benchmark: str | None,
    threads: int,
    as_json: bool,
) -> None:
    """Let a judge judge answers that are known to be right, vague or wrong, and count what it accepts.

    The share of bundled wrong answers that it accepts is from then on told beside the scores that it gives.
    """
    from ..data.judge_check import check_judge, judge_of, read_labelled
    from ..engines.meter import Meter
    from ..engines.models import endpoint_errors, language_model
    from ..programs.adapter import adapter as make_adapter
    from ..runs.leniency import judge_name, keep

    labelled = read_labelled(data)
    model = language_model(judge_lm, Meter(), "judge", judge_api_base)
    judge = judge_of(benchmark)(model, make_adapter(adapter))
    with endpoint_errors():
        report = check_judge(judge, labelled, threads)
    if data is None:
        keep(judge_name(model.model, report.hash), report.wrong.rate)
    if as_json:
        print_json({"judge_lm": judge_lm, **report.to_dict()})
        return
    console = output()
    name = "offline engine (extractive, no language model: a wiring check)" if judge_lm == "offline" else judge_lm
    console.print(f"judge: {name}, prompt {report.hash[:12]}", soft_wrap=True)
    table = Table(box=SIMPLE_HEAD)
    for title in ("answers", "n", "accepted", "rate", "should be", "unreadable"):
        table.add_column(title, justify="left" if title == "answers" else "right")
    rows = {**report.kinds, "all right": report.right, "all wrong": report.wrong}
    for kind, found in rows.items():
        should = "1" if kind.endswith("right") else "0"
        table.add_row(kind, str(found.n), str(found.accepted), _number(found.rate), should, str(found.unreadable))
    console.print(table)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
