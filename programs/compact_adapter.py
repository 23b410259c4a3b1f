"""An adapter for small models: short prompts, and answers that are a bare JSON value.

    system      new_facts -> operations                one line that names the step, then its rules
    user        new_facts: Ada D3:1 Ada pet cat (m1 Ada Ada pet dog) | Ben D3:2 Ben city Oslo
    assistant   [{"op": "UPDATE", "memory_id": "m1", "content": "Ada pet cat", "turn_id": "D3:1"}]

Every input is one line. An object is shown as the values of its fields in their order, and the
objects of a list are separated by " | ". In the example, the fact about Ada names the memory `m1`
by its id, so that memory is written out behind the fact and is not listed elsewhere.

Reading is strict, since a reward for the form of answers must see what is wrong with them: nothing
is repaired, and nothing is asked for again.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

import dspy
from dspy.adapters.utils import apply_output_field_defaults
from dspy.utils.exceptions import AdapterParseError
from pydantic import BaseModel, TypeAdapter

from ..reading.answer import MAX_ANSWER_LENGTH
from ..reading.markers import escape_markers, unescape_markers
from ..reading.type_hints import TypeHint
from ..text import one_line

MAX_REASON_LENGTH = 300
"""Most characters of the reason why a value could not be read."""

_FENCE = "```"
_ANY_VALUE: TypeAdapter[Any] = TypeAdapter(Any)


class CompactAdapter(dspy.ChatAdapter):
    """A `dspy.ChatAdapter` with short prompts, for small models."""

    def __init__(self) -> None:
        super().__init__(use_json_adapter_fallback=False)

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """Return the step, the layout of its inputs, its instructions and the form of an answer."""
        step = f"{' '.join(signature.input_fields)} -> {' '.join(signature.output_fields)}"

        layouts: list[str] = []
        for name, model in _input_models(signature).items():
            layouts.append(f"{name}: {' '.join(model.model_fields)}")

        shapes: list[str] = []
        for name, info in signature.output_fields.items():
            shapes.append(f"{name}: {_describe_type(info.annotation)}")

        instructions = textwrap.dedent(signature.instructions).strip()
        form = "Answer with one line per field:"
        if len(shapes) == 1:
            form = "Answer with the value alone:"
        return "\n".join([step, *layouts, instructions, form, *shapes])

    def format_user_message_content(
        self,
        signature: type[dspy.Signature],
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> str:
        """Return one line per input; entries that another input names are not listed again."""
        id_fields = _id_fields_of_named_lists(signature)
        named_lists = {name: _as_list(inputs.get(name)) for name in id_fields}
        writer = _InputWriter()
        for name, id_field in id_fields.items():
            writer.add_named_entries(id_field, named_lists[name])

        # The other inputs come first: only then is it known which entries they name.
        texts: dict[str, str] = {}
        for name in signature.input_fields:
            if name in inputs and name not in named_lists:
                texts[name] = writer.write(inputs[name])
        for name, entries in named_lists.items():
            unnamed_entries = [entry for entry in entries if not writer.has_written_out(entry)]
            if unnamed_entries:
                texts[name] = _InputWriter().write(unnamed_entries)

        lines = [prefix]
        for name in signature.input_fields:
            if name in texts:
                lines.append(escape_markers(f"{name}: {texts[name]}"))
        lines.append(suffix)
        return "\n".join(line for line in lines if line) or "-"

    def format_assistant_message_content(
        self,
        signature: type[dspy.Signature],
        outputs: dict[str, Any],
        missing_field_message: str | None = None,
    ) -> str:
        """Return the bare value of the output, or a line `name: value` for each of several."""
        texts: dict[str, str] = {}
        for name, info in signature.output_fields.items():
            value = outputs.get(name, missing_field_message)
            text = _write_output(value, info.annotation, signature.output_fields)
            texts[name] = escape_markers(text)

        if len(texts) == 1:
            return next(iter(texts.values()))
        return "\n".join(f"{name}: {text}" for name, text in texts.items())

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        """Return nothing: the system message describes the form of an answer."""
        return ""

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Read an answer.

        Raises:
            AdapterParseError: An output is missing, or its text is not exactly a value of its type.
                The error holds the unchanged completion.
        """
        if len(completion) > MAX_ANSWER_LENGTH:
            reason = f"the answer has more than {MAX_ANSWER_LENGTH:,} characters"
            raise _parse_error(signature, completion, reason)

        outputs: dict[str, Any] = {}
        for name, text in _split_outputs(completion, list(signature.output_fields)).items():
            annotation = signature.output_fields[name].annotation
            try:
                outputs[name] = _read_value(unescape_markers(text), annotation)
            except (ValueError, RecursionError) as error:
                expected = _describe_type(annotation)
                reason = f"{name} is no {expected}: {one_line(error, MAX_REASON_LENGTH)}"
                raise _parse_error(signature, completion, reason) from error

        outputs = apply_output_field_defaults(signature, outputs)
        if outputs.keys() != signature.output_fields.keys():
            raise _parse_error(signature, completion, outputs=outputs)
        return outputs


