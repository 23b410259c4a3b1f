"""Judged recall: how much of what a good response rests on a judge finds in the retrieved context.

The judge reads the hits alone (PGR, section 5.2). The response, notes such as a prospection
summary, and what was shown for want of a hit are not judged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import dspy

from ..records import Context
from .judge import AcknowledgementJudge, JudgeRoles, ReferenceVerdict
from .scorer import Score, Scorer


class JudgedRecall(Scorer):
    """The share of a query's references that a judge finds acknowledged.

    Args:
        judge: `AcknowledgementJudge` answers yes or no, as in the paper;
            `StrictAcknowledgementJudge` demands more.
    """

    title = "judged recall"

    def __init__(self, judge: type[AcknowledgementJudge] = AcknowledgementJudge) -> None:
        self.judge_class = judge
        self.part = judge.part
        """The part of a score that is its value."""
        if judge is not AcknowledgementJudge:
            self.title = "strictly judged recall"

    @property
    def required_judges(self) -> JudgeRoles:
        return {"judge": self.judge_class}

    @abstractmethod
    def references(self, example: dspy.Example) -> list[str]:
        """Return what the context should acknowledge; at least one."""

    @abstractmethod
    def feedback(self, example: dspy.Example, verdicts: Sequence[ReferenceVerdict]) -> str:
        """Tell an optimizer what was missing from the context."""

    def parts_of(self, verdicts: Sequence[ReferenceVerdict]) -> dict[str, float]:
        """Return the parts of a score. Default: those of the judge."""
        return self.judge_class.parts_of(verdicts)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Have the judge look for each reference in the hits of the prediction's context."""
        context: Context = prediction.get("context") or Context()
        # What was shown because nothing was found is no hit.
        hits = context.without_fallback().hits
        shown = "\n".join(hit.line() for hit in hits)
        verdicts = self.judge()(example.question, self.references(example), shown)

        parts = self.parts_of(verdicts)
        return Score(parts[self.part], self.feedback(example, verdicts), parts)
