"""One metric in the forms that optimizers need: bool, float, or score with feedback.

Feedback follows the evidence of a question. A writing predictor learns whether what it saw was
never stored, stored but not recalled, or recalled and still answered wrongly. A reading predictor
learns whether the evidence was before it at all. Feedback is silent about what is not known, such
as what a user's own module recalled without saying so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.scorer import OptimizerStep, Score, Trace
from ..memory.memory import Memory
from ..memory.word_count import count_memory_words
from ..programs.evidence import EvidenceStep, evidence_steps, turns_in_inputs
from ..programs.program import usage_of
from ..programs.replay import inputs_contain_turn
from ..records import Context, estimate_tokens
from .frontier import PROMPT_TOKENS, SCORE, STORED_WORDS


class MetricViews:
    """Views of a benchmark's metric.

    Args:
        benchmark: Its metric is viewed.
        threshold: The smallest score of an answer that is good enough to learn from.
        writers: Names of the writing predictors, whose feedback is about what they stored.
        tunes_writing: Whether the writing predictors are tuned. Then the length of the memories is
            an objective, too.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        threshold: float = 0.5,
        writers: Sequence[str] = (),
        tunes_writing: bool = False,
    ) -> None:
        self.benchmark = benchmark
        self._writers = frozenset(writers)
        self._tunes_writing = tunes_writing
        self.threshold = threshold

    def score(
        self, example: dspy.Example, prediction: dspy.Prediction, trace: Trace | None = None
    ) -> float:
        """Return the score, for search and reinforcement learning."""
        step = OptimizerStep(trace=trace)
        return float(self.benchmark.score_step(example, prediction, step).value)

    def passed(
        self, example: dspy.Example, prediction: dspy.Prediction, trace: Trace | None = None
    ) -> bool:
        """Return whether the answer reaches the threshold, for bootstrapping."""
        return self.score(example, prediction, trace) >= self.threshold

    def feedback(
        self,
        example: dspy.Example,
        prediction: dspy.Prediction,
        trace: Trace | None = None,
        pred_name: str | None = None,
        pred_trace: Trace | None = None,
    ) -> dspy.Prediction:
        """Return the score, a text on what went wrong where, and the scores of all objectives.

        The objectives are only returned for the whole program, see `_objective_scores`. The
        parameters have the names that GEPA uses.

        Args:
            example: The question.
            prediction: The program's answer.
            trace: All predictor calls behind the answer.
            pred_name: The predictor that the feedback is for; None for the whole program.
            pred_trace: The calls of that predictor.
        """
        score = self.benchmark.score_step(
            example, prediction, OptimizerStep(trace, pred_name, pred_trace)
        )
        # For each turn with evidence, how far it came: e.g. "stored but not recalled".
        fate_by_turn = evidence_steps(
            example.get("evidence_ids") or (), prediction.get("memory"), prediction.get("context")
        )
        if pred_name in self._writers:
            text = self._writer_feedback(example, fate_by_turn, score, pred_trace or ())
        elif score.is_about_memory:
            # It says itself how far the answer came.
            text = score.feedback
        else:
            # Feedback for the whole program is about all of its calls.
            calls = pred_trace or trace or ()
            inputs = self._reading_inputs(calls)
            text = _reader_feedback(example, fate_by_turn, score.feedback, inputs)
        value = float(score.value)
        if pred_name is not None:
            return dspy.Prediction(score=value, feedback=text)
        objective_scores = self._objective_scores(value, prediction)
        return dspy.Prediction(score=value, feedback=text, objective_scores=objective_scores)

    def _objective_scores(self, score: float, prediction: dspy.Prediction) -> dict[str, float]:
        """Return the score of an answer by each objective, as GEPA takes them.

        GEPA takes more for better. So what costs is counted as a negative number: the tokens of
        all prompts that recalled and answered, and the words of the memory if writing is tuned. If
        nothing was answered, the tokens of what was recalled count as those of a prompt.
        """
        objective_scores = {SCORE: score}
        usage = usage_of(prediction)
        if usage is not None:
            prompt_tokens = float(usage.input_tokens)
            context: Context | None = prediction.get("context")
            if context is not None and not self.benchmark.scorer.needs_answer:
                prompt_tokens += estimate_tokens(context.text())
            objective_scores[PROMPT_TOKENS] = -prompt_tokens

        memory = prediction.get("memory")
        if self._tunes_writing and isinstance(memory, Memory):
            objective_scores[STORED_WORDS] = -float(count_memory_words(memory))
        return objective_scores

    def _writer_feedback(
        self,
        example: dspy.Example,
        fate_by_turn: Mapping[str, EvidenceStep],
        score: Score,
        pred_trace: Trace,
    ) -> str:
        """Return what a writing predictor can learn from the answer to a question.

        It is told only of the evidence that its own calls were shown: that these calls were not
        concerned, that they did well, or what became of each turn of evidence.

        Args:
            example: The question.
            fate_by_turn: How far each turn of evidence came; only turns of which that is known.
            score: The score of the answer.
            pred_trace: The calls of the predictor.
        """
        fate_of_seen_turns: dict[str, EvidenceStep] = {}
        for turn_id, fate in fate_by_turn.items():
            if any(inputs_contain_turn(dict(inputs), turn_id) for _, inputs, _ in pred_trace):
                fate_of_seen_turns[turn_id] = fate

        if score.is_about_memory:
            return _memory_feedback(example, list(fate_of_seen_turns), score)

        is_good_answer = score.value >= self.threshold
        if not fate_of_seen_turns:
            text = _NOT_CONCERNED
        elif is_good_answer and set(fate_of_seen_turns.values()) == {"recalled"}:
            text = (
                "The question could be answered from what was stored here. Keep storing such facts."
            )
        else:
            sentences = [f"The question was: {example.question}"]
            for turn_id, fate in fate_of_seen_turns.items():
                sentences.append(f"{_line_of_turn(example, turn_id)}: {_WRITER_ADVICE[fate]}")
            text = " ".join(sentences)

        # The metric's own feedback is mostly about the answer, which a writer does not give. Only a
        # metric that judges a single predictor has something to say to it: it judged this one.
        if score.judged_predictor is None:
            return text
        return f"{text} {score.feedback}"

    def _reading_inputs(self, trace: Trace) -> list[Mapping[str, Any]]:
        """Return the inputs of the calls that read.

        What a writer was shown does not count as recalled.
        """
        reading_inputs: list[Mapping[str, Any]] = []
        for predictor, inputs, _ in trace:
            if getattr(predictor, "path", "") not in self._writers:
                reading_inputs.append(inputs)
        return reading_inputs