class _InputWriter:
    """Write inputs as one line each, with the entries that they name by id.

    Example:
        writer = _InputWriter()
        writer.add_named_entries("memory_id", [{"memory_id": "m1", "content": "Ada pet dog"}])
        writer.write({"fact": "Ada pet cat", "related_memory_ids": ["m1"]})
            # "Ada pet cat (m1 Ada pet dog)"
    """

    def __init__(self) -> None:
        self._entries_by_suffix: dict[str, dict[str, Any]] = {}
        """Entries by id, for the fields whose name ends with a suffix, such as `memory_ids`."""
        self._written_out: set[int] = set()
        """The Python ids of the entries that were written out where they are named."""

    def add_named_entries(self, id_field: str, entries: Iterable[Any]) -> None:
        """Let fields such as `related_memory_ids` be written as the entries that they name.

        Args:
            id_field: The field of the entries that holds their id, such as `memory_id`.
            entries: The entries.
        """
        entries_by_id: dict[str, Any] = {}
        for entry in entries:
            entries_by_id[str(_fields_of(entry).get(id_field))] = entry
        self._entries_by_suffix[f"{id_field}s"] = entries_by_id

    def has_written_out(self, entry: Any) -> bool:
        """Return whether an entry was written out where an input names it."""
        return id(entry) in self._written_out

    def write(self, value: Any) -> str:
        """Return a value on one line."""
        if isinstance(value, str):
            lines = [" ".join(line.split()) for line in value.splitlines()]
            return " | ".join(line for line in lines if line)
        if isinstance(value, BaseModel | Mapping):
            texts = [self._write_field(name, part) for name, part in _fields_of(value).items()]
            return " ".join(text for text in texts if text)
        if isinstance(value, list | tuple):
            return " | ".join(self.write(part) for part in value)
        return json.dumps(value, ensure_ascii=False, default=str)

    def _write_field(self, name: str, value: Any) -> str:
        """Return one field of an object, in brackets if it has parts; "" if it is empty."""
        if value is None or value in ("", [], ()):
            return ""
        for suffix, entries_by_id in self._entries_by_suffix.items():
            if name.endswith(suffix):
                return self._write_named_entries(value, entries_by_id)

        text = self.write(value)
        has_parts = isinstance(value, list | tuple | BaseModel | Mapping)
        return f"({text})" if has_parts else text

    def _write_named_entries(
        self, entry_ids: Iterable[str], entries_by_id: Mapping[str, Any]
    ) -> str:
        """Return the entries of some ids, each in brackets; an unknown id stands for itself."""
        texts: list[str] = []
        for entry_id in entry_ids:
            if entry_id not in entries_by_id:
                texts.append(f"({entry_id})")
                continue
            entry = entries_by_id[entry_id]
            self._written_out.add(id(entry))
            # Ids inside such an entry stay ids.
            texts.append(f"({_InputWriter().write(entry)})")
        return " ".join(texts)


def _parse_error(
    signature: type[dspy.Signature],
    completion: str,
    reason: str | None = None,
    outputs: dict[str, Any] | None = None,
) -> AdapterParseError:
    """Return the error of an answer; without a reason, DSPy says which outputs are missing."""
    # DSPy annotates these as an instance and a text, and uses a class and a dictionary.
    about: Any = signature
    parsed_result: Any = outputs
    return AdapterParseError("CompactAdapter", about, completion, reason, parsed_result)


def _input_models(signature: type[dspy.Signature]) -> dict[str, type[BaseModel]]:
    """Return the models of those inputs that are objects or lists of objects, by name."""
    models: dict[str, type[BaseModel]] = {}
    for name, info in signature.input_fields.items():
        model = _model_in(info.annotation)
        if model is not None:
            models[name] = model
    return models


