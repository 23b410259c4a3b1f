"""Behaviour prediction with experience: PraMem's own prompt for the task (Figure 7, equation 2).

    newest records ┐
    patterns ──────┼── which bear on it? what to mind? ──> reasoning ──> one of the options
    alerts ────────┘

Limits: everything that is no alert counts as a pattern, so that the prompt can also stand before another memory.
"""

from __future__ import annotations

from typing import Any

import dspy

from ...records import Context, Query
from ...signatures.pramem import PredictWithExperience
from ..predictor import predictor
from ..tasks.behavior import SUFFIX_TOKENS, BehaviorPrediction, constrained, unseen
from ..tasks.task import with_items


class ExperiencedPrediction(BehaviorPrediction):
    """The options' choice from experience and newest records; a free answer where there are no options.

    Args:
        suffix_tokens: Most tokens of the newest records.
    """

    optional = ("options",)

    def __init__(self, suffix_tokens: int = SUFFIX_TOKENS) -> None:
        dspy.Module.__init__(self)
        self.suffix_tokens = suffix_tokens
        self.answer = predictor(PredictWithExperience)

    def asked(self, context: Context, query: Query) -> dict[str, Any]:
        hits = unseen(context, query).hits
        return {
            "patterns": [hit.text for hit in hits if hit.kind != "alert"],
            "alerts": [hit.text for hit in hits if hit.kind == "alert"],
            "records": with_items("", query.shown),
            "question": query.text,
            "options": list(query.options),
        }

    def made(self, found: dspy.Prediction, query: Query) -> dspy.Prediction:
        return constrained(found, query.options) if query.options else found
