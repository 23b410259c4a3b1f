"""Adapters that read tolerantly, and ask once more for an answer that cannot be read.

    prompt ──> answer ── read (`reading`) ──> outputs, mends
                 └ unreadable ── the same request, the answer and what was wrong with it ──> answer
                 └ cut short ─── the same request with twice the room, unless it goes round in circles ──> answer

A second malformed answer is raised, and becomes a typed failure.
"""

from __future__ import annotations

import contextvars
import copy
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import nullcontext, suppress
from typing import Any, cast, get_origin

import dspy
from dspy.adapters.utils import format_field_value
from dspy.utils.exceptions import AdapterParseError
from pydantic import TypeAdapter

from ..memory.flight import Flight
from ..reading.answer import LONGEST, CutText, Layout, read_answer, repeats
from ..reading.markers import neutral
from ..reading.mends import Mend, UnreadableError
from .failing import CutShortError
from .recording import note_asked_again, note_mends
from .streaming import ANSWERING, overheard

longest_text: contextvars.ContextVar[int | None] = contextvars.ContextVar("longest_text", default=None)
"""Most characters of a text that is read; writers set it for the answers they keep."""
ROOM = 4096
"""Tokens that an answer is taken to have had where no limit was set."""
SHOWN = 1000
"""Characters of an answer without an end, or too long to be read, that the model is shown again."""


