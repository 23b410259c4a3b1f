"""GEPA's proposer of instructions, without those that break a rule.

A proposal that breaks a rule wherever it is put has been refused before (`proposals.py`). Only GEPA
says which instruction a proposal replaces, so only here the length of the whole program is known
before it is scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dspy.teleprompt.gepa.instruction_proposal import InstructionProposer
from gepa.core.adapter import ProposalFn

from .prompt_rules import PromptRules

# DSPy marks the class as experimental by a decorator, after which type checkers see a function.
_InstructionProposer: Any = InstructionProposer


class _RuleAbidingProposer(_InstructionProposer):
    """Proposes as DSPy does, and leaves out instructions with which the program breaks a rule."""

    def __init__(self, rules: PromptRules) -> None:
        super().__init__()
        self._rules = rules

    def __call__(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        components = components_to_update
        proposals: dict[str, str] = super().__call__(candidate, reflective_dataset, components)
        allowed: dict[str, str] = {}
        for name, text in proposals.items():
            instructions = {**candidate, **allowed, name: text}
            if self._rules.refuse_instructions(instructions) is None:
                allowed[name] = text
        # Without any, GEPA goes on to its next round.
        return allowed


def rule_abiding_proposer(rules: PromptRules | None) -> ProposalFn:
    """Return DSPy's proposer of instructions, which keeps to the rules if there are any."""
    # It must be DSPy's class: GEPA shows its own proposer more of an answer than any other one.
    return _InstructionProposer() if rules is None else _RuleAbidingProposer(rules)