def _id_fields_of_named_lists(signature: type[dspy.Signature]) -> dict[str, str]:
    """Return the inputs whose entries another input names by id, with the field of that id.

    The entries of `memories` have a `memory_id`, and those of `new_facts` `related_memory_ids`: the
    result is `{"memories": "memory_id"}`.
    """
    models = _input_models(signature)
    id_fields: dict[str, str] = {}
    for name, model in models.items():
        id_field = _id_field(model)
        if id_field is None:
            continue
        others = [other for other_name, other in models.items() if other_name != name]
        if any(_has_field_ending_with(other, f"{id_field}s") for other in others):
            id_fields[name] = id_field
    return id_fields


def _id_field(model: type[BaseModel]) -> str | None:
    """Return the first field of a model that holds an id."""
    for name in model.model_fields:
        if name.endswith("_id"):
            return name
    return None


def _has_field_ending_with(model: type[BaseModel], suffix: str) -> bool:
    return any(name.endswith(suffix) for name in model.model_fields)


def _model_in(annotation: TypeHint) -> type[BaseModel] | None:
    """Return the model that an annotation is, or that it holds, such as `Fact` of `list[Fact]`."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return list(value)
    return [value]


def _fields_of(entry: Any) -> dict[str, Any]:
    """Return the fields of an object by name; none if it is no object."""
    if isinstance(entry, BaseModel | Mapping):
        return dict(entry)
    return {}


def _write_output(value: Any, annotation: TypeHint, output_names: Collection[str]) -> str:
    """Return an output as an answer writes it; what an object has as default is left out."""
    if not isinstance(value, str):
        plain = _ANY_VALUE.dump_python(value, mode="json", exclude_defaults=True, fallback=str)
        return json.dumps(plain, ensure_ascii=False)

    would_be_read_as_json = annotation is not str and _is_json(value)
    if _is_plain_line(value, output_names) and not would_be_read_as_json:
        return value
    return json.dumps(value, ensure_ascii=False)


def _is_plain_line(text: str, output_names: Collection[str]) -> bool:
    """Return whether a text can be written without quotes and be read back unchanged."""
    is_one_line = len(text.splitlines()) == 1 and text == text.strip()
    looks_quoted = text.startswith(('"', "`"))
    looks_like_output = any(text.startswith(f"{name}:") for name in output_names)
    return is_one_line and not looks_quoted and not looks_like_output


def _split_outputs(completion: str, names: list[str]) -> dict[str, str]:
    """Return the text of each output that an answer holds.

    Args:
        completion: The answer.
        names: The outputs. The name of the only one may be left out.
    """
    text = completion.strip()
    headings = re.compile(rf"^({'|'.join(map(re.escape, names))}):[ \t]*", re.MULTILINE)
    matches = list(headings.finditer(text))
    begins_with_heading = bool(matches) and matches[0].start() == 0
    if len(names) == 1 and not begins_with_heading:
        return {names[0]: text}

    ends = [match.start() for match in matches[1:]]
    ends.append(len(text))
    outputs: dict[str, str] = {}
    for match, end in zip(matches, ends, strict=False):
        # The first of several counts.
        outputs.setdefault(match[1], text[match.end() : end].strip())
    return outputs


def _read_value(text: str, annotation: TypeHint) -> Any:
    """Return the value of an output.

    Raises:
        ValueError: The text is no such value.
    """
    text = _without_fence(text)
    if annotation is str:
        is_quoted = text.startswith('"') and _is_json(text)
        return json.loads(text) if is_quoted else text

    adapter = TypeAdapter[Any](annotation)
    try:
        return adapter.validate_python(json.loads(text))
    except ValueError:
        if text.startswith(("[", "{", '"')):
            raise
        # A bare word, such as one of a Literal.
        return adapter.validate_python(text)


def _without_fence(text: str) -> str:
    """Return the text inside a code fence, such as a model puts around JSON."""
    is_fenced = text.startswith(_FENCE) and text.endswith(_FENCE) and len(text) >= 2 * len(_FENCE)
    if not is_fenced:
        return text
    return text[len(_FENCE) : -len(_FENCE)].removeprefix("json").strip()


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _describe_type(annotation: TypeHint) -> str:
    """Return the type of an output for a small model: the keys of its objects, or a name."""
    if annotation is str:
        return "text"
    if get_origin(annotation) is Literal:
        return " or ".join(str(choice) for choice in get_args(annotation))

    model = _model_in(annotation)
    if model is None:
        return str(getattr(annotation, "__name__", annotation))
    keys = ", ".join(f'"{name}"' for name in model.model_fields)
    if annotation is model:
        return f"{{{keys}}}"
    return f"JSON [{{{keys}}}, ...]"
