"""LoCoMo's metrics: token F1 by category, as task_eval/evaluation.py has it, and the judge of published tables.

Limits: token F1 rewards wording, and about 6 % of the gold answers are known to be wrong
(snap-research/locomo#23). `bleu1` is community practice, not in the official file, and so is the judge; its words
are Memory-R2's, which keep "and".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import dspy

from ..judge import GenerousJudge
from ..scorer import Judged, Score, Scorer, answer_of
from ..text_metrics import bleu1, explain, locomo_f1, locomo_multi_f1, named, squad_words, stem

_REFUSALS = ("no information available", "not mentioned")


class LocomoF1(Scorer):
    """Token F1 by the rule of the question's category.

    Categories 2, 3 and 4: token F1, in category 3 against the gold up to its first ';'. Category 1: mean over the
    comma-separated golds of the best F1. Category 5: 1 when the answer says that nothing is mentioned.
    Source: LoCoMo, task_eval/evaluation.py.
    """

    title = "token F1"

    def counts(self, example: dspy.Example) -> bool:
        """False for category 5: it rewards declining to answer, and is reported separately."""
        return example.category != "5"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer, gold = answer_of(prediction), gold_of(example)
        if example.category == "5":
            value = float(any(phrase in answer.lower() for phrase in _REFUSALS))
            return Score(
                value,
                _explain_refusal(value, example.evidence),
                {"f1": value, "bleu1": bleu1(answer, gold, squad_words)},
            )
        value = (locomo_multi_f1 if example.category == "1" else locomo_f1)(answer, gold)
        feedback = explain(answer, gold, value, example.evidence, stem=stem)
        return Score(value, feedback, {"f1": value, "bleu1": bleu1(answer, gold, squad_words)})


class LocomoJudge(Judged):
    """The generous judge that published LoCoMo tables use; it sees the whole gold answer in every category."""

    roles: ClassVar[Mapping[str, type[Any]]] = {"judge": GenerousJudge}

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value, _ = self.verdict(example, answer)
        return Score(value, explain(answer, gold_of(example), value, example.evidence, stem=stem), {"judge": value})


def gold_of(example: dspy.Example) -> str:
    """The gold answer that counts: in category 3 the part before the first ';'."""
    return example.answer.split(";")[0].strip() if example.category == "3" else example.answer


def _explain_refusal(value: float, evidence: tuple[str, ...]) -> str:
    if value:
        return "Right: the answer says that the conversation does not mention this."
    seems = f" The answer only seems to be in {named(evidence)}." if evidence else ""
    return f"Wrong: the conversation does not hold the answer; a right answer says it is 'not mentioned'.{seems}"
