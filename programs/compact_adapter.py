"""An adapter for small models: one line per input field, and an answer that is the bare JSON value.

system      new_facts -> operations                  one line that names the step, then its rules
user        new_facts: Ada D3:1 Ada pet cat (m1 Ada Ada pet dog) | Ben D3:2 Ben city Oslo
assistant   [{"op": "UPDATE", "memory_id": "m1", "content": "Ada pet cat", "turn_id": "D3:1"}]

Reading is strict, since a reward for form needs to see what was wrong: nothing is repaired or asked for again.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import dspy
from dspy.adapters.utils import apply_output_field_defaults
from dspy.utils.exceptions import AdapterParseError
from pydantic import BaseModel, TypeAdapter

from ..reading.answer import MAX_ANSWER_LENGTH
from ..reading.markers import escape_markers, unescape_markers
from ..text import one_line

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


class CompactAdapter(dspy.ChatAdapter):
    """A `dspy.ChatAdapter` with short prompts, for small models.

    An object is its values in the order of its fields; objects of a list are parted by " | ". A list whose objects have
    an id is written out where another input names those ids. An answer leaves out what is as its default.
    """

    def __init__(self) -> None:
        super().__init__(use_json_adapter_fallback=False)

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """The step in one line, `inputs -> outputs`; then layout of inputs, instructions and shape of outputs."""
        step = f"{' '.join(signature.input_fields)} -> {' '.join(signature.output_fields)}"
        models = {name: _model(field.annotation) for name, field in signature.input_fields.items()}
        layouts = [f"{name}: {' '.join(model.model_fields)}" for name, model in models.items() if model]
        outputs = [f"{name}: {_shape(field.annotation)}" for name, field in signature.output_fields.items()]
        form = "Answer with the value alone:" if len(outputs) == 1 else "Answer with one line per field:"
        return "\n".join([step, *layouts, textwrap.dedent(signature.instructions).strip(), form, *outputs])

    def format_user_message_content(
        self,
        signature: type[dspy.Signature],
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> str:
        """One line per input field; a list that another field refers to keeps only what is not written out there."""
        owned = _references(signature)
        listed = {name: _listed(inputs.get(name)) for name in owned}
        pools = {f"{id}s": {str(_plain(each).get(id)): each for each in listed[name]} for name, id in owned.items()}
        named: set[int] = set()
        others = [name for name in signature.input_fields if name in inputs and name not in owned]
        lines = {name: _input_text(inputs[name], pools, named) for name in others}
        for name, entries in listed.items():
            if rest := [entry for entry in entries if id(entry) not in named]:
                lines[name] = _input_text(rest, {}, named)
        ordered = [f"{name}: {lines[name]}" for name in signature.input_fields if name in lines]
        return "\n".join(part for part in (prefix, *map(escape_markers, ordered), suffix) if part) or "-"

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: dict[str, Any], missing_field_message: Any = None
    ) -> str:
        """The bare value of the output; one line `name: value` for each where there are several."""
        fields = signature.output_fields
        known = {name: outputs.get(name, missing_field_message) for name in fields}
        texts = {name: _output_text(value, fields[name].annotation, fields) for name, value in known.items()}
        texts = {name: escape_markers(text) for name, text in texts.items()}
        if len(texts) == 1:
            return next(iter(texts.values()))
        return "\n".join(f"{name}: {text}" for name, text in texts.items())

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        """Nothing: the system message has said it."""
        return ""

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Reads an answer.

        Raises:
            AdapterParseError: A field is missing, or its text is not exactly a value of its type; the error holds the
                unchanged completion.
        """
        if len(completion) > MAX_ANSWER_LENGTH:
            raise _refusal(signature, completion, f"the answer has more than {MAX_ANSWER_LENGTH:,} characters")
        fields: dict[str, Any] = {}
        for name, text in _sections(signature, completion).items():
            try:
                fields[name] = _read(unescape_markers(text), signature.output_fields[name].annotation)
            except (ValueError, RecursionError) as error:
                message = f"{name} is no {_shape(signature.output_fields[name].annotation)}: {one_line(error, 300)}"
                raise _refusal(signature, completion, message) from error
        fields = apply_output_field_defaults(signature, fields)
        if fields.keys() != signature.output_fields.keys():
            raise _refusal(signature, completion, parsed_result=fields)
        return fields


