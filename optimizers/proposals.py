"""Asks a model for prompt proposals; unreadable ones are sampled again, counted, and given up in the end.

    optimizer ── request ──> ProposingLM ── as often as `attempts` ──> the prompt LM
                                  └── what can be read; else the last answers, and the adapter says what is wrong

A proposal that was given up, or whose request the endpoint refuses, would end MIPRO and rule induction, so it is passed
over there, as GEPA and SIMBA do themselves. COPRO has nothing to go on with, and ends (`compile`).
"""

from __future__ import annotations

import contextvars
import zlib
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import dspy
from dspy.propose import GroundedProposer
from dspy.teleprompt.infer_rules import RulesInductionProgram
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError

from ..engines.metered_lm import MeteredLM
from ..reading.failures import concerns_prompt, failure_kind
from ..records import estimate_tokens

ATTEMPTS = 3
"""How often one request is sampled before a proposal is given up; an adapter that corrects asks once more before."""

MOST_EXAMPLES = 20
"""Most unreadable answers that a run keeps, so that its user can see what is wrong with them."""
MOST_CHARACTERS = 2000

_form: contextvars.ContextVar[tuple[Any, Any] | None] = contextvars.ContextVar("form", default=None)
"""The adapter and signature of the request that is about to be made: what tells whether an answer can be read."""


@dataclass(frozen=True)
class UnreadableAnswer:
    """An answer of the prompt LM that could not be read."""

    signature: str
    """The name of the signature that it was to fill."""
    text: str
    """Its beginning, at most `MOST_CHARACTERS`."""


class Proposals(BaseCallback):
    """What became of the proposals of a run, whose requests are each sampled so many times."""

    def __init__(self, attempts: int = ATTEMPTS) -> None:
        self.attempts = attempts
        self.unreadable = 0
        """Answers that could not be read."""
        self.examples: list[UnreadableAnswer] = []
        """The first of them, at most `MOST_EXAMPLES`."""
        self.given_up = 0
        """Proposals that could not be read after the last attempt, or whose request was refused."""
        self._last: BaseException | None = None

    def add_unreadable(self, signature: Any, output: Any) -> None:
        """Count an answer that could not be read, and keep it if it is one of the first."""
        self.unreadable += 1
        if len(self.examples) < MOST_EXAMPLES:
            text = str(_text_of(output) or "")[:MOST_CHARACTERS]
            self.examples.append(UnreadableAnswer(signature.__name__, text))

    def on_adapter_format_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Remembers the form of the request that follows."""
        signature = inputs.get("signature")
        # Some callers of adapters have another form, without a signature; their answers are taken as they are.
        _form.set(None if signature is None else (instance, signature))

    def on_module_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        """Counts a proposal that was given up, once for all modules that its error passes through."""
        proposing = isinstance(dspy.settings.lm, ProposingLM)
        if not proposing or exception is None or exception is self._last:
            return
        if concerns_prompt(exception):
            self._last = exception
            self.given_up += 1


class ProposingLM(MeteredLM):
    """A language model that proposes: answers that cannot be read are sampled again."""

    proposals: Proposals

    @classmethod
    def over(cls, lm: MeteredLM, proposals: Proposals) -> ProposingLM:
        """The same model, with the same meter, guard and answers; `proposals` is a callback of the context of calls."""
        new = cls.__new__(cls)
        vars(new).update(vars(lm.copy()))
        new.proposals = proposals
        return new

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        form = _form.get()
        _form.set(None)
        outputs = super().__call__(prompt, messages=messages, **kwargs)
        if form is None:
            return outputs
        # An adapter that corrects shows the model what was wrong, which is better than asking the same again.
        attempts = 1 if getattr(form[0], "corrections", 0) else self.proposals.attempts
        for attempt in range(1, attempts + 1):
            readable: list[Any] = []
            for output in outputs:
                if _can_be_read(*form, output):
                    readable.append(output)
                else:
                    self.proposals.add_unreadable(form[1], output)
            if readable or attempt == attempts:
                return readable or outputs
            outputs = super().__call__(prompt, messages=messages, **self._again(kwargs, attempt))
        return outputs

    def _again(self, kwargs: dict[str, Any], attempt: int) -> dict[str, Any]:
        """The settings of another sample: no cache answers it, and a resumed run finds it by its number."""
        merged = {**self.kwargs, **kwargs}
        rollout = zlib.crc32(f"{merged.get('rollout_id')} attempt {attempt}".encode())
        return {**kwargs, "rollout_id": rollout, "temperature": merged.get("temperature") or 1.0}


def _can_be_read(adapter: Any, signature: Any, output: Any) -> bool:
    text = _text_of(output)
    try:
        return bool(text and adapter.parse(signature, text))
    except AdapterParseError:
        return False


def _text_of(output: Any) -> Any:
    return output.get("text") if isinstance(output, dict) else output


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
    """Proposes None where a proposal cannot be read, or its request is refused."""

    def propose_instruction_for_predictor(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().propose_instruction_for_predictor(*args, **kwargs)
        except Exception as error:
            if not concerns_prompt(error):
                raise
            return None


class PromptTooLongError(ValueError):
    """Raised if the examples for rules do not fit a prompt: DSPy leaves out one on any ValueError, and asks again."""


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

    def induce_natural_language_rules(self, predictor: Any, trainset: Any) -> Any:
        """As in DSPy; no rules where not even one example fits the prompt LM."""
        try:
            return super().induce_natural_language_rules(predictor, trainset)
        except RuntimeError as error:
            if isinstance(error.__cause__, PromptTooLongError):
                return ""
            raise

    def update_program_instructions(self, predictor: Any, natural_language_rules: str) -> None:
        if natural_language_rules:
            super().update_program_instructions(predictor, natural_language_rules)


class _Rules(RulesInductionProgram):
    """Induces rules under the prompt LM; none where they cannot be read, or the request is refused for its content.

    Raises:
        PromptTooLongError: The request is refused for its length.
    """

    def __init__(self, num_rules: int, prompt_lm: Any) -> None:
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
