"""What the offline engine is asked: inputs and demos as texts, and the schemas of the outputs.

Our chat, JSON and auto adapters hand over the call as values (`call_context.AdapterCall`). Adapters
of DSPy do not. Then the signature is that of the running `dspy.Predict`, and the texts of its
fields are found in the messages, under the headers that DSPy's chat and JSON adapters write above
each:

    [[ ## question ## ]]
    Where does Ann live?

Any other request is a plain text to answer from, without a field. So is a prompt of our compact
adapter, which hands over nothing and writes no headers. So is a prompt that comes from elsewhere,
such as over HTTP: its text alone does not say what is asked.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import dspy
from dspy import lm15
from dspy.adapters.utils import format_field_value

from ...reading.layouts import Layout, parse_json_object
from ...reading.markers import escape_markers
from ..call_context import AdapterCall, current_context
from .rendering import HEADER, to_text
from .schemas import Schema, output_schemas

_REQUIREMENTS = "\n\nRespond with "
"""What begins the last paragraph of a request: in which form DSPy's adapters want the answer."""

_MISSING = "Not supplied for this "
"""What begins the text that DSPy's adapters show for a value that a demo lacks."""


MAX_SIGNATURES = 256
"""Of how many signatures the fields are kept."""


@dataclass(frozen=True)
class Demo:
    """A demo that the prompt shows: the texts of its fields by name, without those it lacks."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class Fields:
    """What a signature says of its fields."""

    inputs: tuple[str, ...]
    """The names of the inputs."""
    supporting_inputs: frozenset[str]
    """Inputs that help to understand others, see `supporting_inputs`."""
    outputs: Mapping[str, Schema]
    """The schemas of the outputs by name."""


@dataclass(frozen=True)
class Prompt:
    """What the engine is asked."""

    layout: Layout | None
    """The form of the answer; None is a plain text."""
    inputs: Mapping[str, str]
    """The texts of the inputs by name, without empty ones."""
    outputs: Mapping[str, Schema]
    """The schemas of the outputs by name."""
    demos: Sequence[Demo] = ()
    supporting_inputs: frozenset[str] = frozenset()


def read_prompt(request: lm15.Request) -> Prompt:
    """Return what a request asks: by the call of the running adapter or predictor, if any."""
    adapter_call = current_context().adapter_call
    if adapter_call is not None:
        return _prompt_of_call(adapter_call)
    return _prompt_of_predictor(request) or plain_prompt(request)


def plain_prompt(request: lm15.Request) -> Prompt:
    """Return the last text of the user as a prompt without fields."""
    user_texts = [message.text or "" for message in request.messages if message.role == "user"]
    text = user_texts[-1] if user_texts else ""
    return Prompt(layout=None, inputs={"prompt": text.strip()}, outputs={})


def prompt_of_messages(request: lm15.Request, fields: Fields, layout: Layout) -> Prompt | None:
    """Return what the messages of an adapter ask; None if they have no header of an input.

    Args:
        request: Its last message with a header of an input is the request, and each pair of a
            user's and an assistant's message before it is a demo.
        fields: The fields of the signature.
        layout: The form of the answer, and of those in demos.
    """
    request_index = None
    for index, message in enumerate(request.messages):
        if message.role == "user" and _sections(message.text or "").keys() & set(fields.inputs):
            request_index = index
    if request_index is None:
        return None

    demos: list[Demo] = []
    for message, reply in pairwise(request.messages[:request_index]):
        if message.role == "user" and reply.role == "assistant":
            inputs = _read_sections(message.text or "", fields.inputs)
            demos.append(Demo(inputs, _read_reply(reply.text or "", fields.outputs, layout)))

    inputs_text, _, _ = (request.messages[request_index].text or "").rpartition(_REQUIREMENTS)
    inputs = _read_sections(inputs_text, fields.inputs)
    return Prompt(layout, inputs, fields.outputs, demos, fields.supporting_inputs)


def fields_of(signature: type[dspy.Signature]) -> Fields:
    """Return what a signature says of its fields."""
    # Type checkers do not know that a signature can be a key of a cache.
    hashable_signature: Any = signature
    return _read_fields(hashable_signature)


@functools.lru_cache(maxsize=MAX_SIGNATURES)
def _read_fields(signature: type[dspy.Signature]) -> Fields:
    """Return `fields_of` a signature; it is kept, since making schemas takes milliseconds."""
    descriptions: dict[str, str] = {}
    for name, field in signature.input_fields.items():
        extra: Any = field.json_schema_extra
        descriptions[name] = extra["desc"]
    names = tuple(signature.input_fields)
    return Fields(names, supporting_inputs(descriptions), output_schemas(signature))


def supporting_inputs(descriptions: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the inputs whose description names another one.

    One described as "the lines before `text`" is there to understand the input `text`.

    Args:
        descriptions: The descriptions of all inputs by name.
    """
    supporting: set[str] = set()
    for name, description in descriptions.items():
        for other_name in descriptions:
            if other_name != name and f"`{other_name}`" in description:
                supporting.add(name)
    return frozenset(supporting)


