"""Read the outputs of a signature from a completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import dspy
from pydantic import JsonValue
from pydantic.fields import FieldInfo

from .layouts import Layout, find_sections, is_required, remove_thoughts, shorten_blanks
from .markers import unescape_markers
from .repairs import Repair, UnreadableError
from .type_hints import field_type
from .values import ValueReader

MAX_ANSWER_LENGTH = 400_000
"""Longest answer, in characters, that is read: no model writes more."""


class Answer(NamedTuple):
    """What a completion says."""

    outputs: dict[str, Any]
    """The value of every output by name, with the type that the signature declares."""

    repairs: list[Repair]


def read_answer(
    signature: type[dspy.Signature],
    completion: str,
    inputs: Mapping[str, object] | None = None,
    max_text_length: int | None = None,
    layout: Layout = "headers",
) -> Answer:
    """Return the outputs of a completion and what had to be repaired.

    Args:
        signature: Declares the outputs. One that has a default or may be None is optional.
        completion: The answer as the model wrote it.
        inputs: The inputs of the prompt, with the ids and the options that answers refer to.
        max_text_length: Texts with more characters are unreadable.
        layout: The layout that the prompt asked for.

    Raises:
        UnreadableError: A required output is missing or unreadable, or the answer is too long.
    """
    if len(completion) > MAX_ANSWER_LENGTH:
        reason = f"the answer has {len(completion):,} characters, more than {MAX_ANSWER_LENGTH:,}"
        raise UnreadableError("", reason)

    reader = ValueReader(inputs, max_text_length)
    answer = remove_thoughts(shorten_blanks(completion))
    sections = find_sections(signature, answer, layout)
    if sections.is_repaired:
        reader.repairs.add("layout", "")

    outputs: dict[str, Any] = {}
    for name, info in signature.output_fields.items():
        repair_count = len(reader.repairs)
        try:
            if name not in sections.values:
                raise UnreadableError(name, "is missing")
            outputs[name] = _read_output(reader, sections.values[name], name, info)
        except UnreadableError:
            if is_required(info):
                raise
            reader.repairs.truncate(repair_count)
            reader.repairs.add("field", name)
            outputs[name] = _default_of(info)
    return Answer(outputs, reader.repairs.entries)


def _read_output(reader: ValueReader, raw: JsonValue, name: str, info: FieldInfo) -> object:
    """Return the value of one output."""
    try:
        # The prompt showed its texts with escaped markers, and the model may quote them.
        return reader.read(unescape_markers(raw), field_type(info), name)
    except RecursionError:
        raise UnreadableError(name, "holds too many values inside one another") from None


def _default_of(info: FieldInfo) -> object:
    """Return the default of an output; None if it has none."""
    if info.is_required():
        return None
    return info.get_default(call_default_factory=True)
