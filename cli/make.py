"""`mempiler make`: a language model writes a data set; what was accepted and refused is in `generation/report.json`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BudgetError, EndpointError, Stopped, UserError
from .options import API_BASE, JSON, LM, USD, adds
from .printing import output, report, table

if TYPE_CHECKING:
    from ..data.synthesis.runner import Runner
    from ..engines.embedders import TextEmbedder

Job = Callable[["Runner", Callable[[str], None]], list[Path]]
"""Makes the files with a runner, and tells its second argument a line per user."""


def _running(attempts: int) -> Callable[[Any], Any]:
    """Adds what all generation runs take."""
    tries = "of a step, then it is given up; with more of them --resume tries again what was"
    return adds(
        click.option("--out", required=True, type=click.Path(), help="folder for the files"),
        LM,
        API_BASE,
        click.option("--max-calls", type=click.IntRange(0), help="stop after so many LM calls; --resume goes on"),
        click.option("--max-usd", type=USD, help="stop when so much money is spent; --resume goes on"),
        click.option("--threads", type=click.IntRange(1), default=128, help="calls in flight"),
        click.option("--attempts", type=click.IntRange(1), default=attempts, help=tries),
        click.option("--seed", type=int, default=0, help="draws users, months, hours and plans of dialogues"),
        click.option("--resume", is_flag=True, help="go on with the run in --out: pay only for what is missing"),
        JSON,
    )


@click.group("make")
def command() -> None:
    """Let a language model write a data set."""


@command.command("memoryquest")
@click.option("--profiles", required=True, type=click.Path(), help="folder of PersonaLens profiles")
@click.option("--users", type=click.IntRange(1), help="how many users [default: all]")
@click.option("--embedder", default="offline", help="an embedding model's name, for the gate")
@click.option("--embedder-api-base", help="address of an OpenAI-compatible embedding server")
@click.option("--force", is_flag=True, help="let the offline embedder measure how near requests are to references")
@_running(attempts=3)
def make_quest(
    profiles: str,
    users: int | None,
    embedder: str,
    embedder_api_base: str | None,
    seed: int,
    force: bool,
    **running: Any,
) -> None:
    """Write MemoryQuest from PersonaLens profiles: --out gets a file per user, and generation/report.json.

    Ends with code 1 if no user came through all checks.
    """
    from ..data.synthesis.memoryquest import THRESHOLD, check_embedder, choose, make_memoryquest, read_profiles
    from ..engines.embedders import embedder as embedder_by_name

    chosen, out = choose(read_profiles(profiles), users, seed), Path(running["out"])
    vectors = embedder_by_name(embedder, embedder_api_base)
    check_embedder(vectors, force)

    def job(runner: Runner, note: Callable[[str], None]) -> list[Path]:
        return make_memoryquest(chosen, out, runner, vectors, note)

    about = {"embedder": vectors.name, "threshold": THRESHOLD, "users": [profile.user_id for profile in chosen]}
    hint = "no request came through all checks; give a model that can by --lm"
    _generate(about, job, hint, vectors, **running)


@command.command("palset")
@click.option("--users", required=True, type=click.IntRange(1), help="how many users")
@click.option("--months", type=click.IntRange(2, 24), help="months of each user [default: 7 to 12, drawn]")
@click.option("--language", type=click.Choice(["en", "zh"]), default="en", help="of the data")
@_running(attempts=10)
def make_pal(users: int, months: int | None, language: Any, seed: int, **running: Any) -> None:
    """Write a PAL-Set for palbench: users with months of device logs, dialogues and preferences, all invented.

    --out gets input.json (zh) or input_en.json (en), the files beside it, and generation/report.json. Ends with code 1
    if no user came through all steps.
    """
    from ..data.synthesis.palset.make import make_palset
    from ..data.synthesis.palset.people import Setting

    def job(runner: Runner, note: Callable[[str], None]) -> list[Path]:
        return make_palset(users, Path(running["out"]), Setting(language, months, seed, runner), note)

    hint = "no user came through all steps; go on with --resume and more --attempts, or give another --lm"
    made = _generate({"users": users, "months": months, "language": language, "seed": seed}, job, hint, **running)
    output(errors=True).print(f"use --on palbench.restate --data {made[0]}")


def _generate(
    about: Mapping[str, Any],
    job: Job,
    hint: str,
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
) -> list[Path]:
    """Runs a job, which makes files; writes its report, also when it is stopped; ends with code 1 if there is no file.

    The endpoint of an embedder is counted and limited with the model. A run that was stopped goes on with `resume`.
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
    answers = folder / "answers.sqlite"
    refuse_foreign(Path(out), "", f"{folder.name}/{answers.name}")
    if answers.exists() and not resume:
        raise UserError(f"{folder}: holds an earlier run; go on with it by --resume, or choose another --out")
    guard = Guard(Limits(max_calls=max_calls, max_usd=max_usd))
    prices = needed_prices(lm, max_usd)
    make_folder(folder)
    runner, files = Runner(attempts, threads), list[Path]()
    with closing(RunStore(answers)) as store:
        model = language_model(lm, meter, api_base=api_base, guard=guard, prices=prices, answers=store.answers)
        if embedder is not None and embedder.account is not None:
            embedder.account.open(meter, guard)
        try:
            with endpoint_errors(), dspy.context(lm=model):
                files = job(runner, console.print)
        except KeyboardInterrupt as stop:
            raise Stopped(f"what was answered is kept in {folder}", ("--resume",)) from stop
        except (EndpointError, BudgetError) as error:
            raise type(error)(f"{error}; the same command with --resume goes on") from error
        finally:
            calls = sum(count for role, count in meter.read().calls.items() if role != "cached")
            found = {"files": [str(path) for path in files], "lm": lm, **about, "calls": calls}
            summary = found | runner.report.to_dict()
            write_json(folder / "report.json", summary)
            heads = ("step", "accepted", "retried", "left out of an answer", "given up")
            console.print(table(heads, [tuple(map(str, row.values())) for row in summary["steps"]]))
            console.print(f"{calls} calls, {len(files)} files in {out}; report: {folder / 'report.json'}")
    report(summary, [])
    if not files:
        console.print(hint)
        sys.exit(1)
    return files
