"""PAL-Bench's metrics of single answers: BLEU over jieba's words, G-score and S-score.

    bleu        BLEU-1 to BLEU-4, NLTK's sentence BLEU with smoothing method 1; of several references the best
    scaled      G-score: mean of 0 to 2 points for implicit needs, on 0 to 100
                S-score: mean of -2 to 2 points for selected candidates, on -100 to 100

Source: Mem-PAL, appendix B "Details of Evaluation Setup", and the released metrics code for what the paper leaves out:
jieba's default cut also for English (blanks are words), weights .33 for BLEU-3, the maximum over references taken for
every order by itself.

Example:
    >>> from mempiler.data.palbench.metrics import selection_points
    >>> selection_points(["S1", "S2"], {"S1": "pos", "S2": "neg", "S3": "pos"})
    0

Limits: BLEU of two good descriptions in different words is low; the paper's best method has BLEU-4 of 3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ...records.chinese import LONGEST_RUN, chinese_cutter
from ..confusion import Answered
from ..text_metrics import sentence_bleu

ORDERS = (1, 2, 3, 4)
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
    return {f"bleu{order}": value for order, value in zip(ORDERS, bleu(answer, references), strict=True)}


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
