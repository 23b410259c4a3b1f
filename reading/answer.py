"""Parses an answer: the fields of a signature from a completion, in the layout asked for or another.

Headers, one JSON object, the value alone, or headings in words. What cannot be read of an output with a default
(auxiliary: reasons, diagnoses) takes the default; an output without one makes the answer unreadable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dspy

from .json_text import bare_json
from .kinds import Repair, UnreadableError, admits_none, annotated, plain
from .markers import restored
from .values import ValueReader

Layout = Literal["headers", "json"]
"""How an answer was asked for."""

LONGEST = 400_000
"""Most characters of an answer that is read: no model writes more in one."""
# Answers are hostile input: no pattern of this room may take more than linear time, so repeats that meet are bounded.
HEADER = re.compile(
    r"^[ \t]{0,9}[\[【#*]{0,6}\s{0,9}[\[【]{0,2}\s{0,9}[#＃]{2}\s{0,9}(\w{1,99})"
    r"\s{0,9}[#＃]{2}\s{0,9}[\]】]{0,2}[ \t]*",
    re.MULTILINE,
)
"""The header of an output."""
_BLANKS = re.compile(r"\s{40,}")
THOUGHT = re.compile(r"^\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
"""What a model thinks before it answers."""


def read_answer(
    signature: type[dspy.Signature],
    completion: str,
    inputs: Mapping[str, Any] | None = None,
    longest: int | None = None,
    layout: Layout = "headers",
) -> tuple[dict[str, Any], list[Repair]]:
    """The outputs of a completion, and what was mended; ids and options are those of the inputs.

    Raises:
        UnreadableError: An output without a default is missing or cannot be read; or the answer is too long.
    """
    if len(completion) > LONGEST:
        raise UnreadableError("", f"the answer has {len(completion):,} characters, more than {LONGEST:,}")
    reader = ValueReader(inputs, longest)
    said = THOUGHT.sub("", without_blanks(completion))
    fields = signature.output_fields
    needed = [name for name, field in fields.items() if field.is_required() and not admits_none(field.annotation)]
    texts, as_asked = _laid_out(signature, said, layout, needed)
    if not as_asked:
        reader.repair("layout", "")
    found: dict[str, Any] = {}
    for name, field in fields.items():
        kept = len(reader.repairs)
        try:
            if name not in texts:
                raise UnreadableError(name, "is missing")
            # With the markers of the words that the prompt showed.
            found[name] = reader.read(restored(texts[name]), annotated(field), name)
        except RecursionError:
            raise UnreadableError(name, "holds too many values inside one another") from None
        except UnreadableError:
            if name in needed:
                raise
            del reader.repairs[kept:]
            reader.repair("field", name)
            found[name] = None if field.is_required() else field.get_default(call_default_factory=True)
    return found, reader.repairs


def without_blanks(text: str) -> str:
    """A text whose long runs of blanks are one each."""
    return _BLANKS.sub(lambda run: "\n" if "\n" in run[0] else " ", text)


def json_object(text: str) -> dict[str, Any] | None:
    """The object that a text is nothing but; None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _laid_out(
    signature: type[dspy.Signature], text: str, layout: Layout, needed: list[str]
) -> tuple[dict[str, Any], bool]:
    """The text, or parsed value, of each output that is there; and whether it was laid out as asked for."""
    names = list(signature.output_fields)
    whole = json_object(text) if layout == "json" else None
    if whole and all(name in whole for name in names):
        return whole, True
    marked = _sections(HEADER, text, names)
    if all(name in marked for name in needed) and marked:
        return marked, True
    headings = _headings(names)
    value = bare_json(text)
    under_headings, bare = _sections(headings, text, names), _from_json(signature, value, needed)
    # A bare value below the heading of another output is that one's.
    headed = headings.search(re.split(r"[\[{]", text, maxsplit=1)[0])
    rest = (under_headings, bare) if headed else (bare, under_headings)
    for found in (_from_json(signature, value, []), *rest):
        found = {**found, **marked}
        if found and all(name in found for name in needed):
            return found, False
    return marked, True


def _sections(header: re.Pattern[str], text: str, names: list[str]) -> dict[str, Any]:
    """What follows each header, up to the next one; the first of a name counts."""
    found, known = list(header.finditer(text)), {plain(name): name for name in names}
    sections: dict[str, Any] = {}
    for n, match in enumerate(found):
        end = found[n + 1].start() if n + 1 < len(found) else len(text)
        name = known.get(plain(match[1]))
        if name is not None:
            value = text[match.end() : end].strip()
            # **Answer: tea**
            whole = match[0].count("**") == 1 and value.endswith("**")
            sections.setdefault(name, value[:-2].rstrip() if whole else value)
    return sections


def _headings(names: list[str]) -> re.Pattern[str]:
    """Headings in words, `answer:` or `**Final answer**:` and the like, each at the beginning of a line."""
    words = "|".join(re.escape(name).replace("_", "[_ ]") for name in names)
    return re.compile(
        rf"^[ \t]{{0,9}}[#*>\- ]{{0,9}}[\"'`“]?(?:final[_ ])?({words})[\"'`]?"
        r"[*]{0,4}[ \t]{0,9}[:：=][ \t]{0,9}[*]{0,4}",
        re.MULTILINE | re.IGNORECASE,
    )


def _from_json(signature: type[dspy.Signature], value: Any, needed: list[str]) -> dict[str, Any]:
    """Outputs from a JSON object with their names, or the only one that must be there from a bare JSON value."""
    if value is None:
        return {}
    names = {plain(name): name for name in signature.output_fields}
    named = {}
    if isinstance(value, dict):
        named = {names[key]: part for raw, part in value.items() if (key := plain(raw)) in names}
    if len(needed) == 1 and needed[0] not in named and signature.output_fields[needed[0]].annotation is not str:
        return {**named, needed[0]: value}
    return named


PERIOD, ROUNDS = 100, 3
"""So many characters at the end of a text that goes round in circles are found in it so often."""


class CutText(str):
    """The text of a completion that reached its limit of tokens."""

    __slots__ = ()


def marked(outputs: Sequence[Any], result: Any) -> list[Any]:
    """Outputs as `dspy.LM` returns them, of its `CallResult`, with the texts of those that were cut marked as such."""
    reasons = [response.finish_reason for response in result.responses]
    if not reasons:
        choices = getattr(result.raw, "choices", None) or []
        reasons = [getattr(choice, "finish_reason", None) for choice in choices]
    if "length" not in reasons or len(reasons) != len(outputs):
        return list(outputs)
    return [_cut(output) if reason == "length" else output for output, reason in zip(outputs, reasons, strict=True)]


def repeats(text: str) -> bool:
    """Whether a text goes round in circles at its end, as small models do: more room would not end it."""
    end = text[-PERIOD:]
    return len(end) == PERIOD and text.count(end) >= ROUNDS


def _cut(output: Any) -> Any:
    if isinstance(output, str):
        return CutText(output)
    if isinstance(output, dict) and isinstance(output.get("text"), str):
        return {**output, "text": CutText(output["text"])}
    return output
