"""DSPy's MIPROv2, which goes on where a proposal cannot be read."""

from __future__ import annotations

from typing import Any

import dspy
from dspy.propose import GroundedProposer

from ..reading.failures import concerns_prompt


class TolerantMIPROv2(dspy.MIPROv2):
    """MIPROv2 that goes on without the instructions that it cannot read."""

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
        """Propose as DSPy does, with a proposer that leaves out what cannot be read."""
        proposer = _TolerantProposer(
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
        proposals: Any = proposer.propose_instructions_for_program(
            trainset=trainset,
            program=program,
            demo_candidates=demo_candidates,
            trial_logs={},
            N=num_instruct_candidates,
        )

        instructions: dict[int, list[str]] = {}
        for number, predictor in enumerate(program.predictors()):
            # The program's own instructions take the place of the first proposal, as in DSPy.
            instructions[number] = [predictor.signature.instructions]
            for proposal in proposals[number][1:]:
                if proposal is not None:
                    instructions[number].append(proposal)
        return instructions


class _TolerantProposer(GroundedProposer):
    """Proposes None where a proposal cannot be read, or its request is refused."""

    def propose_instruction_for_predictor(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().propose_instruction_for_predictor(*args, **kwargs)
        except Exception as error:
            if concerns_prompt(error):
                return None
            raise
