"""BEAM's scoring: a judge scores each item of a rubric; of event ordering the order counts as well.

Source: src/evaluation/compute_metrics.py and report_results.py of mohammadtavakoli78/BEAM. Two
rules score the same replies of one judge:

    official   as released: int() cuts .5 to 0; event ordering counts tau alone, and is undefined
               (NaN) where a ranking is constant; a table is the mean over chats for each ability,
               without a total
    fixed      .5 counts; event ordering is tau x F1 over the lines with words, and 0 where
               undefined; the total is the mean over all questions

They differ in what the judge sees, too: the released prompt leaves the question out. Under `fixed`
the judge sees it, and the column `official_with_question` says what the official rule makes of
these replies. Under `official` it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, ClassVar, NamedTuple

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
_MAX_LISTED = 5
"""Most items of a rubric that feedback lists."""


@dataclass(frozen=True)
class Grade(Verdict):
    """A judge's verdict on one item; `correct` where it is met in full."""

    score: float = 0.0
    """0, .5 or 1."""


class RubricJudge(Judge):
    """Scores an answer by one item of a rubric; sees the question."""

    signature = JudgeItem

    def __call__(self, question: str, gold_answer: str, answer: str) -> Grade:
        """Score an answer by the item `gold_answer`; an empty one has 0 without a call.

        Raises what `ask` does.
        """
        if not answer.strip():
            return Grade(False, "no answer was given")
        reply = self.ask_about_item(question, gold_answer, answer)
        return Grade(reply.score == "1", one_line(reply.reason), float(reply.score))

    def ask_about_item(self, question: str, rubric_item: str, answer: str) -> dspy.Prediction:
        """Ask with what the prompt shows."""
        return self.ask(question=question, rubric_item=rubric_item, answer=answer)


class BlindRubricJudge(RubricJudge):
    """Scores an answer by one item of a rubric, without the question, as released."""

    signature = JudgeItemAlone

    def ask_about_item(self, question: str, rubric_item: str, answer: str) -> dspy.Prediction:
        """Ask with what the prompt shows, which is not the question."""
        return self.ask(rubric_item=rubric_item, answer=answer)


class SameEventJudge(PromptJudge):
    """Judges whether a line of an answer tells of an event."""

    signature = JudgeSameEvent

    def __call__(self, event: str, line: str) -> bool:
        """Return whether they are the same; a blank line is none without a call.

        Raises what `ask` does.
        """
        if not line.strip():
            return False
        return self.ask(event=event, line=line).verdict == "yes"


def align(
    events: Sequence[str], lines: Sequence[str], same: Callable[[str, str], bool]
) -> list[str]:
    """Replace each line by the event that it tells of; other lines stay.

    It is the first such event that no line before it took. This takes up to events x lines
    questions. Source: `align_with_llm`, greedy.

    Args:
        events: The events in their order.
        lines: The lines of an answer.
        same: Returns whether an event and a line are the same.
    """
    free_events = list(events)
    aligned: list[str] = []
    for line in lines:
        event = next((event for event in free_events if same(event, line)), None)
        if event is None:
            aligned.append(line)
        else:
            free_events.remove(event)
            aligned.append(event)
    return aligned


def order_scores(events: Sequence[str], aligned: Sequence[str]) -> dict[str, float]:
    """Return whether an answer tells all events of a rubric, and in their order.

    An event that is told several times counts once, but an extra line counts each time, as in the
    released code. Source: `event_ordering_score`.

    Args:
        events: The events in their order.
        aligned: The lines of the answer as `align` returns them: the text of an event where a line
            tells of one, else the line itself.

    Returns:
        `precision`, `recall` and `f1` of the events told; `tau_norm`, which measures the order (see
        `_kendall_tau`) and is NaN where it is undefined; and `final_score`, which is tau times F1.
    """
    num_found = len(set(events) & set(aligned))
    # Lines that tell of no event.
    num_extra = sum(line not in events for line in aligned)
    num_missing = sum(event not in aligned for event in events)

    precision = num_found / (num_found + num_extra) if num_found + num_extra else 0.0
    recall = num_found / (num_found + num_missing) if num_found + num_missing else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    tau = _kendall_tau(events, aligned)
    return {
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "tau_norm": tau,
        "final_score": tau * f1,
    }


