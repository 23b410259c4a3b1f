"""BEAM's scoring: a judge scores each item of a rubric, and of event ordering the order is measured as well.

Source: src/evaluation/compute_metrics.py and report_results.py of mohammadtavakoli78/BEAM. Two rules score the same
replies of one judge:

    official   as released: int() cuts .5 to 0; event ordering counts tau alone, and is undefined (NaN) where a ranking
               is constant; a table is the mean over chats for each ability, without a total
    fixed      .5 counts; event ordering is tau x F1 over the lines with words, and 0 where undefined; the total is the
               mean over all questions

They differ in what the judge sees, too: the released prompt leaves the question out. Under `fixed` it sees it, and the
column `official_with_question` says what the official rule makes of these replies; under `official` it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, ClassVar

import dspy

from ...records import Context
from ...signatures.judges import JudgeItem, JudgeItemAlone, JudgeSameEvent
from ...text import one_line
from ..judge import Judge, JudgeRoles, PromptJudge, Verdict
from ..scorer import Score, ScoredAnswer, Scorer, answer_of
from ..text_metrics import evidence_recall, format_evidence
from .reader import ABILITIES, EVENT_ORDERING

RETRIEVAL_DEPTH = 10
"""Hits of a plain search in which evidence is looked for."""
_SHOWN = 5
"""Items of a rubric that are named in feedback."""


@dataclass(frozen=True)
class Grade(Verdict):
    """What a judge says of one item; `correct` where it is met in full."""

    score: float = 0.0
    """0, .5 or 1."""


class RubricJudge(Judge):
    """Scores an answer by one item of a rubric; sees the question."""

    signature = JudgeItem

    def __call__(self, question: str, gold_answer: str, answer: str) -> Grade:
        """Scores one answer by the item `gold_answer`, raising what `ask` does. An empty one has 0 without a call."""
        if not answer.strip():
            return Grade(False, "no answer was given")
        shown = {"question": question, "rubric_item": gold_answer, "answer": answer}
        said = self.ask(**{name: shown[name] for name in self.signature.input_fields})
        return Grade(said.score == "1", one_line(said.reason), float(said.score))


class BlindRubricJudge(RubricJudge):
    """Scores an answer by one item of a rubric, without the question, as released."""

    signature = JudgeItemAlone


class SameEventJudge(PromptJudge):
    """Says whether a line of an answer tells of an event."""

    signature = JudgeSameEvent

    def __call__(self, event: str, line: str) -> bool:
        """Whether they are the same, raising what `ask` does. A blank line is none without a call."""
        return bool(line.strip()) and self.ask(event=event, line=line).verdict == "yes"


def align(events: Sequence[str], lines: Sequence[str], same: Callable[[str, str], bool]) -> list[str]:
    """The lines in order, each replaced by the first event it tells of that no line before it took.

    Source: `align_with_llm`, greedy; up to events x lines questions.
    """
    left, aligned = list(events), list[str]()
    for line in lines:
        event = next((each for each in left if same(each, line)), None)
        if event is not None:
            left.remove(event)
        aligned.append(line if event is None else event)
    return aligned


def order_scores(events: Sequence[str], aligned: Sequence[str]) -> dict[str, float]:
    """How well aligned lines tell some events in their order: precision, recall, F1, tau, and tau x F1.

    Tau is Kendall's tau-b from 0 to 1, of the places that all events and lines have on both sides; what a side lacks
    comes after everything. It is NaN where a side has one place only. Source: `event_ordering_score`.
    """
    from scipy.stats import kendalltau  # takes a second, and most questions need it not

    found = len(set(events) & set(aligned))
    extra = sum(line not in events for line in aligned)
    missing = sum(event not in aligned for event in events)
    precision = found / (found + extra) if found + extra else 0.0
    recall = found / (found + missing) if found + missing else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    union = dict.fromkeys([*events, *aligned])
    places = [{each: place for place, each in enumerate(side, 1)} for side in (events, aligned)]
    ranks = [[place.get(each, len(union) + 1) for each in union] for place in places]
    constant = any(len(set(side)) < 2 for side in ranks)
    correlation: Any = None if constant else kendalltau(*ranks)
    tau = float("nan") if constant else (float(correlation.statistic) + 1) / 2
    return {"precision": precision, "recall": recall, "f1": f1, "tau_norm": tau, "final_score": tau * f1}


def official_table(rows: Sequence[ScoredAnswer], part: str) -> dict[str, float]:
    """The official figure of each ability: the mean over chats of the mean over their questions of the ability.

    An ability with an undefined score has none. A failed question counts 0. Source: `report_llms_accuracies`.
    """
    by: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        chat, value = row.id.partition(f":{row.category}:")[0], 0.0 if row.failure else float("nan")
        by.setdefault(row.category, {}).setdefault(chat, []).append(row.parts.get(part, value))
    means = {ability: _mean([_mean(values) for values in chats.values()]) for ability, chats in by.items()}
    return {ability: means[ability] for ability in ABILITIES if not isnan(means.get(ability, float("nan")))}


class EvidenceRecall(Scorer):
    """The share of a question's evidence among the turns that the context rests on; needs no judge."""

    title = "evidence recall"
    retrieval_depth = RETRIEVAL_DEPTH

    def in_headline(self, example: dspy.Example) -> bool:
        """False for a question without evidence, which cannot measure retrieval."""
        return bool(example.evidence)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        context = prediction.get("context") or Context()
        value = evidence_recall(example.evidence, [context.without_fallback().sources], 1) or 0.0
        return Score(
            value,
            f"{value:.0%} of the evidence was recalled, {format_evidence(example.evidence)}.",
            {"evidence": value},
        )

    def retrieval_metrics(self, example: dspy.Example, ranked: Sequence[Sequence[str]]) -> dict[str, float]:
        """The recall of evidence by ability."""
        value = evidence_recall(example.evidence, ranked, RETRIEVAL_DEPTH)
        return {} if value is None else {f"recall@{RETRIEVAL_DEPTH} {example.category}": value}


