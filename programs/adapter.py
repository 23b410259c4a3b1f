"""The adapters programs run under, by name: they read tolerantly, and ask once more for what cannot be read.

An unreadable answer is asked for again with what was wrong with it; one that was cut short with twice the room, unless
it goes round in circles. A second malformed answer is raised, and becomes a typed failure.
"""

from __future__ import annotations

import contextvars
import copy
import functools
import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import nullcontext
from typing import Any, cast, get_origin

import dspy
from dspy.utils.exceptions import (
    AdapterParseError,
    LMInvalidRequestError,
    LMUnsupportedFeatureError,
    LMUnsupportedModelError,
)
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from ..errors import UnknownNameError
from ..reading.answer import MAX_ANSWER_LENGTH, read_answer
from ..reading.cut_texts import CutText, ends_in_loop
from ..reading.failures import CutShortError, failure_kind
from ..reading.layouts import Layout
from ..reading.markers import escape_markers
from ..reading.repairs import UnreadableError
from ..reading.type_hints import field_type
from ..records.shared_by_copies import SharedByCopies
from .compact_adapter import CompactAdapter
from .recording import CURRENT_CALL
from .streaming import PREDICTOR_LISTENER, streamed
from .single_flight import SingleFlight

longest_text: contextvars.ContextVar[int | None] = contextvars.ContextVar("longest_text", default=None)
"""Most characters of a text that is read; writers set it for the answers they keep."""
DEFAULT_MAX_TOKENS = 4096
"""Tokens that an answer is taken to have had where no limit was set."""
MAX_QUOTED_CHARS = 1000
"""Characters of an answer without an end, or too long to be read, that the model is shown again."""
_IDLE = frozenset(
    ("title", "description", "default", "examples", "discriminator", "uniqueItems", "minLength", "maxLength", "format")
)
"""Keywords that strict schemas may not hold, or that tell a decoder nothing; the reader checks values anyway."""


