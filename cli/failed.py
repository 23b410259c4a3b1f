"""`show RUN --failed`: which questions and writes of a run failed, and of what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .options import output, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from ..runs.compare import Recorded

KINDS = {
    "parse": "the answer could not be read, though asked for once more",
    "cut": "the answer ended for want of room, though asked for with more",
    "refused": "the endpoint refused the prompt",
    "too-long": "the prompt is longer than the model takes",
    "endpoint": "the call failed, retries included",
    "error": "the method or the metric raised an error",
}
"""What the kinds of failures mean."""


def show_failed(run: str, as_json: bool) -> None:
    """Lists the questions and the memory writes of a finished run that failed, by kind."""
    from ..runs.compare import recorded

    found = _failures(recorded(run))
    if as_json:
        print_json(found)
        return
    console = output()
    asked, failed, writes = found["asked"], found["questions"], found["writes"]
    for predictor, kinds in found["faults"].items():
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        console.print(f"{predictor}: {told}", soft_wrap=True)
    if not failed and not writes:
        none = "no question or write failed" if found["faults"] else "no failures"
        console.print(f"{found['run']}: {none}; {asked} questions were answered", soft_wrap=True)
        _print_wrong(console, found)
        return
    console.print(f"{found['run']}: {len(failed)} of {asked} questions failed, {len(writes)} writes", soft_wrap=True)
    for title, rows in (("questions", failed), ("writes", writes)):
        for kind, count in Counter(row["kind"] for row in rows).most_common():
            console.print(f"\n{title}, {kind}: {count} ({KINDS[kind]})", soft_wrap=True)
            for row in rows:
                if row["kind"] == kind:
                    console.print(f"  {_where(row)}: {row['message']}", soft_wrap=True)
    _print_wrong(console, found)


def _print_wrong(console: Console, found: dict[str, Any]) -> None:
    """Says where the wrong answers are, which are no failures."""
    if found["wrong"]:
        told = f"{found['wrong']} answers are wrong, which is no failure"
        console.print(f"{told}: mempiler show {found['run']} --wrong", soft_wrap=True)


def _failures(run: Recorded) -> dict[str, Any]:
    """The object `--json` prints. A program that was kept as it was has been asked once, and is listed once."""
    phases = {name: found for name, found in run.phases.items() if name != "result" or found != run.phases["start"]}
    questions = [
        {
            "phase": phase,
            "id": row.id,
            "category": row.category,
            "question": row.question,
            "kind": row.failure.kind,
            "message": row.failure.message,
        }
        for phase, found in phases.items()
        for row in found.rows
        if row.failure
    ]
    writes = [{"phase": phase, **each.model_dump()} for phase, found in phases.items() for each in found.failed_writes]
    return {
        "run": run.name,
        "asked": sum(len(found.rows) for found in phases.values()),
        "wrong": sum(row.failure is None and not row.right for row in run.evaluation.rows),
        "by_kind": dict(Counter(row["kind"] for row in questions)),
        "questions": questions,
        "writes": writes,
        "answers": _together([found.answers for found in phases.values()]),
        "faults": _together([found.faults for found in phases.values()]),
    }


def _together(counts: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Counts by predictor and name, summed over phases."""
    found: dict[str, Counter[str]] = {}
    for each in counts:
        for predictor, named in each.items():
            found.setdefault(predictor, Counter()).update(named)
    return {predictor: dict(named) for predictor, named in found.items()}


def _where(row: dict[str, Any]) -> str:
    phase = "" if row["phase"] == "evaluation" else f"{row['phase']}, "
    return f"{phase}{row['id']} {row['question']!r}" if "id" in row else f"{phase}{row['where']}"
