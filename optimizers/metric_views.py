"""One metric in the forms that optimizers need: bool, float, or score with feedback.

Feedback follows the evidence: a writing predictor learns whether its input was never stored, stored but not recalled,
or recalled and still answered wrongly; the answering one whether the evidence was before it at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import dspy

from ..data.benchmark import Benchmark
from ..memory.memory import stored_sources
from ..programs.remember import saw

Step = Literal["never stored", "stored but not recalled", "recalled"]


class MetricViews:
    """Views of a benchmark's metric.

    Args:
        benchmark: Whose metric it is.
        threshold: Least score of an answer that is good enough to learn from.
        writers: Names of the writing predictors, whose feedback is about what they stored.
    """

    def __init__(self, benchmark: Benchmark, threshold: float = 0.5, writers: Sequence[str] = ()) -> None:
        self._benchmark = benchmark
        self._writers = frozenset(writers)
        self.threshold = threshold

    def number(self, example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> float:
        """The score, for search and reinforcement learning."""
        return float(self._benchmark.score(example, prediction).value)

    def passed(self, example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> bool:
        """Whether the answer reaches the threshold, for bootstrapping."""
        return self.number(example, prediction) >= self.threshold

    def feedback(
        self,
        example: dspy.Example,
        prediction: dspy.Prediction,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        """The score, and what went wrong where; `pred_name` and `pred_trace` narrow it to one predictor's call."""
        score = self._benchmark.score(example, prediction)
        lost = evidence_step(example, prediction)
        if pred_name in self._writers:
            words = self._for_writer(example, lost, score.value, pred_trace or ())
        else:
            words = _for_reader(lost, score.feedback)
        return dspy.Prediction(score=float(score.value), feedback=words)

    def _for_writer(self, example: dspy.Example, lost: dict[str, Step], value: float, pred_trace: Any) -> str:
        seen = {turn: step for turn, step in lost.items() if any(saw(inputs, turn) for _, inputs, _ in pred_trace)}
        if not seen:
            return "This call did not see what the question was about; nothing is to be learnt from it."
        said = [f"{_line(example, turn)}: {_WRITER[step]}" for turn, step in seen.items()]
        if value >= self.threshold and all(step == "recalled" for step in seen.values()):
            return "The question could be answered from what was stored here. Keep storing such facts."
        return " ".join([f"The question was: {example.question}", *said])


_WRITER: dict[str, str] = {
    "never stored": "this call saw it, but nothing of it was stored. Store what a later question may ask for.",
    "stored but not recalled": "it was stored, but searching with the question did not find it. "
    "Store it in words that such a question would use, with names and dates.",
    "recalled": "it was stored and recalled, but the answer was still wrong. Keep every name, number and date of it.",
}


def evidence_step(example: dspy.Example, prediction: dspy.Prediction) -> dict[str, Step]:
    """How far each turn of `focus` got; empty where the example names none or the prediction has no memory."""
    memory, context = prediction.get("memory"), prediction.get("context")
    if memory is None or context is None or not example.get("focus"):
        return {}
    stored, recalled = stored_sources(memory), set(context.sources)
    return {
        turn: "recalled" if turn in recalled else "stored but not recalled" if turn in stored else "never stored"
        for turn in example.focus
    }


def _for_reader(lost: dict[str, Step], feedback: str) -> str:
    missing = [turn for turn, step in lost.items() if step != "recalled"]
    if missing and len(missing) == len(lost):
        ways = ", ".join(f"{turn} was {lost[turn]}" for turn in missing)
        return f"The evidence was not in the context ({ways}), so this call could not know the answer. {feedback}"
    if missing:
        return f"Of the evidence, {', '.join(missing)} was not in the context. {feedback}"
    return f"The evidence was in the context. {feedback}" if lost else feedback


def _line(example: dspy.Example, turn: str) -> str:
    found = example.history.turns.get(turn)
    return found[0].line(found[1].time) if found else turn
