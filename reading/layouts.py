"""Find the outputs of a signature in a completion, however it is laid out.

A prompt asks for one of two layouts:

    headers                     json
    [[ ## reasoning ## ]]       {"reasoning": "...", "answer": "tea"}
    ...
    [[ ## answer ## ]]
    tea

Models also answer with headings in words ("**Answer:** tea"), with JSON in a fence or between
sentences, or with the bare JSON value of the only output.

Answers are hostile input: no pattern of this room may take more than linear time, so adjacent
repeats are bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import dspy
from pydantic import JsonValue
from pydantic.fields import FieldInfo

from .json_text import JsonObject, find_json
from .spelling import normalize_name
from .type_hints import allows_none

Layout = Literal["headers", "json"]
"""How a prompt asks for the outputs."""

HEADER = re.compile(
    r"^[ \t]{0,9}[\[【#*]{0,6}\s{0,9}[\[【]{0,2}\s{0,9}[#＃]{2}\s{0,9}(\w{1,99})"
    r"\s{0,9}[#＃]{2}\s{0,9}[\]】]{0,2}[ \t]*",
    re.MULTILINE,
)
"""The header of an output: `[[ ## answer ## ]]`, or what a model makes of it."""

_THOUGHTS = re.compile(r"^\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_LONG_BLANKS = re.compile(r"\s{40,}")
_OPENING_BRACKET = re.compile(r"[{\[]")


@dataclass(frozen=True)
class Sections:
    """The outputs that were found in a completion."""

    values: JsonObject
    """The text or JSON value of outputs by name."""

    is_repaired: bool
    """Whether the layout was neither headers nor the JSON object that was asked for."""


def find_sections(signature: type[dspy.Signature], answer: str, layout: Layout) -> Sections:
    """Return the text or JSON value of every output that an answer holds.

    Args:
        signature: Declares the outputs.
        answer: A completion without thoughts.
        layout: The layout that the prompt asked for. Headers are always accepted.
    """
    names = list(signature.output_fields)
    required_names = [name for name, info in signature.output_fields.items() if is_required(info)]

    if layout == "json":
        json_object = parse_json_object(answer)
        if json_object and _contains_all(json_object, names):
            return Sections(json_object, is_repaired=False)

    under_headers = _split_at_headings(HEADER, answer, names)
    if under_headers and _contains_all(under_headers, required_names):
        return Sections(under_headers, is_repaired=False)

    for candidate in _outputs_in_other_layouts(signature, answer, required_names):
        # Outputs below a header take precedence.
        values = {**candidate, **under_headers}
        if values and _contains_all(values, required_names):
            return Sections(values, is_repaired=True)

    # Required outputs are missing, and the caller will say which.
    return Sections(under_headers, is_repaired=False)


def is_required(output: FieldInfo) -> bool:
    """Say whether an answer without this output is unreadable."""
    return output.is_required() and not allows_none(output.annotation)


def remove_thoughts(completion: str) -> str:
    """Return a completion without what the model thinks before it answers."""
    return _THOUGHTS.sub("", completion)


def shorten_blanks(text: str) -> str:
    """Return a text with every long run of blanks replaced by a line break or a space."""

    def shorten(run: re.Match[str]) -> str:
        return "\n" if "\n" in run[0] else " "

    return _LONG_BLANKS.sub(shorten, text)


def opens_bold_type(heading: re.Match[str]) -> bool:
    """Say whether a heading opens bold type that ends behind its text, as in "**Answer: tea**".

    "**Answer:** tea" closes it at once.
    """
    return heading[0].count("**") == 1


def parse_json_object(text: str) -> JsonObject | None:
    """Return the JSON object that is the whole text, or None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _outputs_in_other_layouts(
    signature: type[dspy.Signature], answer: str, required_names: Sequence[str]
) -> list[JsonObject]:
    """Return what an answer says in each layout that models use although no prompt asks for it.

    The likeliest layout comes first. If `scores` is the only required output, they are:

        a JSON object             Sure: {"scores": [1, 2]}
        a JSON value by itself    [1, 2]
        text below headings       **Scores:** one and two
    """
    names = list(signature.output_fields)
    heading = _heading_pattern(names)
    json_value = find_json(answer)

    in_object = _outputs_of_object(json_value, names)
    below_headings = _split_at_headings(heading, answer, names)
    by_itself = _outputs_of_bare_value(signature, json_value, required_names)
    # An object that is the value of `scores` may also name optional outputs.
    by_itself.update(in_object)

    if _json_is_below_heading(answer, heading):
        return [in_object, below_headings, by_itself]
    return [in_object, by_itself, below_headings]


