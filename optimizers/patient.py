"""DSPy's MIPROv2 and InferRules, which a proposal that cannot be read would end, with such proposals passed over.

What is passed over changes nothing: MIPRO searches among the other instructions, down to the one it began with, and a
candidate of rule induction goes without rules. COPRO has nothing to go on with, and ends (`compile`).
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import dspy
from dspy.propose import GroundedProposer
from dspy.teleprompt.infer_rules import RulesInductionProgram
from dspy.utils.exceptions import AdapterParseError

from ..records import estimate_tokens


class Mipro(dspy.MIPROv2):
    """MIPROv2 that passes over instructions it cannot read."""

    def _propose_instructions(
        self,
        program: Any,
        trainset: list[Any],
        demo_candidates: list[Any] | None,
        view_data_batch_size: int,
        program_aware_proposer: bool,
        data_aware_proposer: bool,
        tip_aware_proposer: bool,
        fewshot_aware_proposer: bool,
        num_instruct_candidates: int,
    ) -> dict[int, list[str]]:
        """As in DSPy, with a proposer that passes over what cannot be read."""
        proposer = _Proposer(
            program=program,
            trainset=trainset,
            prompt_model=self.prompt_model,
            view_data_batch_size=view_data_batch_size,
            program_aware=program_aware_proposer,
            use_dataset_summary=data_aware_proposer,
            use_task_demos=fewshot_aware_proposer,
            num_demos_in_context=3,
            use_tip=tip_aware_proposer,
            set_tip_randomly=tip_aware_proposer,
            use_instruct_history=False,
            set_history_randomly=False,
            rng=self.rng,
            init_temperature=self.init_temperature,
        )
        found: Any = proposer.propose_instructions_for_program(
            trainset=trainset,
            program=program,
            demo_candidates=demo_candidates,
            trial_logs={},
            N=num_instruct_candidates,
        )
        # The first is the program's own, whatever was proposed in its place.
        return {
            number: [predictor.signature.instructions, *(text for text in found[number][1:] if text is not None)]
            for number, predictor in enumerate(program.predictors())
        }


class _Proposer(GroundedProposer):
    """Proposes None where a proposal cannot be read."""

    def propose_instruction_for_predictor(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().propose_instruction_for_predictor(*args, **kwargs)
        except AdapterParseError:
            return None


class InferRules(dspy.InferRules):
    """InferRules that asks the prompt LM for its rules, and leaves a candidate without rules where it cannot read them.

    Args:
        prompt_lm: Proposes rules.
        most_tokens: Tokens of the demos that rules are induced from.
        **settings: As DSPy takes them.
    """

    def __init__(self, prompt_lm: Any, most_tokens: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._most_tokens = most_tokens
        self.rules_induction_program = _Rules(self.num_rules, prompt_lm)

    def get_predictor_demos(self, trainset: Any, predictor: Any) -> list[dict[str, Any]]:
        """As many of the demos as fit; at least one, where there is any."""
        found: list[dict[str, Any]] = super().get_predictor_demos(trainset, predictor)
        lengths = accumulate(sum(estimate_tokens(str(value)) for value in demo.values()) for demo in found)
        return found[: max(1, sum(length <= self._most_tokens for length in lengths))]

    def update_program_instructions(self, predictor: Any, natural_language_rules: str) -> None:
        if natural_language_rules:
            super().update_program_instructions(predictor, natural_language_rules)


class _Rules(RulesInductionProgram):
    """Induces rules under the prompt LM; none where they cannot be read."""

    def __init__(self, num_rules: int, prompt_lm: Any) -> None:
        super().__init__(num_rules, teacher_settings={"lm": prompt_lm})

    def forward(self, examples_text: str) -> str:
        try:
            return super().forward(examples_text)
        except AdapterParseError:
            return ""
