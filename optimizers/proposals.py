"""Asks a model for prompt proposals, such as new instructions.

    optimizer -> request -> ProposingLM -> up to `attempts` times -> the prompt model

An answer that cannot be read is counted, and the model is asked again. After the last attempt its
answers are returned as they are, and DSPy's adapter raises an error: the proposal is given up. GEPA
and SIMBA go on without it; so do MIPROv2 and InferRules in `tolerant_mipro.py` and
`tolerant_infer_rules.py`. COPRO has nothing to go on with, and ends.

An answer whose instruction breaks a rule (`prompt_rules.py`) is treated like one that cannot be
read, but counted by the rule.
"""

from __future__ import annotations

import contextvars
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError

from ..engines.metered_lm import MeteredLM
from ..reading.failures import concerns_prompt

if TYPE_CHECKING:
    from .prompt_rules import PromptRules

ATTEMPTS = 3
"""How often one request is made before its proposal is given up.

An adapter that corrects the model has asked once more before.
"""

_INSTRUCTION_FIELDS = frozenset(
    {
        "new_instruction",
        "shortened_instruction",
        "proposed_instruction",
        "module_advice",
        "natural_language_rules",
    }
)
"""The fields of proposals that become instructions, in all optimizers of DSPy."""

MAX_EXAMPLES = 20
"""How many unreadable answers a run keeps at most, so that its user can see what is wrong."""
MAX_EXAMPLE_CHARACTERS = 2000


@dataclass(frozen=True)
class _RequestForm:
    """What is needed to read the answer to a request."""

    adapter: Any
    signature: Any


# DSPy calls its callbacks with the adapter and the signature of a request, and then the model with
# the messages alone. This is how the model learns them.
_form_of_next_request: contextvars.ContextVar[_RequestForm | None] = contextvars.ContextVar(
    "form_of_next_request", default=None
)


@dataclass(frozen=True)
class UnreadableAnswer:
    """An answer of the prompt model that could not be read."""

    signature: str
    """The name of the signature that the answer was to fill."""
    text: str
    """The beginning of the answer, at most `MAX_EXAMPLE_CHARACTERS`."""


