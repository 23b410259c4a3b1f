"""Generation runs behind `recollect data make`: models by name, the journal, and the report of what was refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dspy
from rich.console import Console
from rich.table import Table

from ..data.synthesis.journal import Journal
from ..data.synthesis.memoryquest import THRESHOLD, check_embedder, choose, make_memoryquest
from ..data.synthesis.personalens import read_profiles
from ..data.synthesis.runner import Report, Runner
from ..engines.embedders import embedder as embedder_by_name
from ..engines.guard import Guard, Limits
from ..engines.meter import Meter
from ..engines.models import endpoint_errors, language_model
from ..errors import BudgetError, EndpointError

SHOWN = 20
"""Rejections printed; the rest are in the report file."""


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
    """Makes MemoryQuest, writes `OUT/generation/report.json` and prints it, also when the run is stopped.

    Returns:
        The report: files written, numbers by step, every rejection, models and calls.

    Raises:
        UserError: A folder, a number or the embedder does not serve.
        EndpointError: The model cannot be reached; `--resume` goes on.
        BudgetError: A limit struck; `--resume` goes on.
    """
    chosen = choose(read_profiles(profiles), users, seed)
    vectors = embedder_by_name(embedder, embedder_api_base)
    check_embedder(vectors, force)
    meter, folder = Meter(), Path(out) / "generation"
    model = language_model(lm, meter, api_base=api_base, guard=Guard(Limits(max_calls=max_calls, max_usd=max_usd)))
    with Journal.open(folder / "journal.jsonl", resume) as journal:
        runner = Runner(journal, threads=threads)
        files: list[Path] = []
        try:
            with endpoint_errors(), dspy.context(lm=model):
                files = make_memoryquest(
                    chosen, Path(out), runner, vectors, lambda line: console.print(line, soft_wrap=True)
                )
        except (EndpointError, BudgetError) as error:
            raise type(error)(f"{error}; the same command with --resume goes on") from error
        finally:
            summary = {
                "files": [str(path) for path in files],
                "lm": lm,
                "embedder": vectors.name,
                "threshold": THRESHOLD,
                "users": [profile.user_id for profile in chosen],
                "calls": sum(meter.read().calls.values()),
                **runner.report.to_dict(),
            }
            report = folder / "report.json"
            report.write_text(json.dumps(summary, indent=1, ensure_ascii=False), encoding="utf-8")
            _show(console, runner.report, report)
    said = f"{len(files)} of {len(chosen)} users written to {out}, {summary['calls']} calls"
    console.print(
        said if files else f"{said}: no request came through all checks; give a model that can by --lm", soft_wrap=True
    )
    return summary


def _show(console: Console, report: Report, path: Path) -> None:
    """Numbers by step, then the first things that were given up or left out."""
    table = Table("step", "accepted", "from journal", "retried", "left out of an answer", "given up")
    for row in report.to_dict()["steps"]:
        table.add_row(*map(str, row.values()))
    console.print(table)
    final = [one for one in report.rejections if one.outcome != "retried"]
    for one in final[:SHOWN]:
        console.print(f"{one.step} {one.id}: {one.outcome}: {'; '.join(one.problems)[:300]}", soft_wrap=True)
    if len(final) > SHOWN:
        console.print(f"... and {len(final) - SHOWN} more")
    console.print(f"report: {path}", soft_wrap=True)
