"""The chat adapter of our programs: it reads tolerantly, and asks again for what it cannot read.

Prompts are those of `dspy.ChatAdapter`. Answers are read by `reading.read_answer`, which repairs
what is wrong in the usual ways; `_answer_attempts` says what happens to the others. The second
request shows the model its answer and the reason:

    assistant   [[ ## number ## ]] about three
    user        That could not be read: number: is no integer
                Answer the same request again, in full and in the required form. ...

`JsonAdapter` and `AutoAdapter` do the same with other prompts.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, cast, get_origin

import dspy
from dspy.utils.exceptions import AdapterParseError

from ..async_bridge import MAX_TEXT_IN_LOOP, off_loop, run_bridged
from ..engines.async_models import ask_model
from ..engines.call_context import AdapterCall, call_context
from ..reading.answer import MAX_ANSWER_LENGTH, read_answer
from ..reading.cut_texts import CutText, ends_in_loop
from ..reading.failures import CutShortError, quote_answer
from ..reading.layouts import Layout
from ..reading.markers import EscapedText, escape_markers
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

_EMPTY_ANSWER = "The LM returned an empty or null response."
"""The reason in the error that DSPy's adapters raise for an answer without a text.

The `lm_response` of such an error is no answer. It is the whole output of the model as Python
writes it, such as "None" or a dict with the thoughts of the model.
"""

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
        # Ask until an answer can be read. `retry_after` sets the next attempt as the current one;
        # after the last attempt it raises the error instead.
        attempts = AnswerAttempts(lm, lm_kwargs, inputs, self.corrections)
        adapter_call = AdapterCall(signature, demos, inputs, self.layout, lm)
        shown_inputs = _escape_long_texts(inputs)
        while True:
            adapter = self._copy_for(attempts.current)
            settings = {**lm_kwargs, **self.request_settings, **attempts.current.settings}
            request = (adapter, lm, settings, signature, demos, shown_inputs)
            try:
                with (
                    send_output(signature, self.layout),
                    call_context(adapter_call=adapter_call),
                ):
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
        """Return what `__call__` returns, for code that runs under asyncio.

        `run_bridged` runs `__call__` and awaits the model in its place, so that the event loop is
        free while the model answers.
        """
        call = partial(self.__call__, lm, lm_kwargs, signature, demos, inputs)
        return await run_bridged(call)

    def _copy_for(self, attempt: Attempt) -> CorrectingAdapter:
        """Return a shallow copy of the adapter that makes one attempt at an answer.

        DSPy calls `format` and `parse` without saying which attempt they belong to, so they read it
        from the copy.
        """
        adapter = copy.copy(self)
        adapter._attempt = attempt
        # `corrections` counts the retries that may follow, and these become fewer with every
        # attempt. `optimizers/proposals.py` reads it: at 0, nobody else asks again for an
        # unreadable answer, so it does so itself.
        adapter.corrections = attempt.retries_left
        return adapter

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Return the outputs in an answer of the model, and record the faults that were repaired.

        Raises:
            AdapterParseError: The answer cannot be read, or repeats itself without an end.
            CutShortError: The answer was cut off at the token limit, and its beginning is no use.
        """
        attempt = self._attempt
        if attempt is None:
            # `parse` was called from outside, on an adapter that made no request. The answer is
            # then read without inputs, as if it were the first attempt.
            attempt = Attempt(retries_left=self.corrections)
        # `CutText` is the class of an answer that was cut off at the token limit.
        is_cut = isinstance(completion, CutText)
        if is_cut:
            self._check_cut_answer(signature, completion, may_retry=attempt.retries_left > 0)

        max_text_length = current_program_context().max_text_length
        try:
            answer = read_answer(
                signature, completion, attempt.inputs, max_text_length, self.layout
            )
        except UnreadableError as error:
            # The next request quotes the answer from this error. A very long answer would fill the
            # prompt, so only its beginning is quoted.
            quoted_answer = completion
            if len(completion) > MAX_ANSWER_LENGTH:
                quoted_answer = _beginning(completion)
            reason = str(error)
            raise self._parse_error(AdapterParseError, signature, quoted_answer, reason) from error

        faults = [repair.kind for repair in answer.repairs]
        if is_cut:
            faults.append("cut")
        record_faults(faults)
        return answer.outputs

    def _check_cut_answer(
        self, signature: type[dspy.Signature], completion: CutText, may_retry: bool
    ) -> None:
        """Reject an answer that was cut off at the token limit, unless it is the best we can get.

        While a retry is left, the answer is rejected, since the next may be complete. After the
        last retry it is accepted if all outputs are plain texts: half a text is better than none,
        but half a JSON value is not. An answer without a word is never accepted.

        Raises:
            AdapterParseError: The answer repeats itself without an end. The retry says so.
            CutShortError: The answer is rejected for any other reason. A retry gets more tokens.
        """
        if may_retry and ends_in_loop(completion):
            # More tokens would not help: such an answer would fill them too.
            reason = "it repeats itself without an end"
            beginning = _beginning(completion)
            raise self._parse_error(AdapterParseError, signature, beginning, reason)

        output_types = [field.annotation for field in signature.output_fields.values()]
        has_only_texts = all(output_type is str for output_type in output_types)
        has_words = bool(completion.strip())
        is_accepted = has_words and has_only_texts and not may_retry
        if not is_accepted:
            reason = "the answer ended for want of room"
            raise self._parse_error(CutShortError, signature, completion, reason)

    def _parse_error(
        self,
        kind: type[AdapterParseError],
        signature: type[dspy.Signature],
        completion: str,
        reason: str,
    ) -> AdapterParseError:
        """Return the error for an answer that cannot be read.

        Args:
            kind: The class of the error.
            signature: Declares the outputs of the answer.
            completion: The answer, or the part of it that the model is to be shown.
            reason: What is wrong with the answer.
        """
        # The cast is needed because DSPy annotates the class of the signature as an instance.
        shown_signature = cast("Any", signature)
        error = kind(type(self).__name__, shown_signature, quote_answer(completion), reason)
        # Only the message is short: the model is shown its whole answer.
        error.lm_response = completion
        return error

    def format(
        self,
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Return the messages of a request to the model.

        If the previous answer to this request could not be read, the messages end with that answer
        and with what was wrong with it.
        """
        messages = super().format(signature, demos, inputs)
        if self._attempt is None or self._attempt.unreadable is None:
            return messages
        error = self._attempt.unreadable
        # An answer that was cut off has no mistake to correct: it only gets more tokens.
        if isinstance(error, CutShortError):
            return messages

        requirements = self.user_message_output_requirements(signature)
        return [*messages, *_correction_messages(error, requirements)]

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """Return the system message of a signature; it is rendered once, since that takes long."""
        render = super().format_system_message
        # The instructions are in the key, since DSPy's InferRules changes them without making a
        # new signature.
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
        """Return the inputs of a request, or of a demo in the prompt, as the text of a message.

        Field markers such as `[[ ## answer ## ]]` are escaped in them: they would look like parts
        of the prompt.
        """
        escaped_inputs: dict[str, Any] = {}
        for name, value in inputs.items():
            if name in signature.input_fields:
                escaped_inputs[name] = escape_markers(value)
        return super().format_user_message_content(
            signature, escaped_inputs, prefix, suffix, main_request
        )

    def format_assistant_message_content(
        self,
        signature: type[dspy.Signature],
        outputs: dict[str, Any],
        missing_field_message: str | None = None,
    ) -> str:
        """Return the outputs of a demo as the text of a message, with field markers escaped.

        A list that is missing in the demo is shown as empty. DSPy would show the sentence
        `missing_field_message` for it, and small models copy that sentence into their lists.
        """
        shown_outputs: dict[str, Any] = {}
        for name, info in signature.output_fields.items():
            # The origin of `list[str]` is `list`; the plain type `list` has none.
            is_list = info.annotation is list or get_origin(info.annotation) is list
            if name in outputs:
                shown_outputs[name] = escape_markers(outputs[name])
            elif is_list:
                shown_outputs[name] = []
        return super().format_assistant_message_content(
            signature, shown_outputs, missing_field_message
        )


def _escape_long_texts(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a request with the markers in long texts escaped.

    DSPy formats the prompt in the event loop, if the request is made in one. There the search for
    markers in a long text would hold up all other work, so it is done before, in a thread.
    """
    escaped_inputs = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, str) and len(value) > MAX_TEXT_IN_LOOP:
            text = off_loop(partial(escape_markers, value))
            escaped_inputs[name] = EscapedText(text)
    return escaped_inputs


def _correction_messages(error: AdapterParseError, requirements: str) -> list[dict[str, str]]:
    """Return the messages that follow in a retry: the unreadable answer, and what is wrong with it.

    Args:
        error: Why the answer could not be read; it holds the answer.
        requirements: The form of an answer, as the first request describes it.
    """
    # The message of a DSPy error is the reason, these words, and then the whole answer.
    reason, _, _ = str(error).partition(f"Adapter {error.adapter_name} failed")
    reason = " ".join(reason.split())[:MAX_REASON_CHARS]

    # Some providers reject an assistant message that is empty or blank. If the answer had no text,
    # `lm_response` is the whole output instead, perhaps with long thoughts of the model.
    answer = error.lm_response
    if reason == _EMPTY_ANSWER or not answer.strip():
        answer = "(empty)"

    request = (
        f"That could not be read: {reason}\n\n"
        f"Answer the same request again, in full and in the required form.\n\n{requirements}"
    )
    return [
        {"role": "assistant", "content": answer},
        {"role": "user", "content": request},
    ]


def _beginning(completion: str) -> str:
    return completion[:MAX_QUOTED_CHARS] + " ..."
