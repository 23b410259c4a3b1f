"""One metric in the forms that optimizers need: bool, float, or score with feedback.

Feedback follows the evidence. A writing predictor learns whether its input was never stored, stored but not recalled,
or recalled and still answered wrongly; a reading one whether the evidence was before it at all. Feedback does not speak
of what is not known, e.g. what somebody else's module recalled without saying so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.scorer import OptimizerStep, Score
from ..programs.evidence import EvidenceStep, evidence_steps, turns_in_inputs
from ..programs.replay import inputs_contain_turn


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

    def score(self, example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> float:
        """Return the score, for search and reinforcement learning."""
        return float(self._benchmark.score_step(example, prediction, OptimizerStep(trace=trace)).value)

    def passed(self, example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> bool:
        """Return whether the answer reaches the threshold, for bootstrapping."""
        return self.score(example, prediction, trace) >= self.threshold

    def feedback(
        self,
        example: dspy.Example,
        prediction: dspy.Prediction,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        """Return the score and what went wrong where, for the call of `pred_name` in `pred_trace` if there is one."""
        score = self._benchmark.score_step(example, prediction, OptimizerStep(trace, pred_name, pred_trace))
        steps = evidence_steps(example.get("evidence_ids") or (), prediction.get("memory"), prediction.get("context"))
        if pred_name in self._writers:
            text = self._writer_feedback(example, steps, score, pred_trace or ())
        else:
            inputs = self._reading_inputs(pred_trace or trace or ())
            text = _reader_feedback(example, steps, score.feedback, inputs)
        return dspy.Prediction(score=float(score.value), feedback=text)

    def _writer_feedback(
        self, example: dspy.Example, steps: Mapping[str, EvidenceStep], score: Score, pred_trace: Any
    ) -> str:
        seen: dict[str, EvidenceStep] = {}
        for turn, step in steps.items():
            if any(inputs_contain_turn(inputs, turn) for _, inputs, _ in pred_trace):
                seen[turn] = step

        if not seen:
            text = "This call did not see what the question was about; nothing is to be learnt from it."
        elif score.value >= self.threshold and all(step == "recalled" for step in seen.values()):
            text = "The question could be answered from what was stored here. Keep storing such facts."
        else:
            lines = [f"{_line(example, turn)}: {_WRITER_ADVICE[step]}" for turn, step in seen.items()]
            text = " ".join([f"The question was: {example.question}", *lines])
        # What a metric says of the answer is no advice to a writer, unless it judged this very predictor.
        return f"{text} {score.feedback}" if score.judged_predictor is not None else text

    def _reading_inputs(self, trace: Any) -> list[Mapping[str, Any]]:
        """Return the inputs of the calls that read: to have been shown to a writer is not to have been recalled."""
        return [inputs for predictor, inputs, _ in trace if getattr(predictor, "path", "") not in self._writers]


_WRITER_ADVICE: dict[EvidenceStep, str] = {
    "never stored": "this call saw it, but nothing of it was stored. Store what a later question may ask for.",
    "stored but not recalled": "it was stored, but searching with the question did not find it. "
    "Store it in words that such a question would use, with names and dates.",
    "not recalled": "searching with the question did not find it. "
    "Store it in words that such a question would use, with names and dates.",
    "recalled": "it was stored and recalled, but the answer was still wrong. Keep every name, number and date of it.",
}


def _reader_feedback(
    example: dspy.Example, steps: Mapping[str, EvidenceStep], feedback: str, inputs: Sequence[Mapping[str, Any]]
) -> str:
    """Return the metric's feedback behind a sentence on which of the evidence was before the call."""
    turns = list(example.get("evidence_ids") or ())
    recalled = [turn for turn in turns if steps.get(turn) == "recalled"]
    shown = {*recalled, *turns_in_inputs(inputs, turns, example.history)} if turns else set[str]()
    missing = [turn for turn in turns if turn in steps and turn not in shown]

    if turns and len(missing) == len(turns):
        reasons = ", ".join(f"{turn} was {steps[turn]}" for turn in missing)
        return f"The evidence was not in the context ({reasons}), so this call could not know the answer. {feedback}"
    if missing:
        return f"Of the evidence, {', '.join(missing)} was not in the context. {feedback}"
    if shown and len(shown) == len(turns):
        return f"The evidence was in the context. {feedback}"
    if shown:
        return f"Of the evidence, {', '.join(turn for turn in turns if turn in shown)} was in the context. {feedback}"
    return feedback


def _line(example: dspy.Example, turn_id: str) -> str:
    """Return a turn of the history as prompts show it; its id where it is not there."""
    known = example.history.turns.get(turn_id)
    if known is None:
        return turn_id
    turn, item = known
    return turn.line(item.time)