class CorrectingAdapter(SharedByCopies, dspy.ChatAdapter):
    """`dspy.ChatAdapter` that reads tolerantly and asks again; also mixed into others that lay out the prompt.

    Attributes:
        layout: How outputs are asked for.
        pipeline: The adapter of DSPy's that sends the request.

    Args:
        **options: Those of the adapter that lays out the prompt.
    """

    layout: Layout = "headers"
    pipeline: type[dspy.ChatAdapter] = dspy.ChatAdapter

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.use_json_adapter_fallback = False
        self.corrections = 1
        """How often an answer that cannot be read is asked for again."""
        self._rendered = SingleFlight(capacity=256)
        self._inputs: Mapping[str, Any] = {}
        self._more: Mapping[str, Any] = {}
        """Settings of its requests, beside those of the caller."""
        self._error: AdapterParseError | None = None

    def __call__(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        attempts = self._attempts(lm, lm_kwargs, signature, inputs)
        one = next(attempts)
        while True:
            try:
                with streamed(signature, one.layout) if PREDICTOR_LISTENER.get() else nullcontext():
                    found = one.pipeline.__call__(one, lm, {**lm_kwargs, **one._more}, signature, demos, inputs)
            except Exception as error:
                one = attempts.throw(error)
            else:
                next(attempts, None)
                return found

    async def acall(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: Any, demos: list[Any], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        attempts = self._attempts(lm, lm_kwargs, signature, inputs)
        one = next(attempts)
        while True:
            try:
                with streamed(signature, one.layout) if PREDICTOR_LISTENER.get() else nullcontext():
                    found = await one.pipeline.acall(one, lm, {**lm_kwargs, **one._more}, signature, demos, inputs)
            except Exception as error:
                one = attempts.throw(error)
            else:
                next(attempts, None)
                return found

    def _attempts(
        self, lm: Any, lm_kwargs: Mapping[str, Any], signature: Any, inputs: Mapping[str, Any]
    ) -> Generator[CorrectingAdapter, None, None]:
        # Is thrown the error of an attempt that failed, and raises it if there is no other. Adapters are shared by
        # threads: it is copies that ask.
        one = copy.copy(self)
        one._inputs = inputs
        while True:
            try:
                yield one
                return
            except AdapterParseError as error:
                if one.corrections < 1:
                    raise
                if call := CURRENT_CALL.get():
                    call.retried = True
                    call.fault_counts["cut" if isinstance(error, CutShortError) else "parse"] += 1
                one = copy.copy(one)
                one.corrections, one._error = one.corrections - 1, error
                if isinstance(error, CutShortError):
                    given = {**getattr(lm, "kwargs", {}), **lm_kwargs}
                    name = "max_completion_tokens" if given.get("max_completion_tokens") else "max_tokens"
                    one._more = {**one._more, name: 2 * int(given.get(name) or DEFAULT_MAX_TOKENS)}

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Reads an answer, and tells the running call what was repaired.

        Raises:
            AdapterParseError: It cannot be read, or was cut while it repeated itself.
            CutShortError: It ended for want of room, and may be asked for with more, or holds more than texts.
        """
        name, about = type(self).__name__, cast("Any", signature)
        texts = all(field.annotation is str for field in signature.output_fields.values())
        if isinstance(completion, CutText) and (self.corrections > 0 or not texts):
            if self.corrections > 0 and ends_in_loop(completion):
                raise AdapterParseError(
                    name, about, completion[:MAX_QUOTED_CHARS] + " ...", "it repeats itself without an end"
                )
            raise CutShortError(name, about, completion, "the answer ended for want of room")
        try:
            found, repairs = read_answer(signature, completion, self._inputs, longest_text.get(), self.layout)
        except UnreadableError as error:
            shown = completion if len(completion) <= MAX_ANSWER_LENGTH else completion[:MAX_QUOTED_CHARS] + " ..."
            raise AdapterParseError(name, about, shown, str(error)) from error
        if call := CURRENT_CALL.get():
            call.fault_counts.update(
                [*(repair.kind for repair in repairs), *(["cut"] if isinstance(completion, CutText) else [])]
            )
        return found

    def format(
        self, signature: type[dspy.Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The request; after an answer that could not be read, with that answer and what was wrong at its end."""
        messages = super().format(signature, demos, inputs)
        if self._error is None or isinstance(self._error, CutShortError):
            return messages
        # Without the answer itself, which the model sees anyway.
        said, _, _ = str(self._error).partition(f"Adapter {self._error.adapter_name} failed")
        return [
            *messages,
            {"role": "assistant", "content": self._error.lm_response or "(empty)"},
            {
                "role": "user",
                "content": f"That could not be read: {' '.join(said.split())[:500]}\n\nAnswer the same request again, "
                f"in full and in the required form.\n\n{self.user_message_output_requirements(signature)}",
            },
        ]

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """What every request of a signature begins with; rendered once, with the JSON schemas in it."""
        render = super().format_system_message
        # Instructions are named beside the signature: InferRules edits them in place.
        key = ("system", type(self), signature, signature.instructions)
        return self._rendered.get_or_compute(key, lambda: render(signature))

    def format_user_message_content(
        self,
        signature: type[dspy.Signature],
        inputs: dict[str, Any],
        *about: Any,
        **named: Any,
    ) -> str:
        """The inputs of a request or a demo; no value holds a marker of this layout."""
        shown = {name: escape_markers(value) for name, value in inputs.items() if name in signature.input_fields}
        return super().format_user_message_content(signature, shown, *about, **named)

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: dict[str, Any], missing_field_message: Any = None
    ) -> str:
        """The outputs of a demo; no value holds a marker of this layout, and a list that is not there is empty.

        DSPy puts a sentence in the place of what a labelled demo lacks. Small models fill lists with it, endlessly.
        """
        fields = signature.output_fields.items()
        empty = {name: [] for name, field in fields if (get_origin(field.annotation) or field.annotation) is list}
        shown = {name: escape_markers(outputs[name]) for name, _ in fields if name in outputs}
        return super().format_assistant_message_content(signature, {**empty, **shown}, missing_field_message)


class JsonAdapter(CorrectingAdapter, dspy.JSONAdapter):
    """`dspy.JSONAdapter`, read tolerantly.

    Args:
        schema: What the endpoint holds answers to; DSPy's own choice of what it is asked for goes by tables of known
            models, and is left out then.
    """

    layout = "json"

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        super().__init__(use_native_function_calling=schema is None)
        if schema is None:
            self.pipeline = dspy.JSONAdapter
        else:
            form = {"name": "answer", "strict": True, "schema": schema}
            self._more = {"response_format": {"type": "json_schema", "json_schema": form}}


class AutoAdapter(CorrectingAdapter):
    """Answers under a JSON schema of the outputs where the endpoint takes it, else as `CorrectingAdapter` asks.

    The schema is tried, and what came of it is remembered by endpoint, model and outputs, and shared by all copies.
    Outputs that no strict schema describes (an open mapping) and models of this process are asked in the chat layout.
    """

    def __init__(self) -> None:
        super().__init__()
        self._takes: dict[tuple[str, str, str], bool] = {}

    def output_modes(self) -> dict[str, dict[str, str]]:
        """What was found out: model name -> outputs -> "schema" or "chat"."""
        found: dict[str, dict[str, str]] = {}
        for (model, _, outputs), takes in sorted(self._takes.items()):
            found.setdefault(model, {})[outputs] = "schema" if takes else "chat"
        return found

    def add_output_modes(self, found: Mapping[str, Mapping[str, str]]) -> None:
        """Takes over what was found out before or elsewhere, for any address of a model."""
        for model, known in found.items():
            self._takes |= {(model, "", outputs): kind == "schema" for outputs, kind in known.items()}

    def _attempts(
        self, lm: Any, lm_kwargs: Mapping[str, Any], signature: Any, inputs: Mapping[str, Any]
    ) -> Generator[CorrectingAdapter, None, None]:
        engine = getattr(lm, "engine", None)
        # Models of this process have neither a provider's name nor an address.
        schema = output_schema(signature) if isinstance(engine, str) or hasattr(engine, "address") else None
        if schema is None:
            yield from super()._attempts(lm, lm_kwargs, signature, inputs)
            return
        outputs = outputs_name(schema)
        address = getattr(engine, "address", None) or lm.kwargs.get("api_base") or lm.kwargs.get("base_url") or ""
        here = (lm.model, str(address), outputs)
        known = self._takes.get(here, self._takes.get((lm.model, "", outputs)))
        if known is not False:
            under = JsonAdapter(schema)
            under.corrections, under._rendered = self.corrections, self._rendered
            try:
                yield from under._attempts(lm, lm_kwargs, signature, inputs)
                self._takes[here] = True
                return
            except (LMInvalidRequestError, LMUnsupportedFeatureError) as error:
                # Taken before, or the prompt or the model: no refusal of the schema.
                if (
                    self._takes.get(here, known)
                    or isinstance(error, LMUnsupportedModelError)
                    or failure_kind(error) == "too-long"
                ):
                    raise
        yield from super()._attempts(lm, lm_kwargs, signature, inputs)
        if known is None:
            # The schema was refused and not the prompt.
            self._takes.setdefault(here, False)


@functools.lru_cache(maxsize=512)
def output_schema(signature: type[dspy.Signature]) -> dict[str, Any] | None:
    """The strict JSON schema of a signature's outputs: one object, in order, all of them required.

    Returns:
        The schema; None where a strict one cannot say what an output is: an open mapping, any value, a tuple.
    """
    try:
        types = {name: field_type(field) for name, field in signature.output_fields.items()}
        kinds = [(name, "validation", TypeAdapter(type_hint)) for name, type_hint in types.items()]
        found, shared = TypeAdapter.json_schemas(cast("Any", kinds))
        outputs = {name: _strict(found[name, "validation"]) for name in signature.output_fields}
        shapes = {name: _strict(shape) for name, shape in shared.get("$defs", {}).items()}
    except (ValueError, PydanticUserError):
        return None
    schema = {"type": "object", "properties": outputs, "required": list(outputs), "additionalProperties": False}
    return {**schema, "$defs": shapes} if shapes else schema


def _strict(node: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in node.items() if key not in _IDLE}
    if not known or known.keys() & {"prefixItems", "allOf", "patternProperties"}:
        raise ValueError("a strict schema cannot describe it")
    if "$ref" in known:
        return {"$ref": known["$ref"]}
    for either in ("oneOf", "anyOf"):
        if either in known:
            return {"anyOf": [_strict(part) for part in known[either]]}
    if known.get("type") == "array":
        return {**known, "items": _strict(known.get("items", {}))}
    if known.get("type") == "object":
        if "properties" not in known:
            raise ValueError("a strict schema cannot describe it")
        parts = {name: _strict(part) for name, part in known["properties"].items()}
        return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}
    return known


def outputs_name(schema: Mapping[str, Any]) -> str:
    """The outputs of a schema, and what tells it from another one of the same."""
    return f"{', '.join(schema['properties'])} {hashlib.sha256(json.dumps(schema).encode()).hexdigest()[:8]}"


ADAPTERS = {"auto": AutoAdapter, "chat": CorrectingAdapter, "json": JsonAdapter, "compact": CompactAdapter}


def adapter(name: str = "chat") -> dspy.Adapter:
    """Makes the adapter of a name that a manifest or `--adapter` gives.

    Raises:
        UnknownNameError: There is no such adapter.
    """
    if name not in ADAPTERS:
        raise UnknownNameError("adapter", name, ADAPTERS)
    return ADAPTERS[name]()
