"""The data sets of `mempiler data make`: what each command's options mean for its job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from ..data.synthesis.memoryquest import THRESHOLD, check_embedder, choose, make_memoryquest
from ..data.synthesis.palset.make import make_palset
from ..data.synthesis.palset.people import Code, Setting
from ..data.synthesis.personalens import read_profiles
from ..data.synthesis.runner import Runner
from ..engines.embedders import embedder as embedder_by_name
from .generate import Writer, generate


def run_memoryquest(
    console: Console,
    profiles: str,
    users: int | None,
    out: str,
    lm: str,
    api_base: str | None,
    embedder: str,
    embedder_api_base: str | None,
    max_calls: int | None,
    max_usd: float | None,
    seed: int,
    threads: int,
    resume: bool,
    force: bool,
) -> dict[str, Any]:
    """Makes MemoryQuest and says how many users were written; see `generate`.

    Raises:
        UserError: A folder, a number or the embedder does not serve.
    """
    chosen = choose(read_profiles(profiles), users, seed)
    vectors = embedder_by_name(embedder, embedder_api_base)
    check_embedder(vectors, force)
    about = {
        "embedder": vectors.name,
        "threshold": THRESHOLD,
        "users": [profile.user_id for profile in chosen],
    }

    def job(runner: Runner, note: Callable[[str], None]) -> list[Path]:
        return make_memoryquest(chosen, Path(out), runner, vectors, note)

    writer = Writer(lm, api_base, max_calls, max_usd)
    summary = generate(console, out, writer, about, job, 3, threads, resume, vectors)
    files = summary["files"]
    said = f"{len(files)} of {len(chosen)} users written to {out}, {summary['calls']} calls"
    console.print(
        said if files else f"{said}: no request came through all checks; give a model that can by --lm", soft_wrap=True
    )
    return summary


def run_palset(
    console: Console,
    users: int,
    months: int | None,
    language: Code,
    out: str,
    lm: str,
    api_base: str | None,
    attempts: int,
    reviews: int,
    max_calls: int | None,
    max_usd: float | None,
    seed: int,
    threads: int,
    resume: bool,
) -> dict[str, Any]:
    """Makes a PAL-Set and says where it is; see `generate`."""

    def job(runner: Runner, note: Callable[[str], None]) -> list[Path]:
        return make_palset(users, Path(out), Setting(language, months, seed, runner, reviews), note)

    about = {"users": users, "months": months, "language": language, "seed": seed, "reviews": reviews}
    writer = Writer(lm, api_base, max_calls, max_usd)
    summary = generate(console, out, writer, about, job, attempts, threads, resume)
    files, calls = summary["files"], summary["calls"]
    said = f"{calls} calls; use --on palbench.restate --data {files[0]}" if files else ""
    missing = f"{calls} calls, no user came through all steps; give a model that can by --lm, and go on with --resume"
    console.print(said or missing, soft_wrap=True)
    return summary