class Correcting(dspy.ChatAdapter):
    """Reads tolerantly and asks again; mixed into an adapter that lays out the prompt.

    Attributes:
        layout: How outputs are asked for.

    Args:
        corrections: How often an answer that cannot be read is asked for again.
        **options: Those of the adapter that lays out the prompt.
    """

    layout: Layout = "headers"

    def __init__(self, corrections: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self.corrections = corrections
        self._rendered = Flight(capacity=256)
        self._inputs: Mapping[str, Any] = {}
        self._error: AdapterParseError | None = None

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        steps = self._steps(lm, signature, inputs)
        one = next(steps)
        while True:
            try:
                with overheard(signature, one.layout) if ANSWERING.get() else nullcontext():
                    found = super(Correcting, one).__call__(lm, one._room(lm, lm_kwargs), signature, demos, inputs)
            except Exception as error:
                one = steps.throw(error)
            else:
                next(steps, None)
                return found

    async def acall(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        steps = self._steps(lm, signature, inputs)
        one = next(steps)
        while True:
            try:
                with overheard(signature, one.layout) if ANSWERING.get() else nullcontext():
                    found = await super(Correcting, one).acall(lm, one._room(lm, lm_kwargs), signature, demos, inputs)
            except Exception as error:
                one = steps.throw(error)
            else:
                next(steps, None)
                return found

    def _steps(
        self, lm: Any, signature: type[dspy.Signature], inputs: Mapping[str, Any]
    ) -> Generator[Correcting, None, None]:
        """What asks, attempt by attempt: is thrown the error of one that failed, and raises it if there is no other."""
        # Copies, since adapters are shared by threads.
        one = copy.copy(self)
        one._inputs = inputs
        while True:
            try:
                yield one
                return
            except AdapterParseError as error:
                if one.corrections < 1:
                    raise
                note_asked_again("cut" if isinstance(error, CutShortError) else "parse")
                one = copy.copy(one)
                one.corrections, one._error = one.corrections - 1, error

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Reads an answer, and tells the running call what was mended.

        Raises:
            AdapterParseError: It cannot be read, or was cut while it repeated itself.
            CutShortError: It ended for want of room, and may be asked for with more, or holds more than texts.
        """
        name, about = type(self).__name__, cast("Any", signature)
        if isinstance(completion, CutText) and (self.corrections > 0 or not _all_text(signature)):
            if self.corrections > 0 and repeats(completion):
                raise AdapterParseError(name, about, completion[:SHOWN] + " ...", "it repeats itself without an end")
            raise CutShortError(name, about, completion, "the answer ended for want of room")
        try:
            found, mends = read_answer(signature, completion, self._inputs, longest_text.get(), self.layout)
        except UnreadableError as error:
            shown = completion if len(completion) <= LONGEST else completion[:SHOWN] + " ..."
            raise AdapterParseError(name, about, shown, str(error)) from error
        note_mends([*mends, Mend("cut", "")] if isinstance(completion, CutText) else mends)
        return found

    def format(
        self, signature: type[dspy.Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The request; after an answer that could not be read, with that answer and what was wrong at its end."""
        messages = super().format(signature, demos, inputs)
        if self._error is None or isinstance(self._error, CutShortError):
            return messages
        return [
            *messages,
            {"role": "assistant", "content": self._error.lm_response or "(empty)"},
            {
                "role": "user",
                "content": f"That could not be read: {_reason(self._error)}\n\nAnswer the same request again, "
                f"in full and in the required form.\n\n{self.user_message_output_requirements(signature)}",
            },
        ]

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """What every request of a signature begins with; rendered once, with the JSON schemas in it."""
        render = super().format_system_message
        return self._once("system", signature, lambda: render(signature))

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        """What every request of a signature ends with; rendered once."""
        render = super().user_message_output_requirements
        return self._once("end", signature, lambda: render(signature))

    def format_user_message_content(
        self,
        signature: type[dspy.Signature],
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> str:
        """The inputs of a request or a demo; no value holds a marker of this layout."""
        fields = signature.input_fields
        shown = self._neutral(fields, inputs)
        # As ChatAdapter does, but for the validator that it makes for every value.
        parts = [f"[[ ## {name} ## ]]\n{_text(field, shown[name])}" for name, field in fields.items() if name in shown]
        end = [self.user_message_output_requirements(signature)] if main_request else []
        return "\n\n".join([prefix, *parts, *end, suffix]).strip()

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: dict[str, Any], missing_field_message: Any = None
    ) -> str:
        """The outputs of a demo; no value holds a marker of this layout, and a list that is not there is empty.

        DSPy puts a sentence in the place of what a labelled demo lacks. Small models fill lists with it, endlessly.
        """
        shown = {**_empty(signature), **self._neutral(signature.output_fields, outputs)}
        return super().format_assistant_message_content(signature, shown, missing_field_message)

    def _neutral(self, names: Iterable[str], values: Any) -> dict[str, Any]:
        return {name: neutral(values[name]) for name in names if name in values}

    def _once(self, part: str, signature: type[dspy.Signature], render: Callable[[], str]) -> str:
        # Instructions are named beside the signature: InferRules edits them in place.
        return self._rendered.once((part, type(self), signature, signature.instructions), render)

    def _room(self, lm: Any, lm_kwargs: dict[str, Any]) -> dict[str, Any]:
        """The settings of a request: after an answer that was cut, twice its room."""
        if not isinstance(self._error, CutShortError):
            return dict(lm_kwargs)
        given = {**getattr(lm, "kwargs", {}), **lm_kwargs}
        name = "max_completion_tokens" if given.get("max_completion_tokens") else "max_tokens"
        return {**lm_kwargs, name: 2 * int(given.get(name) or ROOM)}


class CorrectingAdapter(Correcting):
    """`dspy.ChatAdapter`, read tolerantly."""

    def __init__(self, corrections: int = 1) -> None:
        super().__init__(corrections, use_json_adapter_fallback=False)


class JsonAdapter(Correcting, dspy.JSONAdapter):
    """`dspy.JSONAdapter`, read tolerantly."""

    layout = "json"


_JSON: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (list, dict)}


def _text(field: Any, value: Any) -> str:
    """The value of a field as DSPy's `format_field_value` writes it."""
    if type(value) is str:
        return value
    kind = next((_JSON[known] for known in _JSON if type(value) is known and field.annotation is not str), None)
    if kind is not None:
        with suppress(Exception):
            return json.dumps(kind.dump_python(value, mode="json", fallback=str), ensure_ascii=False)
    return str(format_field_value(field, value))


def _empty(signature: type[dspy.Signature]) -> dict[str, Any]:
    """An empty list for each output that is a list."""
    fields = signature.output_fields.items()
    return {name: [] for name, field in fields if (get_origin(field.annotation) or field.annotation) is list}


def _all_text(signature: type[dspy.Signature]) -> bool:
    return all(field.annotation is str for field in signature.output_fields.values())


def _reason(error: AdapterParseError) -> str:
    """What was wrong, without the answer itself, which the model sees anyway."""
    said, _, _ = str(error).partition(f"Adapter {error.adapter_name} failed")
    return " ".join(said.split())[:500]
