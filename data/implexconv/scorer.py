"""ImplexConv's metrics: whether what was retrieved acknowledges the reasoning, a judge of the answer, or words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import dspy

from ...records import Context
from ..acknowledgement import AcknowledgementJudge
from ..scorer import Judged, Score, Scorer, answer_of
from ..text_metrics import explain, squad_f1, squad_words
from .metrics import bleu, rouge_l


class WordsAndSessions(Scorer):
    """Token F1, BLEU-1 to 3 and ROUGE-L of the answer, and the share of the evidence's sessions that was recalled."""

    title = "token F1"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value = squad_f1(answer, example.answer)
        one, two, three = bleu(answer, example.answer)
        parts = {"f1": value, "bleu1": one, "bleu2": two, "bleu3": three, "rouge_l": rouge_l(answer, example.answer)}
        context = prediction.get("context")
        found = None if context is None else session_recall(example.evidence, context.sources)
        if found is not None:
            parts["evidence"] = found
        return Score(value, _feedback(example, answer, value), parts)


class AnswerJudged(Judged):
    """A judge of the answer, who knows the reason as well as the gold answer."""

    def gold(self, example: dspy.Example) -> str:
        return example.reference

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value, reason = self.verdict(example, answer)
        return Score(value, _feedback(example, answer, value) + reason, {"judge": value})


class ContextJudged(Scorer):
    """A judge of the retrieved context: does it acknowledge the reasoning that the question hangs on?"""

    title = "judged acknowledged"
    roles: ClassVar[Mapping[str, type[Any]]] = {"judge": AcknowledgementJudge}

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        context: Context = prediction.get("context") or Context()
        wanted = example.reasoning or example.answer
        shown = "\n".join(hit.line() for hit in context.hits)
        (found,) = self.judge()(example.question, [wanted], shown)
        value = float(found.level != "not")
        feedback = f"Right: what was retrieved acknowledges it ({found.level})."
        if not value:
            feedback = (
                f"What was retrieved does not acknowledge: {wanted} Search for what may stand in the way or help."
            )
        feedback += f" The judge says: {found.reason}" if found.reason else ""
        return Score(value, feedback, {"judge": value, "explicit": float(found.level == "explicitly")})


def _feedback(example: dspy.Example, answer: str, value: float) -> str:
    return explain(answer, example.reference, value, example.evidence, cut=squad_words)


def session_recall(evidence: Sequence[str], recalled: Sequence[str]) -> float | None:
    """The share of the evidence's sessions of which at least one turn was recalled; None without evidence."""
    wanted = {turn.partition(":")[0] for turn in evidence}
    return len(wanted & {turn.partition(":")[0] for turn in recalled}) / len(wanted) if wanted else None
