"""The chat adapter of our programs: it reads tolerantly, and asks again for what it cannot read.

Prompts are those of `dspy.ChatAdapter`. Answers are read by `reading.read_answer`, which repairs
what is wrong in the usual ways; `answer_attempts` says what happens to the others. The second
request shows the model its answer and the reason:

    assistant   [[ ## number ## ]] about three
    user        That could not be read: number: is no integer
                Answer the same request again, in full and in the required form. ...

`JsonAdapter` and `AutoAdapter` do the same with other prompts.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, ClassVar, cast, get_origin

import dspy
from dspy.utils.exceptions import AdapterParseError

from ..async_bridge import run_bridged
from ..engines.async_models import ask_model
from ..reading.answer import MAX_ANSWER_LENGTH, read_answer
from ..reading.cut_texts import CutText, ends_in_loop
from ..reading.failures import CutShortError
from ..reading.layouts import Layout
from ..reading.markers import escape_markers
from ..reading.repairs import UnreadableError
from ..records.shared_by_copies import SharedByCopies
from ._answer_attempts import AnswerAttempts, Attempt
from ._context import current_program_context
from .recording import record_faults
from .single_flight import SingleFlight
from .streaming import send_output

MAX_QUOTED_CHARS = 1000
"""Most characters that the model is shown of an answer that is endless, or too long to be read."""

MAX_REASON_CHARS = 500
"""Most characters that the model is told about why its answer could not be read."""

MAX_SYSTEM_MESSAGES = 256
"""How many system messages are kept, to be sent again with other inputs."""

SystemMessages = SingleFlight[tuple[Any, ...], str]
"""System messages by what they are made from."""


class CorrectingAdapter(SharedByCopies, dspy.ChatAdapter):
    """A `dspy.ChatAdapter` that reads tolerantly and asks again for an unreadable answer.

    The classes that ask for JSON inherit from this class and from the adapter of DSPy that writes
    their prompts. One adapter serves many threads at the same time. So every request is made by a
    shallow copy, which knows its attempt.

    Args:
        system_messages: System messages to share with another adapter.
        **options: The options of the DSPy adapter that writes the prompts.
    """

    layout: ClassVar[Layout] = "headers"
    """How prompts ask for the outputs."""

    pipeline: ClassVar[type[dspy.ChatAdapter]] = dspy.ChatAdapter
    """The adapter of DSPy that makes one request: it calls `format`, the model and `parse`."""

    def __init__(self, system_messages: SystemMessages | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.use_json_adapter_fallback = False
        self.corrections = 1
        """How often an answer that cannot be read is asked for again."""
        self.request_settings: dict[str, Any] = {}
        """Settings of the model for every request, which replace those of the caller."""
        if system_messages is None:
            system_messages = SystemMessages(MAX_SYSTEM_MESSAGES)
        self._system_messages = system_messages
        self._attempt: Attempt | None = None
        """The attempt that this copy makes; None in an adapter that makes no request."""

    def __call__(
        self,
        lm: dspy.BaseLM,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        attempts = AnswerAttempts(lm, lm_kwargs, inputs, self.corrections)
        while True:
            adapter = self._copy_for(attempts.current)
            settings = {**lm_kwargs, **self.request_settings, **attempts.current.settings}
            request = (adapter, lm, settings, signature, demos, inputs)
            try:
                with send_output(signature, self.layout):
                    return ask_model(
                        lm,
                        call=partial(self.pipeline.__call__, *request),
                        acall=partial(self.pipeline.acall, *request),
                    )
            except AdapterParseError as error:
                attempts.retry_after(error)

    async def acall(
        self,
        lm: dspy.BaseLM,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        return await run_bridged(partial(self, lm, lm_kwargs, signature, demos, inputs))

    def _copy_for(self, attempt: Attempt) -> CorrectingAdapter:
        """Return a shallow copy that makes one attempt."""
        adapter = copy.copy(self)
        adapter._attempt = attempt
        # Callbacks are given the copy. A model that proposes prompts samples an answer anew only if
        # no correction of it will follow.
        adapter.corrections = attempt.retries_left
        return adapter

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Read an answer, and record in the running call what was repaired.

        Raises:
            AdapterParseError: It cannot be read, or repeats itself until it is cut off.
            CutShortError: It is cut off, and may be asked for with more tokens or holds more than
                texts.
        """
        attempt = self._attempt or Attempt(self.corrections)
        if isinstance(completion, CutText):
            self._check_cut_answer(signature, completion, may_retry=attempt.retries_left > 0)

        max_text_length = current_program_context().max_text_length
        try:
            answer = read_answer(
                signature, completion, attempt.inputs, max_text_length, self.layout
            )
        except UnreadableError as error:
            quoted = completion
            if len(completion) > MAX_ANSWER_LENGTH:
                quoted = _beginning(completion)
            raise self._parse_error(AdapterParseError, signature, quoted, str(error)) from error

        faults = [repair.kind for repair in answer.repairs]
        if isinstance(completion, CutText):
            faults.append("cut")
        record_faults(faults)
        return answer.outputs

    def _check_cut_answer(
        self, signature: type[dspy.Signature], completion: CutText, may_retry: bool
    ) -> None:
        """Raise an error unless a cut answer is the best that can be had.

        The beginning of a text is worth more than nothing if no retry is left.
        """
        if may_retry and ends_in_loop(completion):
            # It would fill twice the tokens as well, so it is asked for with the same limit.
            reason = "it repeats itself without an end"
            raise self._parse_error(AdapterParseError, signature, _beginning(completion), reason)

        annotations = [field.annotation for field in signature.output_fields.values()]
        holds_only_texts = all(annotation is str for annotation in annotations)
        if may_retry or not holds_only_texts:
            reason = "the answer ended for want of room"
            raise self._parse_error(CutShortError, signature, completion, reason)

    def _parse_error(
        self,
        kind: type[AdapterParseError],
        signature: type[dspy.Signature],
        completion: str,
        reason: str,
    ) -> AdapterParseError:
        # DSPy annotates the signature as an instance, and uses it as a class.
        return kind(type(self).__name__, cast("Any", signature), completion, reason)

    def format(
        self,
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Return the messages of a request; a retry ends with the unreadable answer."""
        messages = super().format(signature, demos, inputs)
        error = self._attempt.unreadable if self._attempt else None
        # An answer that was cut off was not wrong: it is asked for as if for the first time.
        if error is None or isinstance(error, CutShortError):
            return messages
        requirements = self.user_message_output_requirements(signature)
        return [*messages, *_correction_messages(error, requirements)]

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """Return how every request of a signature begins, with its JSON schemas; rendered once."""
        render = super().format_system_message
        # Instructions are named beside the signature: InferRules edits them in place.
        key = (type(self), signature, signature.instructions)
        return self._system_messages.get_or_compute(key, lambda: render(signature))

    def format_user_message_content(
        self,
        signature: type[dspy.Signature],
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> str:
        """Return the inputs of a request or a demo, with every marker in them escaped."""
        escaped: dict[str, Any] = {}
        for name, value in inputs.items():
            if name in signature.input_fields:
                escaped[name] = escape_markers(value)
        return super().format_user_message_content(signature, escaped, prefix, suffix, main_request)

    def format_assistant_message_content(
        self,
        signature: type[dspy.Signature],
        outputs: dict[str, Any],
        missing_field_message: str | None = None,
    ) -> str:
        """Return the outputs of a demo, with every marker in them escaped.

        A list that the demo lacks is shown as empty. DSPy would put a sentence in its place, with
        which small models fill their lists.
        """
        shown: dict[str, Any] = {}
        for name, info in signature.output_fields.items():
            if name in outputs:
                shown[name] = escape_markers(outputs[name])
            elif (get_origin(info.annotation) or info.annotation) is list:
                shown[name] = []
        return super().format_assistant_message_content(signature, shown, missing_field_message)


def _correction_messages(error: AdapterParseError, requirements: str) -> list[dict[str, str]]:
    """Return an unreadable answer and the request to give it in the required form.

    Args:
        error: Why the answer could not be read.
        requirements: The form of an answer, as the first request describes it.
    """
    # What follows in the error is the answer itself, which the model sees anyway.
    reason, _, _ = str(error).partition(f"Adapter {error.adapter_name} failed")
    reason = " ".join(reason.split())[:MAX_REASON_CHARS]
    request = (
        f"That could not be read: {reason}\n\n"
        f"Answer the same request again, in full and in the required form.\n\n{requirements}"
    )
    return [
        {"role": "assistant", "content": error.lm_response or "(empty)"},
        {"role": "user", "content": request},
    ]


def _beginning(completion: str) -> str:
    return completion[:MAX_QUOTED_CHARS] + " ..."
