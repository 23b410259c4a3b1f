"""Read the prompts of DSPy's chat and JSON adapters, for a server that gets only the messages.

In one process the offline engine gets the signature of a call. The stub server gets its prompt
alone, so it finds the fields, their types and the form of the answer in the text.
"""

from __future__ import annotations

import json
import re
from typing import Any

import json_repair
from dspy.lm15 import Request
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.engines.offline.prompt import (
    Fields,
    Prompt,
    plain_prompt,
    prompt_of_messages,
    supporting_inputs,
)
from mempiler.engines.offline.schemas import Schema, write_out_models

_STRUCTURE = "All interactions will be structured in the following way"
_OBJECTIVE = "In adhering to this structure, your objective is:"
_OUTPUTS = "Your output fields are:"
_JSON = "Outputs will be a JSON object with the following fields."
_FIELD = re.compile(r"^\d+\. `(\w+)` \((.+?)\):(?: (.*))?$", re.MULTILINE)
_NOTE = re.compile(r"\{(\w+)\}\s+# note: the value you produce (.*)")
_TYPES = {
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "set": "array",
    "dict": "object",
}


class PromptReadingEngine(OfflineEngine):
    """The offline engine, which reads what is asked from the text of the prompt."""

    def read_prompt(self, request: Request) -> Prompt:
        return read_prompt_text(request)


def read_prompt_text(request: Request) -> Prompt:
    """Return what a prompt of DSPy's chat or JSON adapter asks; any other is plain text."""
    fields_text, _, structure_text = str(request.system or "").partition(_STRUCTURE)
    inputs_text, _, outputs_text = fields_text.partition(_OUTPUTS)
    if not structure_text or not outputs_text:
        return plain_prompt(request)

    structure_text, _, _ = structure_text.partition(_OBJECTIVE)
    _, _, json_structure = structure_text.partition(_JSON)
    if json_structure:
        structure_text = "\n".join(json.loads(json_structure).values())

    descriptions: dict[str, str] = {}
    for name, _, description in _FIELD.findall(inputs_text):
        descriptions[name] = description

    notes = dict(_NOTE.findall(structure_text))
    schemas: dict[str, Schema] = {}
    for name, annotation, _ in _FIELD.findall(outputs_text):
        schemas[name] = _schema(annotation, notes.get(name, ""))

    fields = Fields(tuple(descriptions), supporting_inputs(descriptions), schemas)
    layout = "json" if json_structure else "headers"
    return prompt_of_messages(request, fields, layout) or plain_prompt(request)


def _schema(annotation: str, note: str) -> Schema:
    """Return the schema of an output.

    Args:
        annotation: The type, as the prompt writes it.
        note: What the prompt says of the value.
    """
    type_name, _, arguments = annotation.partition("[")
    if type_name == "Literal":
        options: Any = json_repair.loads(f"[{arguments}")
        return {"enum": options}

    _, _, schema_text = note.partition(": ")
    if not schema_text:
        return {"type": _TYPES.get(type_name, "string")}
    return write_out_models(json.loads(schema_text))
