"""How PraMem reads: all experience, what shares words with the query first, and its own prompt to predict by.

Figure 7, equation 2:

    newest records ┐
    patterns ──────┼── which bear on it? what to mind? ──> reasoning ──> one of the options
    alerts ────────┘

Limits: everything that is no alert counts as a pattern, so that the prompt can also stand before another memory.
"""

from __future__ import annotations

from typing import Any

import dspy

from ...memory.amending import Amend
from ...records import Context, Query, estimate_tokens
from ...signatures.pramem import PredictWithExperience
from ..method import EntryReader
from ..predictor import predictor
from ..tasks.behavior import SUFFIX_TOKENS, BehaviorPrediction, constrained, unseen
from ..tasks.task import with_items
from .memory import Experience, ExperienceMemory


class ExperienceReader(EntryReader):
    """Recalls all patterns and alerts; proposals are not shown."""

    def amended(self, memory: ExperienceMemory, amend: Amend) -> ExperienceMemory:
        def left(parts: tuple[Experience, ...]) -> tuple[Experience, ...]:
            return amend.parts(parts, memory.entry, lambda part, text: part.model_copy(update={"text": text}))

        return memory.changed(patterns=left(memory.patterns), alerts=left(memory.alerts))

    def recall(self, memory: ExperienceMemory, query: Query) -> Context:
        entries = memory.experiences
        found = self.nearest(memory, query, max(1, len(entries)))
        known = {hit.id for hit in found}
        rest = [part.entry().hit() for part in entries if part.id not in known]
        tokens = sum(estimate_tokens(part.line()) for part in entries)
        counts = {"patterns": len(memory.patterns), "alerts": len(memory.alerts), "tokens": tokens}
        return Context(hits=(*found, *rest), counts=counts)


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