def _kendall_tau(events: Sequence[str], aligned: Sequence[str]) -> float:
    """Return Kendall's tau-b between the order of events and of lines, scaled to 0 to 1.

    Tau compares two rankings of the same texts. So every event and every line is ranked in both
    orders; a text that an order lacks is ranked after everything else. Tau is NaN where an order
    has the same rank for all texts.
    """
    # The import takes a second, and most questions do not need it.
    from scipy.stats import kendalltau

    all_texts = list(dict.fromkeys([*events, *aligned]))
    event_ranks = _ranks(events, all_texts)
    line_ranks = _ranks(aligned, all_texts)
    if len(set(event_ranks)) < 2 or len(set(line_ranks)) < 2:
        return nan
    correlation: Any = kendalltau(event_ranks, line_ranks)
    return (float(correlation.statistic) + 1) / 2


def _ranks(ordered_texts: Sequence[str], all_texts: Sequence[str]) -> list[int]:
    """Return the rank of each of `all_texts` in an order, from 1.

    A text that the order lacks is ranked last. Of a repeated text the last position counts.
    """
    rank_by_text = {text: rank for rank, text in enumerate(ordered_texts, 1)}
    last_rank = len(all_texts) + 1
    return [rank_by_text.get(text, last_rank) for text in all_texts]


def official_table(rows: Sequence[ScoredAnswer], part: str) -> dict[str, float]:
    """Return the figure of each ability, as the released code computes it.

    Each chat's questions of an ability are averaged first, then the chats. A failed question counts
    0. If one score of an ability is undefined, the ability is left out. Source:
    `report_llms_accuracies`.

    Args:
        rows: The answers.
        part: The part of a score to average; where a score lacks it, the score is undefined.
    """
    values_by_ability: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        # The id of a question is "CHAT:ABILITY:NUMBER".
        chat = row.id.partition(f":{row.category}:")[0]
        value = row.parts.get(part, 0.0 if row.failure else nan)
        values_by_chat = values_by_ability.setdefault(row.category, {})
        values_by_chat.setdefault(chat, []).append(value)

    figures: dict[str, float] = {}
    for ability in ABILITIES:
        values_by_chat = values_by_ability.get(ability)
        if not values_by_chat:
            continue
        figure = _mean([_mean(values) for values in values_by_chat.values()])
        # One NaN among the scores makes the mean NaN.
        if not isnan(figure):
            figures[ability] = figure
    return figures


