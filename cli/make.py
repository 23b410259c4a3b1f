"""`mempiler make`: a language model writes a data set; what was accepted and refused is in `generation/report.json`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BudgetError, EndpointError, Stopped, UserError
from .options import API_BASE, JSON, LM, USD
from .printing import output, print_json, table

if TYPE_CHECKING:
    from rich.console import Console

    from ..data.synthesis.runner import Report, Runner
    from ..engines.embedders import TextEmbedder

SHOWN = 20
"""Rejections printed; the rest are in the report file."""
Job = Callable[["Runner", Callable[[str], None]], list[Path]]
"""Makes the files with a runner, and tells its second argument a line per user."""


def _running(attempts: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds what all generation runs take."""
    options = [
        click.option("--out", required=True, type=click.Path(), help="folder for the files"),
        LM,
        API_BASE,
        click.option("--max-calls", type=click.IntRange(0), help="stop after so many LM calls; --resume goes on"),
        click.option("--max-usd", type=USD, help="stop when so much money is spent; --resume goes on"),
        click.option("--threads", type=click.IntRange(1), default=128, show_default=True, help="calls in flight"),
        click.option(
            "--attempts",
            type=click.IntRange(1),
            default=attempts,
            show_default=True,
            help="of a step, then it is given up; with more of them --resume tries again what was",
        ),
        click.option("--resume", is_flag=True, help="go on with the run in --out: pay only for what is missing"),
        JSON,
    ]

    def added(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return added


@click.group("make")
def command() -> None:
    """Let a language model write a data set."""


@command.command("memoryquest")
@click.option("--profiles", required=True, type=click.Path(), help="folder of PersonaLens profiles")
@click.option("--users", type=click.IntRange(1), help="how many users [default: all]")
@click.option("--embedder", default="offline", show_default=True, help="an embedding model's name, for the gate")
@click.option("--embedder-api-base", help="address of an OpenAI-compatible embedding server")
@click.option("--seed", type=int, default=0, show_default=True, help="draws the users")
@click.option("--force", is_flag=True, help="let the offline embedder measure how near requests are to references")
@_running(attempts=3)
def make_quest(
    profiles: str,
    users: int | None,
    embedder: str,
    embedder_api_base: str | None,
    seed: int,
    force: bool,
    as_json: bool,
    **running: Any,
) -> None:
    """Write MemoryQuest from PersonaLens profiles: --out gets a file per user, and generation/report.json.

    Ends with code 1 if no user came through all checks.
    """
    from ..data.synthesis.memoryquest import THRESHOLD, check_embedder, choose, make_memoryquest, read_profiles
    from ..engines.embedders import embedder as embedder_by_name

    chosen, out = choose(read_profiles(profiles), users, seed), running["out"]
    vectors = embedder_by_name(embedder, embedder_api_base)
    check_embedder(vectors, force)
    about = {"embedder": vectors.name, "threshold": THRESHOLD, "users": [profile.user_id for profile in chosen]}
    summary = _generate(
        about, lambda runner, note: make_memoryquest(chosen, Path(out), runner, vectors, note), vectors, **running
    )
    said = f"{len(summary['files'])} of {len(chosen)} users written to {out}, {summary['calls']} calls"
    _end(summary, said, f"{said}: no request came through all checks; give a model that can by --lm", as_json)


@command.command("palset")
@click.option("--users", required=True, type=click.IntRange(1), help="how many users")
@click.option("--months", type=click.IntRange(2, 24), help="months of each user [default: 7 to 12, drawn]")
@click.option("--language", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="of the data")
@click.option("--reviews", type=click.IntRange(0), default=1, show_default=True, help="rounds of finding and mending")
@click.option("--seed", type=int, default=0, show_default=True, help="draws months, hours and plans of dialogues")
@_running(attempts=10)
def make_pal(
    users: int,
    months: int | None,
    language: Any,
    reviews: int,
    seed: int,
    as_json: bool,
    **running: Any,
) -> None:
    """Write a PAL-Set for palbench: users with months of device logs, dialogues and preferences, all invented.

    --out gets input.json (zh) or input_en.json (en), the files beside it, and generation/report.json. Ends with code 1
    if no user came through all steps.
    """
    from ..data.synthesis.palset.make import make_palset
    from ..data.synthesis.palset.people import Setting

    def job(runner: Runner, note: Callable[[str], None]) -> list[Path]:
        return make_palset(users, Path(running["out"]), Setting(language, months, seed, runner, reviews), note)

    about = {"users": users, "months": months, "language": language, "seed": seed, "reviews": reviews}
    summary = _generate(about, job, **running)
    said = f"{summary['calls']} calls"
    missing = f"{said}, no user came through all steps; go on with --resume and more --attempts, or give another --lm"
    _end(summary, f"{said}; use --on palbench.restate --data {next(iter(summary['files']), '')}", missing, as_json)


def _end(summary: dict[str, Any], said: str, missing: str, as_json: bool) -> None:
    output(errors=True).print(said if summary["files"] else missing, soft_wrap=True)
    if as_json:
        print_json(summary)
    if not summary["files"]:
        sys.exit(1)


def _generate(
    about: Mapping[str, Any],
    job: Job,
    embedder: TextEmbedder | None = None,
    *,
    attempts: int,
    out: str,
    lm: str,
    api_base: str | None,
    max_calls: int | None,
    max_usd: float | None,
    threads: int,
    resume: bool,
) -> dict[str, Any]:
    """Runs a job, writes its report and prints it, also when the run is stopped.

    Args:
        about: What the report tells of the job.
        job: Makes the files.
        embedder: One whose endpoint, if it has one, is counted and limited with the model.
        attempts: How often a step is asked before it is given up.
        out: Folder of the data; the model's answers are kept below it.
        lm: Name of the model that writes.
        api_base: Address of its server.
        max_calls: Calls after which the run stops.
        max_usd: Money after which it stops.
        threads: Calls in flight.
        resume: Whether the run in the folder goes on.

    Returns:
        The report: files written, numbers by step, every rejection, models and calls.

    Raises:
        UserError: The folder does not serve.
        EndpointError: The model cannot be reached; `--resume` goes on.
        BudgetError: A limit struck; `--resume` goes on.
    """
    import dspy

    from ..data.synthesis.runner import Runner
    from ..engines.guard import Guard, Limits
    from ..engines.meter import Meter
    from ..engines.models import endpoint_errors, language_model
    from ..engines.spending import needed_prices
    from ..records.whole_file import refuse_foreign, write_json
    from ..runs.home import make_folder
    from ..runs.run_store import RunStore

    console, meter, folder = output(errors=True), Meter(), Path(out) / "generation"
    report, answers = folder / "report.json", folder / "answers.sqlite"
    refuse_foreign(Path(out), "", f"{folder.name}/{answers.name}")
    if answers.exists() and not resume:
        raise UserError(f"{folder}: holds an earlier run; go on with it by --resume, or choose another --out")
    guard = Guard(Limits(max_calls=max_calls, max_usd=max_usd))
    prices = needed_prices(lm, max_usd)
    make_folder(folder)
    with closing(RunStore(answers)) as store:
        model = language_model(lm, meter, api_base=api_base, guard=guard, prices=prices, answers=store.answers)
        if embedder is not None and embedder.account is not None:
            embedder.account.open(meter, guard)
        runner = Runner(attempts, threads)
        files: list[Path] = []
        try:
            with endpoint_errors(), dspy.context(lm=model):
                files = job(runner, lambda line: console.print(line, soft_wrap=True))
        except KeyboardInterrupt as stop:
            raise Stopped(f"what was answered is kept in {folder}", ("--resume",)) from stop
        except (EndpointError, BudgetError) as error:
            raise type(error)(f"{error}; the same command with --resume goes on") from error
        finally:
            calls = sum(count for role, count in meter.read().calls.items() if role != "cached")
            found = {"files": [str(path) for path in files], "lm": lm, **about, "calls": calls}
            summary = found | runner.report.to_dict()
            write_json(report, summary)
            _show(console, runner.report, report)
    return summary


def _show(console: Console, report: Report, path: Path) -> None:
    """Numbers by step, then the first things that were given up, left out, or kept with a fault."""
    heads = ("step", "accepted", "retried", "left out of an answer", "given up")
    console.print(table(heads, [tuple(map(str, row.values())) for row in report.to_dict()["steps"]]))
    final = [one for one in report.rejections if one.outcome != "retried"]
    for one in final[:SHOWN]:
        console.print(f"{one.step} {one.id}: {one.outcome}: {'; '.join(one.problems)[:300]}", soft_wrap=True)
    if len(final) > SHOWN:
        console.print(f"... and {len(final) - SHOWN} more")
    console.print(f"report: {path}", soft_wrap=True)