class Proposals(BaseCallback):
    """Counts what became of the proposals of a run.

    Args:
        attempts: How often one request is made before its proposal is given up.
    """

    def __init__(self, attempts: int = ATTEMPTS) -> None:
        self.attempts = attempts
        self.rules: PromptRules | None = None
        """What instructions must not be; None if there are no rules."""
        self.unreadable = 0
        """Answers that could not be read."""
        self.examples: list[UnreadableAnswer] = []
        """The first of them, at most `MAX_EXAMPLES`."""
        self.given_up = 0
        """Proposals that were unreadable or broke a rule to the last attempt, or whose request the
        provider refused."""
        self._last_error: BaseException | None = None

    def add_unreadable(self, signature: Any, output: Any) -> None:
        """Count an answer that could not be read, and keep it if it is one of the first."""
        self.unreadable += 1
        if len(self.examples) < MAX_EXAMPLES:
            text = str(_text_of(output) or "")[:MAX_EXAMPLE_CHARACTERS]
            self.examples.append(UnreadableAnswer(signature.__name__, text))

    def on_adapter_format_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Remember the form of the request that follows."""
        signature = inputs.get("signature")
        # Some calls of an adapter have no signature; their answers are returned as they are.
        form = None if signature is None else _RequestForm(instance, signature)
        _form_of_next_request.set(form)

    def on_module_end(
        self, call_id: str, outputs: Any | None, exception: BaseException | None = None
    ) -> None:
        """Count a proposal that is given up.

        DSPy calls this method whenever a module ends. A module that asks for a proposal ends with
        an error if the model's answer could not be read, or if the provider refused the prompt.
        """
        if exception is None:
            return

        # Modules that ask another model, such as those of the compiled program, make no proposals.
        asks_for_proposals = isinstance(dspy.settings.lm, ProposingLM)
        if not asks_for_proposals:
            return
        # Other errors, such as that of an unreachable endpoint, are reported elsewhere.
        if not concerns_prompt(exception):
            return

        # A module may contain others. The error leaves one after the other, but is counted once.
        if exception is self._last_error:
            return
        self._last_error = exception
        self.given_up += 1


class ProposingLM(MeteredLM):
    """A language model that is asked again if its answer cannot be read."""

    proposals: Proposals

    @classmethod
    def from_lm(cls, lm: MeteredLM, proposals: Proposals) -> ProposingLM:
        """Return a model that shares meter, guard and known answers with `lm`.

        The model checks its answers only while `proposals` is one of DSPy's callbacks
        (`dspy.context(callbacks=...)`): DSPy tells callbacks how the answer to a request is read,
        but not the model.

        Args:
            lm: The prompt model.
            proposals: Counts the proposals.
        """
        # The constructor would need every setting that `lm` was made with. So it is not called: the
        # new model gets the attributes of a copy of `lm`, whatever they are.
        proposing_lm = cls.__new__(cls)
        proposing_lm.__dict__.update(lm.copy().__dict__)
        proposing_lm.proposals = proposals
        return proposing_lm

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        form = _form_of_next_request.get()
        _form_of_next_request.set(None)
        outputs = super().__call__(prompt, messages=messages, **kwargs)
        if form is None:
            return outputs

        attempts = self.proposals.attempts
        if getattr(form.adapter, "corrections", 0):
            # The adapter shows the model what was wrong, which is better than asking the same.
            attempts = 1

        unreadable: list[Any] = []
        for attempt in range(1, attempts + 1):
            usable, unreadable = self._sort_outputs(outputs, form)
            if usable:
                return usable
            if attempt < attempts:
                settings = self._settings_of_next_attempt(kwargs, attempt)
                outputs = super().__call__(prompt, messages=messages, **settings)
        # An answer that breaks a rule can be read, so it must not be returned. The adapter cannot
        # read an empty text, whatever its form.
        return unreadable or [""]

    def _sort_outputs(self, outputs: Any, form: _RequestForm) -> tuple[list[Any], list[Any]]:
        """Return the outputs that can be used and those that cannot be read; count all others.

        Outputs that break a rule are in neither list.
        """
        usable: list[Any] = []
        unreadable: list[Any] = []
        for output in outputs:
            fields = _read_fields(form, output)
            if fields is None:
                unreadable.append(output)
                self.proposals.add_unreadable(form.signature, output)
            elif not self._breaks_rule(fields):
                usable.append(output)
        return usable, unreadable

    def _breaks_rule(self, fields: Mapping[str, Any]) -> bool:
        """Return whether an instruction of a proposal breaks a rule, which counts it."""
        rules = self.proposals.rules
        if rules is None:
            return False
        return any(rules.refuse_proposal(text) is not None for text in _instructions_in(fields))

    def _settings_of_next_attempt(self, kwargs: dict[str, Any], attempt: int) -> dict[str, Any]:
        """Return the settings for asking the same request once more.

        A cache would give the same answer to the same request. Its key includes `rollout_id`, so
        the next attempt has a new id. The id is computed from that of the request and the number of
        the attempt, so that a resumed run uses the same ids and finds its answers again.
        """
        merged = {**self.kwargs, **kwargs}
        rollout_id = zlib.crc32(f"{merged.get('rollout_id')} attempt {attempt}".encode())
        # In DSPy, a `rollout_id` has no effect at temperature 0, so 0 becomes 1.
        temperature = merged.get("temperature") or 1.0
        return {**kwargs, "rollout_id": rollout_id, "temperature": temperature}


def _read_fields(form: _RequestForm, output: Any) -> Mapping[str, Any] | None:
    """Return the fields of an answer by name; None if it cannot be read."""
    text = _text_of(output)
    if not text:
        return None
    try:
        fields = form.adapter.parse(form.signature, text)
    except AdapterParseError:
        return None
    return fields or None


def _instructions_in(fields: Mapping[str, Any]) -> list[str]:
    """Return the texts of a proposal that become instructions."""
    texts: list[str] = []
    for name, value in fields.items():
        if name not in _INSTRUCTION_FIELDS:
            continue
        if isinstance(value, Mapping):
            # SIMBA gets advice for several predictors, by their names.
            texts.extend(str(advice) for advice in value.values())
        else:
            texts.append(str(value))
    return texts


def _text_of(output: Any) -> Any:
    return output.get("text") if isinstance(output, dict) else output