def _json_is_below_heading(answer: str, heading: re.Pattern[str]) -> bool:
    r"""Say whether a heading comes before the first bracket of an answer.

    In "Reasons: [1, 2]\nScores: [3, 4]" one does: the first list belongs to "Reasons".
    In "[1, 2]\nScores: as discussed" none does: the list is a value by itself.
    """
    text_before_json = _OPENING_BRACKET.split(answer, maxsplit=1)[0]
    return heading.search(text_before_json) is not None


def _outputs_of_object(value: JsonValue, names: Sequence[str]) -> JsonObject:
    """Return the outputs that are keys of a JSON object."""
    if not isinstance(value, dict):
        return {}

    names_by_key = {normalize_name(name): name for name in names}
    outputs: JsonObject = {}
    for key, output in value.items():
        name = names_by_key.get(normalize_name(key))
        if name is not None:
            outputs[name] = output
    return outputs


def _outputs_of_bare_value(
    signature: type[dspy.Signature], value: JsonValue, required_names: Sequence[str]
) -> JsonObject:
    """Return a JSON value as the only required output of a signature, if there is just one.

    A model that is asked for `scores` alone may leave the name out: `[1, 2]` then means
    `{"scores": [1, 2]}`.
    """
    if value is None or len(required_names) != 1:
        return {}

    name = required_names[0]
    # If the output is a text, as in "I would take [1, 2].", its brackets are a part of the text.
    if signature.output_fields[name].annotation is str:
        return {}
    return {name: value}


def _split_at_headings(heading: re.Pattern[str], answer: str, names: Sequence[str]) -> JsonObject:
    """Return the text below the first heading of each output, up to the next heading.

    Args:
        heading: Its first group is the name.
        answer: The text with the headings.
        names: The outputs. A heading with another name only ends the output before it.
    """
    names_by_key = {normalize_name(name): name for name in names}
    matches = list(heading.finditer(answer))
    ends = [match.start() for match in matches[1:]]
    ends.append(len(answer))

    sections: JsonObject = {}
    for match, end in zip(matches, ends, strict=False):
        name = names_by_key.get(normalize_name(match[1]))
        if name is None or name in sections:
            continue

        section = answer[match.end() : end].strip()
        if opens_bold_type(match) and section.endswith("**"):
            section = section[:-2].rstrip()
        sections[name] = section
    return sections


def _heading_pattern(names: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for headings in words, such as `answer:` or `**Final answer**:`."""
    spellings = [re.escape(name).replace("_", "[_ ]") for name in names]

    # All repetitions are limited: a model may write thousands of blanks or stars, and the time for
    # searching them would grow with the square of their number.
    blanks = r"[ \t]{0,9}"
    stars = r"[*]{0,4}"
    markup = r"[#*>\- ]{0,9}"
    name = rf"[\"'`“]?(?:final[_ ])?({'|'.join(spellings)})[\"'`]?"
    # The second one is the colon of Chinese.
    separator = "[:：=]"
    return re.compile(
        f"^{blanks}{markup}{name}{stars}{blanks}{separator}{blanks}{stars}",
        re.MULTILINE | re.IGNORECASE,
    )


def _contains_all(values: Mapping[str, JsonValue], names: Collection[str]) -> bool:
    """Say whether values of all these outputs are there."""
    return all(name in values for name in names)