class EvidenceRecall(Scorer):
    """The share of a question's evidence among the turns that the context rests on.

    It needs no judge.
    """

    title = "evidence recall"
    retrieval_depth = RETRIEVAL_DEPTH

    def in_headline(self, example: dspy.Example) -> bool:
        """Return False for a question without evidence, which cannot measure retrieval."""
        return bool(example.evidence)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        context: Context = prediction.get("context") or Context()
        sources = context.without_fallback().sources
        recall = evidence_recall(example.evidence, [sources], 1) or 0.0
        evidence = format_evidence(example.evidence)
        feedback = f"{recall:.0%} of the evidence was recalled, {evidence}."
        return Score(recall, feedback, {"evidence": recall})

    def retrieval_metrics(
        self, example: dspy.Example, ranked: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        """Return the recall of evidence under the name of the ability."""
        recall = evidence_recall(example.evidence, ranked, RETRIEVAL_DEPTH)
        if recall is None:
            return {}
        return {f"recall@{RETRIEVAL_DEPTH} {example.category}": recall}


class _RuleScores(NamedTuple):
    """The score of an answer by each of the two rules, see the top of this file."""

    fixed: float
    """By our rule, which repairs the official one."""
    official: float
    """By the rule of the released code; NaN where it is undefined."""


class _OrderScores(NamedTuple):
    """How well an answer tells events in their order."""

    scores: _RuleScores
    f1: float
    """F1 of the events that are told, whatever their order."""


class FixedRubricScorer(EvidenceRecall):
    """Our rule `fixed`, which repairs the official one; the judge sees the question."""

    title = "rubric, fixed"
    judge_roles: ClassVar[JudgeRoles] = {"judge": RubricJudge, "events": SameEventJudge}
    headline: ClassVar[str] = "fixed"
    """The part of a score that is its value."""
    names: ClassVar[tuple[str, str]] = ("fixed", "official_with_question")
    """What parts of a score call the figures of the two rules, fixed and official."""

    def in_headline(self, example: dspy.Example) -> bool:
        """Return True: every question has a rubric."""
        return True

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Have a judge grade each item of the rubric, and score the answer by both rules.

        Of event ordering the order of the events is scored instead of the items.
        """
        answer = answer_of(prediction)
        judge = self.judge()
        grades: list[Grade] = [judge(example.question, item, answer) for item in example.rubric]
        item_scores = _RuleScores(
            fixed=_mean([grade.score for grade in grades]),
            # The released code cuts grades with int(), so an item that is half met counts 0.
            official=_mean([int(grade.score) for grade in grades]),
        )

        if example.category == EVENT_ORDERING:
            order = self._score_order(example, answer)
            parts = self._parts(order.scores)
            parts["rubric_items"] = item_scores.fixed
            parts["order_f1"] = order.f1
        else:
            parts = self._parts(item_scores)
        return Score(parts.get(self.headline, 0.0), _feedback(example, grades), parts)

    def _score_order(self, example: dspy.Example, answer: str) -> _OrderScores:
        """Ask which line of an answer tells of which event, and score the order by both rules."""
        events: Sequence[str] = example.rubric
        aligned = align(events, answer.split("\n"), self.judge("events"))

        # The released code ranks blank lines too, and counts the order alone: an answer that tells
        # two of ten events in order scores well.
        official_score = order_scores(events, aligned)["tau_norm"]

        # Our rule leaves blank lines out, and multiplies the order by F1 of the events told.
        lines_with_words = [line for line in aligned if line.strip()]
        order = order_scores(events, lines_with_words)
        fixed_score = order["final_score"]
        if isnan(fixed_score):
            fixed_score = 0.0

        scores = _RuleScores(fixed=fixed_score, official=official_score)
        return _OrderScores(scores=scores, f1=order["f1"])

    def _parts(self, scores: _RuleScores) -> dict[str, float]:
        """Return the scores of both rules by their names, without an undefined score."""
        fixed_name, official_name = self.names
        parts = {fixed_name: scores.fixed}
        if not isnan(scores.official):
            parts[official_name] = scores.official
        return parts


class OfficialRubricScorer(FixedRubricScorer):
    """The rule `official`; the judge does not see the question."""

    title = "rubric, official"
    judge_roles: ClassVar[JudgeRoles] = {"judge": BlindRubricJudge, "events": SameEventJudge}
    headline = "official"
    names = ("fixed_without_question", "official")

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Return the official table: a figure for each ability."""
        figures: Mapping[str, float] = official_table(rows, self.headline)
        return {f"official {ability}": figure for ability, figure in figures.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _feedback(example: dspy.Example, grades: Sequence[Grade]) -> str:
    """Name the items of the rubric that an answer does not meet in full, and why."""
    missed_items: list[str] = []
    for item, grade in zip(example.rubric, grades, strict=True):
        if not grade.correct:
            missed_items.append(f"{item} ({grade.reasoning or 'not met'})")
    if not missed_items:
        return "Right: every item of the rubric is met."

    listed_items = "; ".join(missed_items[:_MAX_LISTED])
    feedback = (
        f"{len(missed_items)} of {len(grades)} items of the rubric are not fully met: "
        f"{listed_items}."
    )
    if example.evidence:
        feedback += f" The answer rests on {format_evidence(example.evidence)}."
    return feedback