def _prompt_of_predictor(request: lm15.Request) -> Prompt | None:
    """Return what the running `dspy.Predict` asks by an adapter of DSPy; None if none asks."""
    callers = dspy.settings.caller_modules or []
    if not callers or not isinstance(callers[-1], dspy.Predict):
        return None
    # DSPy's JSON adapter asks for a response format, and its chat adapter does not.
    layout: Layout = "headers" if request.config.response_format is None else "json"
    return prompt_of_messages(request, fields_of(callers[-1].signature), layout)


def _prompt_of_call(call: AdapterCall) -> Prompt:
    """Return what a call of one of our adapters asks."""
    fields = fields_of(call.signature)
    inputs = _texts(call.inputs, call.signature.input_fields)
    demos = _shown_demos(call, fields)
    return Prompt(call.layout, inputs, fields.outputs, demos, fields.supporting_inputs)


def _shown_demos(call: AdapterCall, fields: Fields) -> list[Demo]:
    """Return the demos in the order in which DSPy shows them: those with missing values first.

    DSPy drops demos that have no input or no output.
    """
    complete_demos: list[Demo] = []
    incomplete_demos: list[Demo] = []
    for values in call.demos:
        demo = Demo(
            _texts(values, call.signature.input_fields),
            _texts(values, call.signature.output_fields),
        )
        if all(values.get(name) is not None for name in call.signature.fields):
            complete_demos.append(demo)
        elif _has_any(values, fields.inputs) and _has_any(values, fields.outputs):
            incomplete_demos.append(demo)
    return incomplete_demos + complete_demos


def _has_any(values: Mapping[str, Any], names: Collection[str]) -> bool:
    return any(name in values for name in names)


def _texts(values: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts by which prompts show values, without empty ones.

    Args:
        values: Values by the name of their field, and perhaps others.
        fields: The fields of a signature by name.
    """
    texts: dict[str, str] = {}
    for name, field in fields.items():
        if name in values:
            text = str(format_field_value(field, escape_markers(values[name]))).strip()
            if text:
                texts[name] = text
    return texts


def _sections(text: str) -> dict[str, str]:
    """Return the texts below the headers of a message, by the names in the headers."""
    _, *parts = HEADER.split(text)
    names = parts[::2]
    bodies = parts[1::2]
    return {name: body.strip() for name, body in zip(names, bodies, strict=True)}


def _read_sections(text: str, names: Collection[str]) -> dict[str, str]:
    """Return the texts of fields in a message, without missing and empty ones."""
    return _supplied(_sections(text), names)


def _read_reply(text: str, names: Collection[str], layout: Layout) -> dict[str, str]:
    """Return the texts of the outputs in the answer of a demo."""
    values = parse_json_object(text) if layout == "json" else None
    if values is None:
        return _read_sections(text, names)
    texts = {name: to_text(value) for name, value in values.items()}
    return _supplied(texts, names)


def _supplied(texts: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the texts of fields that a prompt supplies."""
    supplied: dict[str, str] = {}
    for name in names:
        text = texts.get(name, "")
        if text and not text.startswith(_MISSING):
            supplied[name] = text
    return supplied
