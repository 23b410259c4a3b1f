"""MemoryQuest's metrics: which of a query's references are in the retrieved context (PGR, section 5.2).

Limits: notes of a context, such as a prospection summary, are not judged: the paper judges what was retrieved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import dspy

from ...records import Context
from ..acknowledgement import AcknowledgementJudge, Level, evidence_parts, recall_parts
from ..scorer import Score, Scorer
from .reader import Reference

_SHOWN = 200


class EvidenceRecall(Scorer):
    """The share of references of whose turns (or session) a hit names one; needs no judge."""

    title = "evidence recall"

    def counts(self, example: dspy.Example) -> bool:
        """False for a query without evidence, which cannot measure retrieval."""
        return any(reference.turns for reference in example.references)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        recalled = set((prediction.get("context") or Context()).sources)
        references: tuple[Reference, ...] = example.references
        parts = evidence_parts([reference.turns for reference in references], recalled)
        levels: list[Level] = ["not" if recalled.isdisjoint(each.turns) else "explicitly" for each in references]
        return Score(parts.get("evidence", 0.0), explain_levels(references, levels), parts)


class JudgedRecall(Scorer):
    """The share of references that a judge finds acknowledged in the hits (the paper's Recall)."""

    title = "judged recall"
    roles: ClassVar[Mapping[str, type[Any]]] = {"judge": AcknowledgementJudge}
    part: ClassVar[str] = "recall"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        context: Context = prediction.get("context") or Context()
        references: tuple[Reference, ...] = example.references
        shown = "\n".join(hit.line() for hit in context.hits)
        found = self.judge()(example.question, [reference.line() for reference in references], shown)
        levels = [each.level for each in found]
        parts = recall_parts(levels)
        return Score(parts[self.part], explain_levels(references, levels), parts)


class JudgedExactRecall(JudgedRecall):
    """Whether a judge finds all references (the paper's Recall_Exact)."""

    title = "judged exact recall"
    part = "recall_exact"


def explain_levels(references: Sequence[Reference], levels: Sequence[Level]) -> str:
    """Says in words which references were not retrieved, and what would have found them."""
    missing = [reference.text[:_SHOWN] for reference, level in zip(references, levels, strict=True) if level == "not"]
    if not missing:
        return "Right: everything that bears on the request was retrieved."
    share = f"{len(missing)} of {len(references)} things that bear on the request were not retrieved"
    listed = "; ".join(missing)
    return f"{share}: {listed}. Think of what the user will meet on the way, and search for that as well."
