"""DSPy's InferRules, which goes on where rules cannot be read."""

from __future__ import annotations

from typing import Any

import dspy
from dspy.teleprompt.infer_rules import RulesInductionProgram

from ..engines.metered_lm import MeteredLM
from ..reading.failures import concerns_prompt, failure_kind
from ..records import estimate_tokens


class PromptTooLongError(ValueError):
    """Raised if the examples for rules do not fit a prompt.

    On any ValueError, DSPy leaves out one example and asks again.
    """


class TolerantInferRules(dspy.InferRules):
    """DSPy's InferRules, which asks the prompt model and goes on without unreadable rules.

    Args:
        prompt_lm: Proposes rules.
        max_demo_tokens: Tokens of the demos that rules are induced from.
        **settings: What DSPy's own class takes.
    """

    def __init__(self, prompt_lm: MeteredLM, max_demo_tokens: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._max_demo_tokens = max_demo_tokens
        self.rules_induction_program = _TolerantRulesInduction(self.num_rules, prompt_lm)

    def get_predictor_demos(self, trainset: Any, predictor: Any) -> list[dict[str, Any]]:
        """Return the first demos that fit together; at least one, if there is any."""
        demos: list[dict[str, Any]] = super().get_predictor_demos(trainset, predictor)
        fitting = 0
        total_tokens = 0
        for demo in demos:
            total_tokens += sum(estimate_tokens(str(value)) for value in demo.values())
            if total_tokens <= self._max_demo_tokens:
                fitting += 1
        return demos[: max(1, fitting)]

    def induce_natural_language_rules(self, predictor: Any, trainset: Any) -> Any:
        """Return the rules as text; "" if not even one example fits the prompt model."""
        try:
            return super().induce_natural_language_rules(predictor, trainset)
        except RuntimeError as error:
            # DSPy raises it after it has left out one example after another.
            if isinstance(error.__cause__, PromptTooLongError):
                return ""
            raise

    def update_program_instructions(self, predictor: Any, natural_language_rules: str) -> None:
        if natural_language_rules:
            super().update_program_instructions(predictor, natural_language_rules)


class _TolerantRulesInduction(RulesInductionProgram):
    """Returns no rules if they cannot be read, or the request is refused for its content."""

    def __init__(self, num_rules: int, prompt_lm: MeteredLM) -> None:
        super().__init__(num_rules, teacher_settings={"lm": prompt_lm})

    def forward(self, examples_text: str) -> str:
        """Return the rules that the examples suggest; "" if no rules can be had.

        Raises:
            PromptTooLongError: The request is refused for its length.
        """
        try:
            return super().forward(examples_text)
        except Exception as error:
            if failure_kind(error) == "too-long":
                # DSPy's InferRules catches this ValueError and asks again with one example less.
                raise PromptTooLongError("the examples do not fit the model") from error
            if concerns_prompt(error):
                # Without rules, the predictor keeps its instructions.
                return ""
            raise
