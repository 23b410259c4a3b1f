"""`mempiler make`: a language model writes a data set."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .options import API_BASE, JSON, LM, USD
from .printing import output, print_json

_RUNNING = [
    click.option("--out", required=True, type=click.Path(), help="folder for the files"),
    LM,
    API_BASE,
    click.option("--max-calls", type=click.IntRange(0), help="stop after so many LM calls; --resume goes on"),
    click.option("--max-usd", type=USD, help="stop when so much money is spent; --resume goes on"),
    click.option("--threads", type=click.IntRange(1), default=128, show_default=True, help="calls in flight"),
    click.option("--resume", is_flag=True, help="go on with the run in --out: pay only for what is missing"),
    JSON,
]


def _running(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what all generation runs take."""
    for option in reversed(_RUNNING):
        function = option(function)
    return function


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
@_running
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
    from ..data.synthesis.memoryquest import THRESHOLD, check_embedder, choose, make_memoryquest
    from ..data.synthesis.personalens import read_profiles
    from ..engines.embedders import embedder as embedder_by_name
    from .generate import generate

    chosen, out = choose(read_profiles(profiles), users, seed), running["out"]
    vectors = embedder_by_name(embedder, embedder_api_base)
    check_embedder(vectors, force)
    about = {"embedder": vectors.name, "threshold": THRESHOLD, "users": [profile.user_id for profile in chosen]}
    summary = generate(
        about, lambda runner, note: make_memoryquest(chosen, Path(out), runner, vectors, note), 3, vectors, **running
    )
    said = f"{len(summary['files'])} of {len(chosen)} users written to {out}, {summary['calls']} calls"
    _end(summary, said, f"{said}: no request came through all checks; give a model that can by --lm", as_json)


@command.command("palset")
@click.option("--users", required=True, type=click.IntRange(1), help="how many users")
@click.option("--months", type=click.IntRange(2, 24), help="months of each user [default: 7 to 12, drawn]")
@click.option("--language", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="of the data")
@click.option(
    "--attempts", type=click.IntRange(1), default=10, show_default=True, help="of a step, then it is given up"
)
@click.option("--reviews", type=click.IntRange(0), default=1, show_default=True, help="rounds of finding and mending")
@click.option("--seed", type=int, default=0, show_default=True, help="draws months, hours and plans of dialogues")
@_running
def make_pal(
    users: int,
    months: int | None,
    language: Any,
    attempts: int,
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
    from ..data.synthesis.runner import Runner
    from .generate import generate

    def job(runner: Runner, note: Callable[[str], None]) -> list[Path]:
        return make_palset(users, Path(running["out"]), Setting(language, months, seed, runner, reviews), note)

    about = {"users": users, "months": months, "language": language, "seed": seed, "reviews": reviews}
    summary = generate(about, job, attempts, **running)
    said = f"{summary['calls']} calls"
    missing = f"{said}, no user came through all steps; give a model that can by --lm, and go on with --resume"
    _end(summary, f"{said}; use --on palbench.restate --data {next(iter(summary['files']), '')}", missing, as_json)


def _end(summary: dict[str, Any], said: str, missing: str, as_json: bool) -> None:
    output(errors=True).print(said if summary["files"] else missing, soft_wrap=True)
    if as_json:
        print_json(summary)
    if not summary["files"]:
        sys.exit(1)
