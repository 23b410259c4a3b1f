"""The optimizer `infer-rules`: rules for the instructions, induced from demos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import dspy
from dspy.teleprompt.infer_rules import RulesInductionProgram

from ..engines.metered_lm import MeteredLM
from ..programs.program import MemoryProgram
from ..reading.failures import concerns_prompt, failure_kind
from ..records import estimate_tokens
from .bootstrapping import (
    BootstrapSettings,
    bounds_of_recalls,
    bounds_of_tries,
    prepare_bootstrapping,
)
from .call_bounds import CallBounds, Range
from .extra_settings import ExtraSettings
from .job import MAX_ERRORS, OptimizerJob
from .optimizer import Optimizer
from .proposals import ATTEMPTS

_BOOTSTRAP_SETTINGS = ExtraSettings(dspy.BootstrapFewShot, ("max_rounds",))


@dataclass(frozen=True, kw_only=True)
class InferRules(BootstrapSettings, Optimizer):
    """Induce rules from demos and add them to the instructions."""

    name: ClassVar[str] = "infer-rules"
    changes_in_program: ClassVar[str] = "instructions (rules induced from demos) and demos"
    cost_description: ClassVar[str] = (
        "5 valsets, one bootstrapped set, one proposal a predictor and candidate"
    )
    needs_valset: ClassVar[bool] = True
    extra_settings: ClassVar = (_BOOTSTRAP_SETTINGS,)
    smallest_values: ClassVar = {"max_tries": 1, "num_candidates": 1}

    num_candidates: int = 4
    """Programs with rules, of which the best is kept."""
    num_rules: int = 6
    """Rules of each predictor."""

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        valset = len(job.val)
        tries = bounds_of_tries(job, self, self.extra.get("max_rounds", 1))
        requests = self.num_candidates * job.predictor_count
        return CallBounds(
            # At least: all candidates are equal, since no rules could be read.
            answers=Range(valset + tries.low, self.num_candidates * valset + tries.high),
            recalls=bounds_of_recalls(job, self),
            memory_writings=Range(1, self.num_candidates + 1),
            # An answer that cannot be read is asked for again.
            proposals=Range(self.num_candidates, ATTEMPTS * requests),
        )

    def run(self, job: OptimizerJob) -> MemoryProgram:
        inputs = prepare_bootstrapping(job, self, job.metric_views.score)
        teleprompter = TolerantInferRules(
            job.prompt_lm,
            self.max_demo_tokens,
            metric=inputs.metric,
            metric_threshold=job.metric_views.threshold,
            num_threads=job.threads,
            max_errors=MAX_ERRORS,
            num_candidates=self.num_candidates,
            num_rules=self.num_rules,
            max_bootstrapped_demos=self.max_bootstrapped_demos,
            max_labeled_demos=inputs.max_labeled_demos,
            **_BOOTSTRAP_SETTINGS.select(self.extra),
        )
        compiled: Any = teleprompter.compile(
            job.student, trainset=inputs.trainset, valset=list(job.val)
        )
        return compiled


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
        """Return the rules; none if not even one example fits the prompt model."""
        try:
            return super().induce_natural_language_rules(predictor, trainset)
        except RuntimeError as error:
            if isinstance(error.__cause__, PromptTooLongError):
                return ""
            raise

    def update_program_instructions(self, predictor: Any, natural_language_rules: str) -> None:
        if natural_language_rules:
            super().update_program_instructions(predictor, natural_language_rules)


class _TolerantRulesInduction(RulesInductionProgram):
    """Returns no rules if they cannot be read, or the request is refused for its content.

    Raises:
        PromptTooLongError: The request is refused for its length.
    """

    def __init__(self, num_rules: int, prompt_lm: MeteredLM) -> None:
        super().__init__(num_rules, teacher_settings={"lm": prompt_lm})

    def forward(self, examples_text: str) -> str:
        try:
            return super().forward(examples_text)
        except Exception as error:
            if failure_kind(error) == "too-long":
                raise PromptTooLongError("the examples do not fit the model") from error
            if concerns_prompt(error):
                return ""
            raise
