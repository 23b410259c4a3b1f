"""Proposals of prompts by models that do not always answer in form: sampled again, counted, and given up at last.

    optimizer ── request ──> ProposingLM ── as often as `attempts` ──> the prompt LM
                                  └── what can be read; else the last answers, and the adapter says what is wrong

Optimizers differ in what they make of an answer that cannot be read: GEPA and SIMBA pass over it, MIPRO, COPRO and rule
induction end. Here it is asked for again first, where several were asked for only those that can be read are handed on,
and all of it is counted. What an optimizer does with a proposal that was given up is its runner's business.
"""

from __future__ import annotations

import contextvars
import zlib
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError

from ..engines.meter import MeteredLM

ATTEMPTS = 3
"""How often one request is sampled before a proposal is given up; an adapter that corrects asks once more before."""

_form: contextvars.ContextVar[tuple[Any, Any] | None] = contextvars.ContextVar("form", default=None)
"""The adapter and signature of the request that is about to be made: what tells whether an answer can be read."""


class Proposals(BaseCallback):
    """What became of the proposals of a run.

    Args:
        attempts: How often one request is sampled.
    """

    def __init__(self, attempts: int = ATTEMPTS) -> None:
        self.attempts = attempts
        self.unreadable = 0
        """Answers that could not be read."""
        self.given_up = 0
        """Proposals that could not be read after the last attempt."""
        self._last: BaseException | None = None

    def on_adapter_format_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Remembers the form of the request that follows."""
        _form.set((instance, inputs["signature"]))

    def on_module_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        """Counts a proposal that was given up, once for all modules that its error passes through."""
        proposing = isinstance(dspy.settings.lm, ProposingLM)
        if proposing and isinstance(exception, AdapterParseError) and exception is not self._last:
            self._last = exception
            self.given_up += 1


class ProposingLM(MeteredLM):
    """A language model that proposes: answers that cannot be read are sampled again."""

    proposals: Proposals

    @classmethod
    def over(cls, lm: MeteredLM, proposals: Proposals) -> ProposingLM:
        """The same model, with the same meter, guard and answers.

        Args:
            lm: What proposes; it is not changed.
            proposals: Counts; a callback of the context in which the model is asked.
        """
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
            readable = [output for output in outputs if _can_be_read(*form, output)]
            self.proposals.unreadable += len(outputs) - len(readable)
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
    text = output.get("text") if isinstance(output, dict) else output
    try:
        return bool(text and adapter.parse(signature, text))
    except AdapterParseError:
        return False
