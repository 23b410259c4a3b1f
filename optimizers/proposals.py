"""Asks a model for prompt proposals, such as new instructions.

    optimizer -> request -> ProposingLM -> up to `attempts` times -> the prompt model

An answer that cannot be read is counted, and the model is asked again. After the last attempt its
answers are returned as they are, and DSPy's adapter raises an error: the proposal is given up. GEPA
and SIMBA go on without it; so do MIPROv2 and InferRules in `tolerant_mipro.py` and
`tolerant_infer_rules.py`. COPRO has nothing to go on with, and ends.
"""

from __future__ import annotations

import contextvars
import zlib
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError

from ..engines.metered_lm import MeteredLM
from ..reading.failures import concerns_prompt

ATTEMPTS = 3
"""How often one request is made before its proposal is given up.

An adapter that corrects the model has asked once more before.
"""

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
        self.unreadable = 0
        """Answers that could not be read."""
        self.examples: list[UnreadableAnswer] = []
        """The first of them, at most `MAX_EXAMPLES`."""
        self.given_up = 0
        """Proposals that could not be read after the last attempt, or whose request was refused."""
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

        for attempt in range(1, attempts + 1):
            readable = self._readable_outputs(outputs, form)
            if readable:
                return readable
            if attempt < attempts:
                settings = self._settings_of_next_attempt(kwargs, attempt)
                outputs = super().__call__(prompt, messages=messages, **settings)
        return outputs

    def _readable_outputs(self, outputs: Any, form: _RequestForm) -> list[Any]:
        """Return the outputs that can be read, and count the others."""
        readable: list[Any] = []
        for output in outputs:
            if _can_be_read(form, output):
                readable.append(output)
            else:
                self.proposals.add_unreadable(form.signature, output)
        return readable

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


def _can_be_read(form: _RequestForm, output: Any) -> bool:
    text = _text_of(output)
    try:
        return bool(text and form.adapter.parse(form.signature, text))
    except AdapterParseError:
        return False


def _text_of(output: Any) -> Any:
    return output.get("text") if isinstance(output, dict) else output