_NOT_CONCERNED = (
    "This call did not see what the question was about; nothing is to be learnt from it."
)
_NOT_FOUND_ADVICE = (
    "searching with the question did not find it. "
    "Store it in words that such a question would use, with names and dates."
)
_WRITER_ADVICE: dict[EvidenceStep, str] = {
    "never stored": (
        "this call saw it, but nothing of it was stored. Store what a later question may ask for."
    ),
    "stored but not recalled": f"it was stored, but {_NOT_FOUND_ADVICE}",
    "not recalled": _NOT_FOUND_ADVICE,
    "recalled": (
        "it was stored and recalled, but the answer was still wrong. "
        "Keep every name, number and date of it."
    ),
}


def _memory_feedback(example: dspy.Example, seen_ids: Sequence[str], score: Score) -> str:
    """Return what a writing predictor can learn from a metric that is about the memory itself.

    Args:
        example: The question.
        seen_ids: Ids of the turns with evidence that the predictor's calls were shown.
        score: The score, whose feedback says which words were lost at which stage.
    """
    # Without evidence nobody knows what the question was about; then every call may be concerned.
    if example.get("evidence_ids") and not seen_ids:
        return _NOT_CONCERNED
    sentences = [f"The question was: {example.question}"]
    if seen_ids:
        lines = " ".join(_line_of_turn(example, turn_id) for turn_id in seen_ids)
        sentences.append(f"This call saw what it rests on: {lines}")
    sentences.append(score.feedback)
    return " ".join(sentences)


def _reader_feedback(
    example: dspy.Example,
    fate_by_turn: Mapping[str, EvidenceStep],
    feedback: str,
    inputs: Sequence[Mapping[str, Any]],
) -> str:
    """Return the metric's feedback after a sentence on the evidence that the call was shown.

    Args:
        example: The question.
        fate_by_turn: How far each turn of evidence came; turns of which it is not known are not
            in it, and nothing is said of them unless the inputs show them.
        feedback: The metric's feedback on the answer.
        inputs: The inputs of the calls that read.
    """
    turn_ids = list(example.get("evidence_ids") or ())
    if not turn_ids:
        return feedback

    shown_ids = set(turns_in_inputs(inputs, turn_ids, example.history))
    for turn_id in turn_ids:
        if fate_by_turn.get(turn_id) == "recalled":
            shown_ids.add(turn_id)
    missing_ids = [
        turn_id for turn_id in turn_ids if turn_id in fate_by_turn and turn_id not in shown_ids
    ]

    if len(missing_ids) == len(turn_ids):
        reasons = ", ".join(f"{turn_id} was {fate_by_turn[turn_id]}" for turn_id in missing_ids)
        return (
            f"The evidence was not in the context ({reasons}), "
            f"so this call could not know the answer. {feedback}"
        )
    if missing_ids:
        return f"Of the evidence, {', '.join(missing_ids)} was not in the context. {feedback}"

    # Nothing is known to be missing; the turns that are not shown are of unknown fate.
    if shown_ids and len(shown_ids) == len(turn_ids):
        return f"The evidence was in the context. {feedback}"
    if shown_ids:
        shown_in_order = [turn_id for turn_id in turn_ids if turn_id in shown_ids]
        return f"Of the evidence, {', '.join(shown_in_order)} was in the context. {feedback}"
    return feedback


def _line_of_turn(example: dspy.Example, turn_id: str) -> str:
    """Return a turn of the history as prompts show it; its id if the history lacks it."""
    turn_and_item = example.history.turns.get(turn_id)
    if turn_and_item is None:
        return turn_id
    turn, item = turn_and_item
    return turn.line(item.time)
