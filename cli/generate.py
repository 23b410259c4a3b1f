"""What all generation runs of `mempiler make` share: model, journal, and the report of what was refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dspy
from rich.console import Console

from ..data.synthesis.journal import JOURNAL, Journal
from ..data.synthesis.runner import Report, Runner
from ..engines.embedders import TextEmbedder
from ..engines.guard import Guard, Limits
from ..engines.meter import Meter
from ..engines.models import endpoint_errors, language_model
from ..engines.prices import needed_prices
from ..errors import BudgetError, EndpointError, Stopped
from ..records.whole_file import refuse_foreign, replacing
from .printing import output, table

SHOWN = 20
"""Rejections printed; the rest are in the report file."""

Job = Callable[[Runner, Callable[[str], None]], list[Path]]
"""Makes the files with a runner, and tells its second argument a line per user."""


def generate(
    about: Mapping[str, Any],
    job: Job,
    attempts: int,
    embedder: TextEmbedder | None = None,
    *,
    out: str,
    lm: str,
    api_base: str | None,
    max_calls: int | None,
    max_usd: float | None,
    threads: int,
    resume: bool,
) -> dict[str, Any]:
    """Runs a job, writes `OUT/generation/report.json` and prints it, also when the run is stopped.

    Args:
        about: What the report tells of the job.
        job: Makes the files.
        attempts: How often a step is asked before it is given up.
        embedder: One whose endpoint, if it has one, is counted and limited with the model.
        out: Folder of the data; the journal lies below it.
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
    console, meter, folder = output(errors=True), Meter(), Path(out) / "generation"
    refuse_foreign(Path(out), "", f"{folder.name}/{JOURNAL}")
    guard = Guard(Limits(max_calls=max_calls, max_usd=max_usd))
    prices = needed_prices(lm, max_usd)
    model = language_model(lm, meter, api_base=api_base, guard=guard, prices=prices)
    if embedder is not None and embedder.account is not None:
        embedder.account.open(meter, guard)
    with Journal.open(folder / JOURNAL, resume) as journal:
        runner = Runner(journal, attempts, threads)
        files: list[Path] = []
        try:
            with endpoint_errors(), dspy.context(lm=model):
                files = job(runner, lambda line: console.print(line, soft_wrap=True))
        except KeyboardInterrupt as stop:
            raise Stopped(f"what was accepted is kept in {folder}", ("--resume",)) from stop
        except (EndpointError, BudgetError) as error:
            raise type(error)(f"{error}; the same command with --resume goes on") from error
        finally:
            summary = {
                "files": [str(path) for path in files],
                "lm": lm,
                **about,
                "calls": sum(meter.read().calls.values()),
                **runner.report.to_dict(),
            }
            report = folder / "report.json"
            with replacing(report) as file:
                json.dump(summary, file, indent=1, ensure_ascii=False)
            _show(console, runner.report, report)
    return summary


def _show(console: Console, report: Report, path: Path) -> None:
    """Numbers by step, then the first things that were given up, left out, or kept with a fault."""
    heads = ("step", "accepted", "from journal", "retried", "left out of an answer", "given up")
    console.print(table(heads, [tuple(map(str, row.values())) for row in report.to_dict()["steps"]]))
    final = [one for one in report.rejections if one.outcome != "retried"]
    for one in final[:SHOWN]:
        console.print(f"{one.step} {one.id}: {one.outcome}: {'; '.join(one.problems)[:300]}", soft_wrap=True)
    if len(final) > SHOWN:
        console.print(f"... and {len(final) - SHOWN} more")
    console.print(f"report: {path}", soft_wrap=True)
