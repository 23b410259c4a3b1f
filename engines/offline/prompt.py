"""Reading a DSPy prompt back - instructions, fields, types, demos, the request - and writing a reply in its form.

Understands the prompts of `dspy.ChatAdapter` and `dspy.JSONAdapter`; any other text is "plain". The request is the last
user message that asks for output fields, so a complaint that a reply does not parse changes nothing.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import json_repair
from dspy import lm15

Schema = Mapping[str, Any]
TEXT = {"type": "string"}
_ASK = "\n\nRespond with"
_JSON = "Outputs will be a JSON object with the following fields."
_MISSING = "Not supplied for this "
_FIELD = re.compile(r"^\d+\. `(\w+)` \((.+?)\):(?: |$)", re.M)
_HEADER = re.compile(r"^\[\[ ## (\w+) ## \]\]", re.M)
_NOTE = re.compile(r"\{(\w+)\}\s+# note: the value you produce (.*)")
_MODEL = re.compile(r'"\$ref": "#/\$defs/([^"]+)"')
_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "list": "array", "set": "array", "dict": "object"}


class Prompt(NamedTuple):
    """A request, read: its style ("chat", "json"; "plain" has one input, "prompt"); demos as far as supplied."""

    style: str
    instructions: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, Schema] = {}
    demos: tuple[tuple[Mapping[str, str], Mapping[str, Any]], ...] = ()


def read_prompt(request: lm15.Request) -> Prompt:
    """Reads a request."""
    system = request.system or ""
    system = system if isinstance(system, str) else "\n".join(getattr(part, "text", "") for part in system)
    turns = [(message.role, message.text or "") for message in request.messages]
    fields, _, rest = system.partition("All interactions will be structured in the following way")
    given, _, wanted = fields.partition("Your output fields are:")
    if not rest or not wanted:
        text = next((text for role, text in reversed(turns) if role == "user"), "")
        return Prompt("plain", system, {"prompt": text.strip()})
    structure, _, instructions = rest.partition("In adhering to this structure, your objective is:")
    style = "json" if _JSON in structure else "chat"
    shown = "\n".join(json.loads(structure.partition(_JSON)[2]).values()) if style == "json" else structure
    notes, names = dict(_NOTE.findall(shown)), [name for name, _ in _FIELD.findall(given)]
    types = {name: _type(annotation, notes.get(name, "")) for name, annotation in _FIELD.findall(wanted)}
    asked = max((n for n, (role, text) in enumerate(turns) if role == "user" and _ASK in text), default=len(turns) - 1)
    demos = []
    for (role, said), (other, reply) in pairwise(turns[:asked]):
        if (role, other) == ("user", "assistant"):
            texts = _fields(reply.removesuffix("[[ ## completed ## ]]\n"), style, types)
            outputs = {name: text if types[name] == TEXT else parsed(text) for name, text in texts.items()}
            demos.append((_fields(said, style, names), outputs))
    return Prompt(style, instructions, _fields(turns[asked][1].rpartition(_ASK)[0], style, names), types, tuple(demos))


def render(style: str, values: Mapping[str, Any]) -> str:
    """The reply that holds `values`, as the adapter of that style parses it."""
    if style == "json":
        return json.dumps(values, ensure_ascii=False, indent=2)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    # A header in a value would end it.
    fields = [f"[[ ## {name} ## ]]\n" + _HEADER.sub(r"\1:", text) for name, text in texts.items()]
    return "\n\n".join([*fields, "[[ ## completed ## ]]\n"])


def parsed(text: str) -> Any:
    """The value that a text is in JSON, or the text itself."""
    with suppress(ValueError, RecursionError):
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    return text


def _fields(text: str, style: str, names: Collection[str]) -> dict[str, str]:
    """Values by name. Headers of unknown, repeated or out-of-order fields belong to the value they stand in."""
    if style == "json" and isinstance(value := parsed(text), dict):
        texts = {name: part if isinstance(part, str) else json.dumps(part) for name, part in value.items()}
    else:
        heads, rest = [], [*names]
        for match in _HEADER.finditer(text):
            if match[1] in rest:
                rest = rest[rest.index(match[1]) + 1 :]
                heads.append(match)
        ends = [*(match.start() for match in heads[1:]), len(text)]
        texts = {head[1]: text[head.end() : end].strip() for head, end in zip(heads, ends, strict=False)}
    return {name: text for name, text in texts.items() if name in names and text and not text.startswith(_MISSING)}


@functools.lru_cache(maxsize=1_000)
def _type(annotation: str, note: str) -> Schema:
    kind, _, inside = annotation.partition("[")
    if kind == "Literal":
        return {"enum": json_repair.loads(f"[{inside}")}
    sign, _, said = note.partition(": ")
    if sign.endswith("one of"):
        return {"enum": said.split("; ")}
    if not said:
        return {"type": _TYPES.get(kind, "string")}
    schema = json.loads(said)
    models, text = schema.pop("$defs", {}), json.dumps(schema)
    # A model that holds itself is written out only so deep.
    for _ in range(4):
        text = _MODEL.sub(lambda match: json.dumps(models[match[1]])[1:-1], text)
    return json.loads(_MODEL.sub('"type": "null"', text))
