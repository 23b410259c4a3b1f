"""Behaviour prediction with experience: PraMem's own prompt for the task (Figure 7, equation 2).

    newest records ┐
    patterns ──────┼── which bear on it? what to mind? ──> reasoning ──> one of the options
    alerts ────────┘

Limits: everything that is no alert counts as a pattern, so that the prompt can also stand before another memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from ...records import Context, Item
from ...signatures.pramem import PredictWithExperience
from ..predictor import predictor
from ..tasks.behavior import SUFFIX_TOKENS, BehaviorPrediction, constrained, records_text, unseen


class ExperiencedPrediction(BehaviorPrediction):
    """The options' choice from experience and newest records; a free answer where there are no options.

    Args:
        suffix_tokens: Most tokens of the newest records.
    """

    def __init__(self, suffix_tokens: int = SUFFIX_TOKENS) -> None:
        dspy.Module.__init__(self)
        self.suffix_tokens = suffix_tokens
        self.answer = predictor(PredictWithExperience)

    def forward(self, context: Context, recent: Sequence[Item] = (), **fields: Any) -> dspy.Prediction:
        options = [str(option) for option in fields.get("options") or ()]
        hits = unseen(context, recent).hits
        found = self.answer(
            patterns=[hit.text for hit in hits if not hit.id.startswith("alert-")],
            alerts=[hit.text for hit in hits if hit.id.startswith("alert-")],
            records=records_text(recent),
            question=fields["question"],
            options=options,
        )
        return constrained(found, options) if options else found
