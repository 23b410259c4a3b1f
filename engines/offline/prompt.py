"""Reading a DSPy prompt back: its instructions, fields, types, demos, and the request itself.

Understands the prompts of `dspy.ChatAdapter`, `dspy.JSONAdapter` and `dspy.XMLAdapter`; any other text is "plain".
The request is the last user message that holds input fields, so a conversation that goes on after it (a reply, a
complaint that the reply does not parse) changes nothing.

Example:
    >>> prompt = read_prompt(request)
    >>> prompt.style, list(prompt.inputs), prompt.outputs[0].name
    ('chat', ['context', 'question'], 'answer')
"""

from __future__ import annotations

import ast
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from dspy.lm15 import Request

from .schema import Schema, is_text, read_type

Style = Literal["chat", "json", "xml", "plain"]

_FIELD = re.compile(r"^\d+\. `(\w+)` \((.+?)\):(?: |$)", re.M)
_HEADER = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*(.*)$", re.M)
_NOTE = re.compile(r"\{(\w+)\}\s+# note: the value you produce (.*)")
_JSON_LINE = re.compile(r'^  "\w+": ("\{.*"),?$', re.M)
_STRUCTURE = "All interactions will be structured in the following way"
_OBJECTIVE = "In adhering to this structure, your objective is:"
_MISSING = "Not supplied for this particular"


@dataclass(frozen=True)
class Output:
    """An output field the reply must fill."""

    name: str
    schema: Schema


@dataclass(frozen=True)
class Demo:
    """A worked example of the prompt; fields that it does not supply are left out."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, Any]


@dataclass(frozen=True)
class Prompt:
    """A request, read."""

    style: Style
    instructions: str
    inputs: Mapping[str, str]
    outputs: tuple[Output, ...] = ()
    demos: tuple[Demo, ...] = ()


def read_prompt(request: Request) -> Prompt:
    """Reads a request; one that no adapter wrote becomes a plain prompt with a single input named "prompt"."""
    system = _system_text(request)
    turns = [(message.role, message.text or "") for message in request.messages]
    if "Your output fields are:" not in system and turns and "Your output fields are:" in turns[0][1]:
        system, turns = turns[0][1], turns[1:]
    fields, _, rest = system.partition(_STRUCTURE)
    head, _, tail = fields.partition("Your output fields are:")
    outputs = _FIELD.findall(tail)
    if not outputs or not rest:
        text = next((text for role, text in reversed(turns) if role == "user"), "")
        return Prompt("plain", system, {"prompt": text})
    names = [name for name, _ in _FIELD.findall(head)]
    structure, _, objective = rest.partition(_OBJECTIVE)
    style = _style(structure)
    typed = _read_outputs(style, structure, outputs)
    last = _last_request(turns, style, names)
    text = turns[last][1] if last < len(turns) else ""
    inputs = _read_fields(text.rpartition("\n\nRespond with")[0] or text, style, names)
    demos = _read_demos(turns[:last], style, names, typed)
    instructions = "\n".join(line.strip() for line in objective.strip().splitlines())
    return Prompt(style, instructions, inputs, typed, demos)


def _system_text(request: Request) -> str:
    system = request.system
    if isinstance(system, str) or system is None:
        return system or ""
    return "\n".join(str(getattr(part, "text", "")) for part in system)


def _style(structure: str) -> Style:
    if "Outputs will be a JSON object" in structure:
        return "json"
    return "chat" if "[[ ## completed ## ]]" in structure else "xml"


def _read_outputs(style: Style, structure: str, outputs: Sequence[tuple[str, str]]) -> tuple[Output, ...]:
    if style == "json":
        lines = (json.loads(line) for line in _JSON_LINE.findall(structure))
        structure = "\n".join(lines)
    notes = {name: note.strip() for name, note in _NOTE.findall(structure)}
    skeletons = {}
    if style == "xml":
        lines = structure.splitlines()
        skeletons = {
            name: line for name, _ in outputs for line in lines if line.startswith(f"<{name}>") and line != f"<{name}>"
        }
    return tuple(
        Output(name, read_type(annotation, notes.get(name, ""), skeletons.get(name, "")))
        for name, annotation in outputs
    )


def _last_request(turns: Sequence[tuple[str, str]], style: Style, names: Sequence[str]) -> int:
    users = [n for n, (role, _) in enumerate(turns) if role == "user"]
    asked = [n for n in users if _read_fields(turns[n][1], style, names) or "\n\nRespond with" in turns[n][1]]
    return (asked or users or [len(turns)])[-1]


def _read_demos(
    turns: Sequence[tuple[str, str]], style: Style, names: Sequence[str], outputs: Sequence[Output]
) -> tuple[Demo, ...]:
    demos = []
    for (role, asked), (next_role, reply) in pairwise(turns):
        if (role, next_role) == ("user", "assistant"):
            inputs = _read_fields(asked, style, names)
            demos.append(Demo(_supplied(inputs), _supplied(read_reply(reply, style, outputs))))
    return tuple(demo for demo in demos if demo.outputs)


def read_reply(reply: str, style: Style, outputs: Sequence[Output]) -> dict[str, Any]:
    """The output values of an assistant message, parsed by their types; what does not parse is left as text."""
    if style == "json":
        try:
            parsed = json.loads(reply)
        except ValueError:
            return {}
        return {o.name: parsed[o.name] for o in outputs if o.name in parsed} if isinstance(parsed, dict) else {}
    reply = reply.strip().removesuffix("[[ ## completed ## ]]")
    texts = _read_fields(reply, style, [output.name for output in outputs])
    return {o.name: texts[o.name] if is_text(o.schema) else _value(texts[o.name]) for o in outputs if o.name in texts}


def _supplied(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in fields.items()
        if not (isinstance(value, str) and (not value.strip() or value.startswith(_MISSING)))
    }


def _value(text: str) -> Any:
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    if text.startswith("<"):
        try:
            return _xml_value(ElementTree.fromstring(f"<value>{text}</value>"))
        except ElementTree.ParseError:
            return text
    return text


def _xml_value(element: ElementTree.Element) -> Any:
    """The nested value of an XML demo; tags named `item` make a list."""
    children = list(element)
    if not children:
        return element.text
    if all(child.tag == "item" for child in children):
        return [_xml_value(child) for child in children]
    return {child.get("key", child.tag): _xml_value(child) for child in children}


def _read_fields(text: str, style: Style, names: Sequence[str]) -> dict[str, str]:
    """Values by name. Headers of unknown, repeated or out-of-order fields belong to the value they stand in."""
    if style == "xml":
        found = {}
        for name in names:
            match = re.search(rf"^<{name}>(.*)</{name}>|^<{name} />", text, re.S | re.M)
            if match:
                found[name] = (match[1] or "").strip()
        return found
    order = {name: n for n, name in enumerate(names)}
    values: dict[str, str] = {}
    current, start, reached = "", 0, -1
    for match in _HEADER.finditer(text):
        place = order.get(match[1], -1)
        if place > reached:
            if current:
                values[current] = text[start : match.start()].strip()
            current, start, reached = match[1], match.start(2), place
    if current:
        values[current] = text[start:].strip()
    return values
