"""The row of a question: its answer, its score, and what answering took."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from ..data.support import SUPPORT
from ..records import Failure
from .question_trace import QuestionTrace

RECALL_AT = (5, 20)
"""How many hits of the memory's plain search count, for each of the metrics `recall@k`."""
SHOWN_RECALL = "shown"
"""The name of the recall of what the prompt showed, which the method's own policy decides."""
CORRECT_THRESHOLD = 0.5
"""The lowest score of an answer that counts as right."""

Reason = Literal[
    "right",
    "missed",
    "part",
    "read",
    "prompted",
    "unknown",
    "wrong",
    "supported",
    "unsupported",
    "failed",
]
"""What became of a question; `REASONS` says it in words."""

REASONS: dict[Reason, str] = {
    "right": "right",
    "missed": "wrong: no gold evidence recalled",
    "part": "wrong: part of the gold evidence recalled",
    "read": "wrong: all gold evidence recalled, answer incorrect",
    "prompted": "wrong: all gold evidence stood in the prompts, answer incorrect",
    "unknown": "wrong; the program does not report which evidence it recalled",
    "wrong": "wrong; the question has no evidence labels",
    "supported": "at least half of the gold answer's words were recalled",
    "unsupported": "less than half of the gold answer's words were recalled",
    "failed": "failed: no answer",
}
"""What became of a question, in words."""

RecallExtent = Literal["all", "part", "none", ""]
"""How much of the gold evidence was recalled; "" if nobody knows."""

_REASONS_OF_WRONG_ANSWERS: dict[RecallExtent, Reason] = {
    "all": "read",
    "part": "part",
    "none": "missed",
    "": "wrong",
}


class Row(BaseModel):
    """One question and what became of it."""

    # A score that is not a number is refused where rows are added up. So a file may hold one.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    id: str
    group: str
    """The conversation or user that the question is about."""
    category: str
    in_headline: bool
    """Whether the question is part of the headline score."""
    question: str
    gold: str
    answer: str
    score: float
    """0 if the question failed; failures are counted beside the score."""
    parts: dict[str, float]
    """Further metrics of the answer, e.g. {"f1": 0.5}."""
    recall: dict[str, float]
    """Evidence recall of the prompt and of the plain search: {"shown": 0.5, "recall@5": 1.0}.

    Empty if the question names no evidence.
    """
    sources: tuple[str, ...]
    """Ids of the turns behind the recalled context, best first."""
    seconds: float
    hits: int = 0
    """How many entries were recalled."""
    context_tokens: int = 0
    """Length of the recalled context, by `records.estimate_tokens`."""
    prompt_tokens: int = 0
    """Prompt tokens of the calls that recalled and answered, as the endpoint counts them.

    Those of calls that wrote the memory are not included.
    """
    recall_counts: dict[str, int] = {}
    """What the method counted while it recalled, e.g. {"calls": 4, "facts": 22}."""
    counted_entries: tuple[str, ...] = ()
    """Ids of the recalled entries that the metric looked at; none if it looked at the answer."""
    repeated_id: str = ""
    """An id that several entries of the context have, if a user's system recalled them; or ""."""
    calls: int = 0
    """Calls that recalled and answered, those that a cache answered included."""
    output_tokens: int = 0
    """Tokens that these calls generated."""
    cost: float | None = None
    """US dollars of these calls; None if a price is not known."""
    answering: float = 0.0
    """Seconds of recalling and answering, without waiting for the memory."""
    search: float | None = None
    """Milliseconds of searching for one recall, without models; None if nothing was searched."""
    search_cpu: float | None = None
    """CPU milliseconds of the threads that searched."""
    failure: Failure | None = None
    trace: QuestionTrace | None = None
    """How the answer came about. The store of a run keeps it, files of rows do not."""

    @property
    def right(self) -> bool:
        """Whether the answer counts as right where right answers are counted."""
        return self.failure is None and self.score >= CORRECT_THRESHOLD

    @property
    def recall_extent(self) -> RecallExtent:
        """How much of the gold evidence was recalled.

        It is "" if the program does not say which turns it recalled, and if the question names no
        evidence.
        """
        if self.trace is not None and not self.trace.is_recall_known:
            return ""

        # The share of the evidence that the prompt showed is not known if it showed summaries only:
        # these rest on no particular turns. Then it counts what a plain search of the memory finds.
        recall = self.recall.get(SHOWN_RECALL)
        if recall is None:
            recall = self.recall.get(f"recall@{max(RECALL_AT)}")
        if recall is None:
            return ""

        if recall >= 1:
            return "all"
        return "part" if recall > 0 else "none"

    @property
    def reason(self) -> Reason:
        """Whether the answer is right, and for a wrong one, how far its evidence came.

        The reason of a wrong answer shows what to improve: if the evidence was not recalled, the
        memory or its search; if it was before the model, how the model answers.
        """
        if self.failure is not None:
            return "failed"
        # The metric asked for no answer, so none is right or wrong.
        if SUPPORT in self.parts and not self.answer:
            return "supported" if self.right else "unsupported"
        if self.right:
            return "right"

        # A program need not say which turns it recalled. Then the evidence was looked for in the
        # inputs of its prompts. Evidence that is not there may still have been recalled, in other
        # words.
        trace = self.trace
        if trace is not None and trace.evidence and not trace.is_recall_known:
            if trace.was_prompted:
                return "prompted"
            return "unknown"
        return _REASONS_OF_WRONG_ANSWERS[self.recall_extent]
