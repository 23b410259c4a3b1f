"""LongMemEval's metrics: a judge with a prompt for every type of question, or token F1, and retrieval by sessions.

Source: src/evaluation/evaluate_qa.py, print_qa_metrics.py and eval_utils.py of xiaowu0162/LongMemEval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import dspy

from ...signatures.judges_longmemeval import ABSTENTION, JUDGES, judges_hash
from ..confusion import Answered
from ..judge import PromptJudge, Verdict
from ..scorer import Score, Scorer, answer_of
from ..text_metrics import explain, squad_f1, squad_words
from .metrics import declines, mean, retrieval_metrics

PREFERENCE = "single-session-preference"
RETRIEVAL_AT = (5, 10)


class LongMemEvalJudge:
    """Asks the prompt of a question's type.

    Args:
        lm: The model that judges.
        adapter: How it is asked; DSPy's default if None.
    """

    def __init__(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        self.lm = lm
        kinds = {
            kind: type(f"_{prompt.__name__}", (PromptJudge,), {"signature": prompt}) for kind, prompt in JUDGES.items()
        }
        self._prompts: dict[str, PromptJudge] = {kind: made(lm, adapter) for kind, made in kinds.items()}

    @classmethod
    def prompt_hash(cls) -> str:
        """Names all five prompts."""
        return judges_hash()

    @property
    def hash(self) -> str:
        """Names all five prompts."""
        return self.prompt_hash()

    def __call__(self, kind: str, question: str, gold_answer: str, answer: str) -> Verdict:
        """Judges one answer. An empty one is wrong without a call.

        Args:
            kind: One of `JUDGES`.
            question: What was asked.
            gold_answer: The answer, the rubric of a preference, or why there is no answer.
            answer: What is judged.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        if not answer.strip():
            return Verdict(False, "no answer was given")
        gold = {PREFERENCE: "rubric", ABSTENTION: "explanation"}.get(kind, "gold_answer")
        found = self._prompts[kind].ask(question=question, answer=answer, **{gold: gold_answer})
        return Verdict(found.verdict == "yes")


class LongMemEvalF1(Scorer):
    """Token F1; a question without an answer scores 1 for a phrase that declines, preferences are reported apart."""

    title = "token F1"
    retrieval_depth = 200
    part: ClassVar[str] = "f1"
    column: ClassVar[str] = "F1"

    def counts(self, example: dspy.Example) -> bool:
        """False for preferences: words of a rubric are not what a good response repeats."""
        return example.category != PREFERENCE or example.abstention

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value = float(declines(answer)) if example.abstention else squad_f1(answer, example.answer)
        return Score(value, _feedback(example, answer, value), {"f1": value})

    def aggregate(self, rows: Sequence[Answered]) -> dict[str, float]:
        """The mean over types, the mean over all questions, and that of questions that cannot be answered.

        A failed question counts 0. Source: src/evaluation/print_qa_metrics.py.
        """
        by_type: dict[str, list[float]] = {}
        for row in rows:
            by_type.setdefault(row.category, []).append(row.parts.get(self.part, 0.0))
        if not rows:
            return {}
        found = {
            f"task-averaged {self.column}": mean([mean(values) for values in by_type.values()]),
            f"overall {self.column}": mean([value for values in by_type.values() for value in values]),
        }
        unanswerable = [row.parts.get(self.part, 0.0) for row in rows if "_abs" in row.id]
        return {**found, f"abstention {self.column}": mean(unanswerable)} if unanswerable else found

    def retrieval(self, example: dspy.Example, ranked: Sequence[Sequence[str]]) -> dict[str, float]:
        """recall_any, recall_all and NDCG of the evidence sessions at 5 and 10; {} for questions without an answer.

        Where every hit is a turn of its own, a session may fill several places; otherwise each counts once.
        """
        if example.abstention or not example.answer_sessions:
            return {}
        turns = example.history.turns
        named = [list(dict.fromkeys(turns[id][1].id for id in sources if id in turns)) for sources in ranked]
        order = [session for sessions in named for session in sessions]
        # Facts rest on single turns too, but several on one: as turns they would score above the best order.
        of_turns = sum(map(len, ranked)) == len(ranked) == len({id for sources in ranked for id in sources})
        if of_turns:
            sessions = [session.id for _, session in turns.values()]
        else:
            order, sessions = list(dict.fromkeys(order)), [item.id for item in example.history]
        metrics = [retrieval_metrics(order, example.answer_sessions, sessions, k, of_turns) for k in RETRIEVAL_AT]
        return {name: value for found in metrics for name, value in found.items()}


class LongMemEvalJudged(LongMemEvalF1):
    """The official metric: one of five judging prompts a question, by its type."""

    title = "accuracy"
    roles: ClassVar[Mapping[str, type[Any]]] = {"judge": LongMemEvalJudge}
    part = "accuracy"
    column = "accuracy"

    def counts(self, example: dspy.Example) -> bool:
        """True: a judge reads preferences too."""
        return True

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        kind = ABSTENTION if example.abstention else example.category
        value = float(self.judge()(kind, example.question, example.answer, answer).correct)
        words = super().score(example, prediction).parts
        return Score(value, _feedback(example, answer, value), {**words, "accuracy": value})


def _feedback(example: dspy.Example, answer: str, value: float) -> str:
    if example.abstention:
        verdict = "Right: the answer sees that this is not known." if value else "Wrong: this is not known; say so."
        return f"{verdict} {example.answer}"
    if example.category == PREFERENCE:
        verdict = "Right: the response suits the user." if value >= 1 else "The response does not suit the user enough."
        return f"{verdict} {example.answer}"
    return explain(answer, example.answer, value, example.evidence, squad_words)
