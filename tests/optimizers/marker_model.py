"""A scripted model whose answers get better with the instruction that it proposes itself."""

import json
from typing import Any

import pytest

BETTER = "Name the marker."
"""The instruction with which the model answers every question rightly."""

PROPOSING_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "mipro": {
        "num_candidates": 3,
        "num_trials": 2,
        "max_tries": 4,
        "max_bootstrapped_demos": 1,
        "max_labeled_demos": 2,
    },
    "copro": {"breadth": 3, "depth": 2},
    "infer-rules": {"num_candidates": 2, "max_tries": 4},
    "gepa": {"max_metric_calls": 16},
    "simba": {"bsize": 4, "num_candidates": 2, "max_steps": 2, "max_demos": 0},
    "better-together": {"strategy": "copro -> infer-rules"},
}
"""The optimizers that have instructions proposed, with settings that keep them small."""

FAST_OPTIMIZERS = ("gepa", "mipro")

each_proposing_optimizer = pytest.mark.parametrize(
    "optimizer",
    [
        name if name in FAST_OPTIMIZERS else pytest.param(name, marks=pytest.mark.slow)
        for name in PROPOSING_OPTIMIZERS
    ],
)


def fact_number(prompt: str) -> str:
    """Return the number of the fact that a prompt asks for, as 23 in "What is fact 23?"."""
    question = prompt.rsplit("[[ ## question ## ]]", 1)[1].split("?")[0]
    return question.split()[-1]


def proposal(kind: str, instruction: str) -> str | dict[str, Any]:
    """Return the reply of a prompt LM that proposes an instruction.

    Args:
        kind: The first output field of the call, by which the optimizers differ.
        instruction: What is proposed.
    """
    if kind == "new_instruction":
        # GEPA reads JSON.
        return json.dumps({"new_instruction": instruction})
    if kind == "reasoning":
        return {"reasoning": instruction, "natural_language_rules": instruction}
    if kind == "proposed_instruction":
        return {
            "proposed_instruction": instruction,
            "proposed_prefix_for_output_field": "Answer:",
        }
    if kind == "discussion":
        return {"discussion": instruction, "module_advice": {"task.answer": instruction}}
    return {kind: instruction}


class MarkerModel:
    """A scripted model for all roles: it answers questions, and proposes `BETTER`.

    Args:
        unreadable_in_ten: Of every ten proposals, so many cannot be read: the first ones.
    """

    def __init__(self, unreadable_in_ten: int = 0) -> None:
        self.unreadable_in_ten = unreadable_in_ten
        self.engine: Any = None
        """The engine that asks the model; it knows the system prompt and the temperature."""
        self.answers = 0
        self.proposals = 0
        self.unreadable_proposals = 0

    def __call__(self, kind: str, text: str, n: int) -> str | dict[str, Any]:
        if kind == "answer":
            self.answers += 1
            return self.answer(text)

        self.proposals += 1
        if (self.proposals - 1) % 10 < self.unreadable_in_ten:
            self.unreadable_proposals += 1
            return "I would rather not say."
        return self.propose(kind)

    def answer(self, text: str) -> str | dict[str, Any]:
        """Answer a question, by the instruction in the system prompt."""
        fact = fact_number(text)
        # Optimizers learn from questions whose answers differ. So some answers are right from the
        # start, and others now and then.
        is_easy = int(fact[-1]) < 2
        is_lucky = self.engine.heat > 0 and self.answers % 3 == 0
        if BETTER in self.engine.system or is_easy or is_lucky:
            return {"answer": f"marker {fact}"}
        return {"answer": "no idea"}

    def propose(self, kind: str) -> str | dict[str, Any]:
        """Propose an instruction."""
        return proposal(kind, BETTER)
