"""PAL-Bench's metrics, judges and scorers of single answers: BLEU, G-score and S-score.

    bleu        BLEU-1 to BLEU-4, NLTK's sentence BLEU with smoothing method 1; of several references the best
    NeedsJudge  0, .5, 1, 1.5 or 2 points for the implicit needs that a restatement meets (GPT-4 Score)
    scaled      G-score: mean of 0 to 2 points for implicit needs, on 0 to 100
                S-score: mean of -2 to 2 points for selected candidates, on -100 to 100

Source: Mem-PAL, appendix B "Details of Evaluation Setup", and the released metrics code for what the paper leaves out:
jieba's default cut also for English (blanks are words), weights .33 for BLEU-3, the maximum over references taken for
every order by itself.

Example:
    >>> from mempiler.data.palbench.scorer import selection_points
    >>> selection_points(["S1", "S2"], {"S1": "pos", "S2": "neg", "S3": "pos"})
    0

Limits: a score is 0 to 1, but an S-score -1 to 1, as the paper has it: choosing by chance gives 0, a failed question
too. BLEU of two good descriptions in different words is low; the paper's best method has BLEU-4 of 3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import dspy

from ...errors import one_line
from ...records.chinese import LONGEST_RUN, chinese_cutter
from ...signatures.judges import JudgeImplicitNeeds
from ...signatures.pal import selected
from ..judge import PromptJudge
from ..scorer import Answered, Score, Scorer, answer_of
from ..text_metrics import sentence_bleu
from .reader import Topic

BLEU = {f"bleu{order}": f"BLEU-{order}" for order in (1, 2, 3, 4)}
WEIGHTS = ((1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0), (0.33, 0.33, 0.33, 0.0), (0.25, 0.25, 0.25, 0.25))
"""Of n-grams of 1 to 4 words, for BLEU-1 to BLEU-4, as released."""
POINTS = {"pos": 1, "neg": -1, "neu": 0}
"""What selecting a candidate of each kind gives."""

_LONG_RUN = re.compile(rf"[\u4e00-\u9fd5]{{{LONGEST_RUN}}}")


def words(text: str) -> list[str]:
    """The text as jieba cuts it by default; blanks and punctuation marks are words, too."""
    ends = [run.end() for run in _LONG_RUN.finditer(text)]
    return [word for start, end in pairwise((0, *ends, len(text))) for word in chinese_cutter().cut(text[start:end])]


def bleu(answer: str, references: Sequence[str]) -> tuple[float, float, float, float]:
    """BLEU-1 to BLEU-4 of an answer, 0 to 1; of each order the best over the references.

    An empty answer, or one that shares no word, scores 0; so does any answer without a reference.
    """
    said, wanted = words(answer), [words(reference) for reference in references]

    def best(weights: tuple[float, ...]) -> float:
        return max((sentence_bleu(said, gold, weights) for gold in wanted), default=0.0)

    one, two, three, four = map(best, WEIGHTS)
    return one, two, three, four


def bleu_parts(answer: str, references: Sequence[str]) -> dict[str, float]:
    """`bleu` by name: bleu1 to bleu4."""
    return {f"bleu{order}": value for order, value in enumerate(bleu(answer, references), 1)}


def scaled(points: Sequence[float]) -> float:
    """The paper's scale for means of points; 0 if empty.

    0 to 2 points for implicit needs give a G-score of 0 to 100, -2 to 2 points for selections an S-score of -100 to 100
    (appendix B, Requirement Restatement and Solution Proposal).
    """
    return 50 * sum(points) / len(points) if points else 0.0


def hundreds(rows: Sequence[Answered], metrics: Mapping[str, str]) -> dict[str, float]:
    """Means of parts over all rows, on 0 to 100, under their names in tables; a failed question counts 0."""
    known = {part for row in rows for part in row.parts}
    return {metrics[name]: scaled([2 * row.parts.get(name, 0.0) for row in rows]) for name in metrics if name in known}


def selection_points(chosen: Sequence[str], feedback: Mapping[str, str]) -> int | None:
    """Points of a selection, -2 to 2; None where it is not two different candidates.

    Args:
        chosen: Ids of candidates.
        feedback: "pos", "neg" or "neu" by the id of each candidate.
    """
    if len(chosen) != 2 or len(set(chosen)) != 2 or not set(chosen) <= feedback.keys():
        return None
    return sum(POINTS[feedback[id]] for id in chosen)


@dataclass(frozen=True)
class Points:
    """What a judge gives a restatement."""

    points: float
    """0, .5, 1, 1.5 or 2."""
    analysis: str = ""


class NeedsJudge(PromptJudge):
    """Scores restatements by `signatures.judges.JudgeImplicitNeeds`."""

    signature = JudgeImplicitNeeds

    def __call__(self, topic: Topic, answer: str) -> Points:
        """Scores a restatement. An empty one scores 0 without a call.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        if not answer.strip():
            return Points(0.0, "no answer was given")
        found = self.ask(
            user_query=topic.user_query,
            requirement=topic.requirement,
            implicit_needs=list(topic.needs),
            prediction=answer,
        )
        return Points(found.score.points, one_line(found.analysis))


