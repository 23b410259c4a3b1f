"""`mempiler questions`: the feedback of users in a store as questions of the benchmark `jsonl`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import ALL_TENANTS, JSON, OVERWRITE, open_store
from .printing import print_result

if TYPE_CHECKING:
    from ..runs.feedback_questions import QuestionsExport


@click.command("questions")
@click.argument("store")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="the file of JSON lines that is written",
)
@ALL_TENANTS
@click.option(
    "--review",
    type=click.Path(path_type=Path),
    help="write only this HTML page, in which a person accepts, corrects or drops each question",
)
@OVERWRITE
@JSON
def command(
    store: str, out: Path, tenant: str | None, review: Path | None, overwrite: bool
) -> None:
    """Write the feedback of users as questions with right answers, to compile a program from.

    STORE is a path or postgresql://... Each question has what was stored when it was asked, and the
    right answer: the correction of its user, or the answer that its user called right.
    """
    from ..runs.feedback_questions import export_questions

    with open_store(store) as opened_store:
        export = export_questions(
            opened_store, out, tenant=tenant, review=review, overwrite=overwrite
        )
    print_result(export.to_dict(), _lines(export))


def _lines(export: QuestionsExport) -> list[str]:
    """Return the lines that the command prints without `--json`."""
    lines = [
        f"questions: {export.questions} (right: {export.right}, corrected: {export.corrected}), "
        f"users: {export.users}"
    ]
    left_out = {
        "the right answer is not known": export.without_answer,
        "nothing was stored before the question": export.without_history,
        "the user deleted or reworded an entry that the right answer may quote": export.changed,
    }
    for reason, count in left_out.items():
        if count:
            lines.append(f"{count} left out: {reason}")

    if export.review is None:
        lines.append(f"written to {export.path}")
    else:
        lines.append(
            f"{export.path} was not written: open {export.review} in a browser, and put the file"
            f" that you download there at {export.path}"
        )
    return lines
