"""Why an answer is wrong, as far as scores and evidence tell: no answer, evidence not recalled, or read wrongly."""

from __future__ import annotations

from ..results import RECALL_AT, SHOWN, Row
from .page import RIGHT, Page

RIGHTLY, FAILED, MISSED, PART, READ, WRONG = "right", "failed", "missed", "part", "read", "wrong"
REASONS = {
    RIGHTLY: "right",
    MISSED: "wrong: none of the gold evidence was recalled",
    PART: "wrong: only part of the gold evidence was recalled",
    READ: "wrong: all gold evidence was recalled, but the answer is another",
    WRONG: "wrong; the question names no evidence to look for",
    FAILED: "failed: no answer",
}
"""What became of a question, in words."""


def hit(row: Row) -> str:
    """How much of the gold evidence was recalled: all, part, none, or "" where nothing is known of it.

    Of a context of summaries alone, which shows no turn, the plain search of the memory tells.
    """
    share = row.recall.get(SHOWN, row.recall.get(f"recall@{max(RECALL_AT)}"))
    if share is None:
        return ""
    return "all" if share >= 1 else "part" if share > 0 else "none"


def reason(row: Row) -> str:
    """The key in `REASONS`."""
    if row.failure is not None:
        return FAILED
    if row.score >= RIGHT:
        return RIGHTLY
    return {"all": READ, "part": PART, "none": MISSED, "": WRONG}[hit(row)]


def counted(page: Page) -> dict[str, list[int]]:
    """How many questions there are of each reason, phase by phase; reasons without any are left out."""
    counts = {key: [0] * len(page.phases) for key in REASONS}
    for question in page.questions:
        for n, shown in enumerate(question.shown):
            if shown is not None:
                counts[shown.why][n] += 1
    return {key: found for key, found in counts.items() if any(found)}