class FixedRubricScorer(EvidenceRecall):
    """The rule `fixed`; the judge sees the question."""

    title = "rubric, fixed"
    judge_roles: ClassVar[JudgeRoles] = {"judge": RubricJudge, "events": SameEventJudge}
    headline: ClassVar[str] = "fixed"
    names: ClassVar[tuple[str, str]] = ("fixed", "official_with_question")
    """What the figures of the two rules are called, fixed and official."""

    def in_headline(self, example: dspy.Example) -> bool:
        """True: every question has a rubric."""
        return True

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer, judge = answer_of(prediction), self.judge()
        grades = [judge(example.question, item, answer) for item in example.rubric]
        values = [_mean([each.score for each in grades]), _mean([int(each.score) for each in grades])]
        parts = {}
        if example.category == EVENT_ORDERING:
            aligned = align(example.rubric, answer.split("\n"), self.judge("events"))
            order = order_scores(example.rubric, [line for line in aligned if line.strip()])
            parts = {"rubric_items": values[0], "order_f1": order["f1"]}
            values = [order["final_score"], order_scores(example.rubric, aligned)["tau_norm"]]
            values[0] = 0.0 if isnan(values[0]) else values[0]
        found = dict(zip(self.names, values, strict=True))
        parts = {name: value for name, value in {**found, **parts}.items() if not isnan(value)}
        return Score(parts.get(self.headline, 0.0), _feedback(example, grades), parts)


class OfficialRubricScorer(FixedRubricScorer):
    """The rule `official`; the judge does not see the question."""

    title = "rubric, official"
    judge_roles: ClassVar[JudgeRoles] = {"judge": BlindRubricJudge, "events": SameEventJudge}
    headline = "official"
    names = ("fixed_without_question", "official")

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """The official table: a figure for each ability."""
        return {f"official {name}": value for name, value in official_table(rows, self.headline).items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _feedback(example: dspy.Example, grades: Sequence[Grade]) -> str:
    pairs = [(item, grade) for item, grade in zip(example.rubric, grades, strict=True) if not grade.correct]
    if not pairs:
        return "Right: every item of the rubric is met."
    missed = "; ".join(f"{item} ({grade.reasoning or 'not met'})" for item, grade in pairs[:_SHOWN])
    where = f" The answer rests on {format_evidence(example.evidence)}." if example.evidence else ""
    return f"{len(pairs)} of {len(grades)} items of the rubric are not fully met: {missed}.{where}"
