"""What `mempiler show RUN --failed` tells: the questions and the memory writes of a run that failed, by kind."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from .printing import output, print_json

if TYPE_CHECKING:
    from ..runs.pages.page import Page

KINDS = {
    "parse": "the answer could not be read, though asked for once more",
    "cut": "the answer ended for want of room, though asked for with more",
    "refused": "the endpoint refused the prompt",
    "too-long": "the prompt is longer than the model takes",
    "endpoint": "the call failed, retries included",
    "error": "the method or the metric raised an error",
}
"""What the kinds of failures mean."""


def show_failed(page: Page, as_json: bool) -> None:
    """Lists what failed. A program that was kept as it was has been asked once, and is listed once."""
    found = _failures(page)
    if as_json:
        print_json(found)
        return
    console = output()
    asked, failed, writes = found["asked"], found["questions"], found["writes"]
    for predictor, kinds in found["faults"].items():
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        console.print(f"{predictor}: {told}", soft_wrap=True)
    if failed or writes:
        console.print(f"{page.name}: {len(failed)} of {asked} questions failed, {len(writes)} writes", soft_wrap=True)
    else:
        none = "no question or write failed" if found["faults"] else "no failures"
        console.print(f"{page.name}: {none}; {asked} questions were answered", soft_wrap=True)
    for title, rows in (("questions", failed), ("writes", writes)):
        for kind, count in Counter(row["kind"] for row in rows).most_common():
            console.print(f"\n{title}, {kind}: {count} ({KINDS[kind]})", soft_wrap=True)
            for row in (row for row in rows if row["kind"] == kind):
                phase = f"{row['phase']}, " if len(page.phases) > 1 else ""
                what = f"{row['id']} {row['question']!r}" if "id" in row else row["where"]
                console.print(f"  {phase}{what}: {row['message']}", soft_wrap=True)
    if found["wrong"]:
        told = f"{found['wrong']} answers are wrong, which is no failure"
        console.print(f"{told}: mempiler show {page.name} --wrong", soft_wrap=True)


def _failures(page: Page) -> dict[str, Any]:
    """The object that `--json` prints."""
    asked = [(phase, row) for phase, found in page.phases.items() for row in found.rows]
    questions = [
        {"phase": phase, **row.model_dump(include={"id", "category", "question"}), **_about(row.failure)}
        for phase, row in asked
        if row.failure
    ]
    writes = [
        {"phase": phase, **each.model_dump()} for phase, found in page.phases.items() for each in found.failed_writes
    ]
    answers: dict[str, Counter[str]] = {}
    faults: dict[str, Counter[str]] = {}
    for each in page.phases.values():
        for counts, told in ((answers, each.answers), (faults, each.faults)):
            for predictor, found in told.items():
                counts.setdefault(predictor, Counter()).update(found)
    last = list(page.phases.values())[-1]
    return {
        "run": page.name,
        "asked": len(asked),
        "wrong": sum(row.failure is None and not row.right for row in last.rows),
        "by_kind": dict(Counter(row["kind"] for row in questions)),
        "questions": questions,
        "writes": writes,
        "answers": answers,
        "faults": faults,
    }


def _about(failure: Any) -> dict[str, Any]:
    return failure.model_dump(include={"kind", "message"})
