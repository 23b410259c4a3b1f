"""PersonaMem v2's metrics: a judge of what was retrieved (PGR, section 5), or the official multiple choice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import dspy

from ...records import Context
from ..acknowledgement import AcknowledgementJudge, recall_parts
from ..personamem.scorer import RightLetter, chooses
from ..scorer import Score, Scorer

_FINAL = re.compile(r"final answer\s*:\s*[*(]*([a-d])\b", re.IGNORECASE)


class PreferenceJudged(Scorer):
    """1 where the judge finds the row's preference in the retrieved context (PGR, section 5: binary recall).

    `parts` holds `recall`, and `recall_explicit` for the preferences that are there in words.
    """

    title = "judged recall"
    roles: ClassVar[Mapping[str, type[Any]]] = {"judge": AcknowledgementJudge}

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        context: Context = prediction.get("context") or Context()
        shown = "\n".join(hit.line() for hit in context.hits)
        (found,) = self.judge()(example.question, [example.reference], shown)
        parts = recall_parts([found.level])
        del parts["recall_exact"]  # of one reference, it is the recall
        verdict = "Right: what was retrieved holds" if parts["recall"] else "Wrong: what was retrieved does not hold"
        reason = f" (the judge: {found.reason})" if found.reason else ""
        return Score(parts["recall"], f"{verdict} the user's preference: {example.reference}{reason}", parts)


class FinalLetter(RightLetter):
    """1 when the right letter is chosen, by the first "Final Answer: X" or else by PersonaMem v1's rule."""

    def right(self, answer: str, gold: str) -> bool:
        final = _FINAL.findall(answer)
        return chooses(f"({final[0]})" if final else answer, gold)