class RestatementBleu(Scorer):
    """BLEU against the whole requirement.

    Args:
        part: Which order counts, "bleu1" to "bleu4".
    """

    def __init__(self, part: str) -> None:
        self.part = part
        self.title = BLEU[part]

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        topic: Topic = example.asked.topic
        parts = bleu_parts(answer_of(prediction), self.references(topic))
        return Score(parts[self.part], self.feedback(topic), parts)

    def references(self, topic: Topic) -> Sequence[str]:
        """What an answer is compared with."""
        return [topic.requirement]

    def feedback(self, topic: Topic) -> str:
        """What a right answer holds."""
        return unsaid(topic)

    def aggregate(self, rows: Sequence[Answered]) -> dict[str, float]:
        """The paper's columns, on 0 to 100."""
        return hundreds(rows, BLEU)


class GenerationBleu(RestatementBleu):
    """BLEU against the two solutions that the user likes, the better of both."""

    def references(self, topic: Topic) -> Sequence[str]:
        return topic.positives

    def feedback(self, topic: Topic) -> str:
        liked, disliked = " / ".join(topic.positives), " / ".join(topic.negatives)
        return f"The user likes: {liked}. The user rejects: {disliked}."


class NeedPoints(Scorer):
    """Points of a judge for the implicit needs that a restatement meets, 0 to 2."""

    title = "G-score"
    roles: ClassVar[Mapping[str, type[Any]]] = {"judge": NeedsJudge}

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        topic: Topic = example.asked.topic
        found = self.judge()(topic, answer_of(prediction))
        value = found.points / 2
        if value >= 1:
            return Score(value, "Right: both implicit needs are met.", {"g_score": value})
        said = f" The judge says: {found.analysis}" if found.analysis else ""
        return Score(value, unsaid(topic) + said, {"g_score": value})

    def aggregate(self, rows: Sequence[Answered]) -> dict[str, float]:
        """The paper's column, on 0 to 100."""
        return hundreds(rows, {"g_score": "G-score"})


class SelectionPoints(Scorer):
    """A point for each liked candidate of the two chosen, minus one for each disliked."""

    title = "S-score"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores the ids that `prediction.answer` names; 0 where they are not two of the candidates."""
        feedback = example.asked.topic.feedback
        chosen = selected(answer_of(prediction), len(feedback))
        points = selection_points(chosen, feedback)
        if points is None:
            hint = f"Name exactly two of {', '.join(feedback)}; the answer names {', '.join(chosen) or 'none'}."
            return Score(0.0, hint, {"s_score": 0.0, "liked": 0.0, "disliked": 0.0, "valid": 0.0})
        kinds = [feedback[id] for id in chosen]
        counts = {"liked": kinds.count("pos") / 2, "disliked": kinds.count("neg") / 2, "valid": 1.0}
        words = {"pos": "liked", "neg": "disliked", "neu": "neither liked nor disliked"}
        said = "; ".join(f"{id} is {words[kind]}" for id, kind in zip(chosen, kinds, strict=True))
        liked = f"The user likes {' and '.join(example.answer)}."
        return Score(points / 2, f"{said}. {liked}", {"s_score": points / 2, **counts})

    def aggregate(self, rows: Sequence[Answered]) -> dict[str, float]:
        """The paper's column, on -100 to 100, and how many answers named no two candidates."""
        invalid = sum(row.failure is None and not row.parts.get("valid") for row in rows)
        return {"S-score": scaled([2 * row.parts.get("s_score", 0.0) for row in rows]), "invalid selections": invalid}


def unsaid(topic: Topic) -> str:
    """What a brief query leaves out."""
    return f"What the query left unsaid: {'; '.join(topic.needs)}. In full: {topic.requirement}"
