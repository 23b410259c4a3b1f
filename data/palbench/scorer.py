"""PAL-Bench's scorers: BLEU, points for implicit needs (G-score), points for selected candidates (S-score).

A score is 0 to 1, but an S-score -1 to 1, as the paper has it: choosing by chance gives 0, and a failed question as
well. The paper's columns, on 0 to 100, are the aggregates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import dspy

from ...signatures.pal import selected
from ..confusion import Answered
from ..scorer import Score, Scorer, answer_of
from .judges import NeedsJudge
from .metrics import bleu_parts, hundreds, scaled, selection_points
from .topics import Topic

BLEU = {f"bleu{order}": f"BLEU-{order}" for order in (1, 2, 3, 4)}


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
