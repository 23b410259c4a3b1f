"""The judge of a benchmark: a language model that says whether an answer is right.

    runner ── Judge(lm, adapter) ──> benchmark.judge        before the first question is scored
    benchmark.score ── judge(question, gold, answer) ──> Verdict

A benchmark does not know which model judges: whoever runs it sets `benchmark.judge`, and a benchmark with `needs_judge`
refuses to score without one. Judging runs under the judge's own model, outside every optimizer's trace.

Example:
    >>> benchmark.judge = Judge(language_model("openai/gpt-4.1-mini", meter, role="judge"), adapter())
    >>> benchmark.score(example, dspy.Prediction(answer="Lisbon")).parts["judge"]
    1.0

Honest limits: one call per answer, no vote. A reply that stays unparseable raises DSPy's AdapterParseError, an endpoint
that fails its LMError: a judge that said nothing did not say "wrong".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import dspy

from ..signatures.judges import JudgeAnswer, judge_hash


@dataclass(frozen=True)
class Verdict:
    """What a judge says of one answer."""

    correct: bool
    reasoning: str = ""


class AnswerJudge(Protocol):
    """What a benchmark needs of its judge."""

    @property
    def hash(self) -> str:
        """Names the judge's prompt, for tables and manifests."""
        ...

    def __call__(self, question: str, gold_answer: str, answer: str) -> Verdict:
        """Judges one answer; may be called from many threads at once."""
        ...


class Judge:
    """Judges answers by `signatures.judges.JudgeAnswer`.

    Args:
        lm: The model that judges.
        adapter: How it is asked; DSPy's default if None.
    """

    def __init__(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        self._lm = lm
        self._adapter = adapter
        self._predict = dspy.Predict(JudgeAnswer)

    @property
    def hash(self) -> str:
        """`judge_hash` of the prompt."""
        return judge_hash(JudgeAnswer)

    def __call__(self, question: str, gold_answer: str, answer: str) -> Verdict:
        """Judges one answer. An empty one is wrong without a call.

        Raises:
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        if not answer.strip():
            return Verdict(False, "no answer was given")
        with dspy.context(lm=self._lm, adapter=self._adapter, trace=None, usage_tracker=None):
            found = self._predict(question=question, gold_answer=gold_answer, answer=answer)
        return Verdict(found.verdict == "CORRECT", " ".join(str(found.reasoning or "").split()))