def _refusal(signature: Any, completion: str, message: str | None = None, parsed_result: Any = None) -> Exception:
    return AdapterParseError("CompactAdapter", signature, completion, message, parsed_result)


def _references(signature: type[dspy.Signature]) -> dict[str, str]:
    """Input lists whose objects another input names by id: field name -> name of the id."""
    models = {name: _model(field.annotation) for name, field in signature.input_fields.items()}
    found: dict[str, str] = {}
    for name, model in models.items():
        id = next((id for id in model.model_fields if id.endswith("_id")), None) if model else None
        others = [other for key, other in models.items() if key != name and other is not None]
        if id and any(field.endswith(f"{id}s") for other in others for field in other.model_fields):
            found[name] = id
    return found


def _model(annotation: Any) -> type[BaseModel] | None:
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _plain(entry: Any) -> Mapping[str, Any]:
    return dict(entry) if isinstance(entry, BaseModel | Mapping) else {}


def _input_text(value: Any, pools: Mapping[str, Mapping[str, Any]], named: set[int]) -> str:
    """A value on one line; ids that `pools` know are replaced by their objects, which are added to `named`."""
    if isinstance(value, str):
        return " | ".join(" ".join(line.split()) for line in value.splitlines() if line.strip())
    if isinstance(value, BaseModel | Mapping):
        return " ".join(filter(None, (_part(key, part, pools, named) for key, part in _plain(value).items())))
    if isinstance(value, list | tuple):
        return " | ".join(_input_text(part, pools, named) for part in value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _part(key: str, value: Any, pools: Mapping[str, Mapping[str, Any]], named: set[int]) -> str:
    if value is None or value in ("", [], ()):
        return ""
    pool = next((pool for ids, pool in pools.items() if key.endswith(ids)), None)
    if pool is None:
        text = _input_text(value, pools, named)
        return f"({text})" if isinstance(value, list | tuple | BaseModel | Mapping) else text
    named.update(id(pool[ref]) for ref in value if ref in pool)
    return " ".join(f"({_input_text(pool[ref], {}, named) if ref in pool else ref})" for ref in value)


def _output_text(value: Any, annotation: Any, names: Sequence[str] | Mapping[str, Any]) -> str:
    if isinstance(value, str):
        plain = value == value.strip() and len(value.splitlines()) == 1 and not value.startswith(('"', "`"))
        plain = plain and not any(value.startswith(f"{name}:") for name in names)
        if plain and (annotation is str or not _is_json(value)):
            return value
        return json.dumps(value, ensure_ascii=False)
    trimmed = _ANY.dump_python(value, mode="json", exclude_defaults=True, fallback=str)
    return json.dumps(trimmed, ensure_ascii=False)


def _sections(signature: type[dspy.Signature], completion: str) -> dict[str, str]:
    names, text = list(signature.output_fields), completion.strip()
    header = re.compile(rf"^({'|'.join(map(re.escape, names))}):[ \t]*", re.MULTILINE)
    found = list(header.finditer(text))
    if len(names) == 1 and not (found and found[0].start() == 0):
        return {names[0]: text}
    sections: dict[str, str] = {}
    for n, match in enumerate(found):
        end = found[n + 1].start() if n + 1 < len(found) else len(text)
        sections.setdefault(match[1], text[match.end() : end].strip())
    return sections


def _read(text: str, annotation: Any) -> Any:
    if len(text) > 5 and text.startswith("```") and text.endswith("```"):
        text = text[3:-3].removeprefix("json").strip()
    if annotation is str:
        return json.loads(text) if text.startswith('"') and _is_json(text) else text
    kind = TypeAdapter[Any](annotation)
    try:
        return kind.validate_python(json.loads(text))
    except ValueError:
        if text.startswith(("[", "{", '"')):
            raise
        return kind.validate_python(text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _shape(annotation: Any) -> str:
    """An output's type as a small model reads it: the keys of its objects, or the name of the type."""
    model = _model(annotation)
    if model is None:
        choices = get_args(annotation)
        named = getattr(annotation, "__name__", str(annotation))
        return " or ".join(map(str, choices)) if named == "Literal" else "text" if annotation is str else str(named)
    keys = "{" + ", ".join(f'"{name}"' for name in model.model_fields) + "}"
    return keys if annotation is model else f"JSON [{keys}, ...]"
