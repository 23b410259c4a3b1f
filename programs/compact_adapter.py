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
from ..reading.failures import quote_answer
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
        """Return the system message: the fields of the signature, its instructions and its types.

        Example:
            question facts -> answer
            facts: subject attribute value
            Answer the question from the facts.
            Answer with the value alone:
            answer: text
        """
        field_names = f"{' '.join(signature.input_fields)} -> {' '.join(signature.output_fields)}"

        # Objects are written as their values alone, so the names of their fields are listed here.
        input_lines: list[str] = []
        for name, model in _input_models(signature).items():
            input_lines.append(f"{name}: {' '.join(model.model_fields)}")

        instructions = textwrap.dedent(signature.instructions).strip()

        output_lines: list[str] = []
        for name, info in signature.output_fields.items():
            output_lines.append(f"{name}: {_describe_type(info.annotation)}")
        if len(output_lines) == 1:
            request = "Answer with the value alone:"
        else:
            request = "Answer with one line per field:"

        return "\n".join([field_names, *input_lines, instructions, request, *output_lines])

    def format_user_message_content(
        self,
        signature: type[dspy.Signature],
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> str:
        """Return the inputs as a message: one line `name: value` per input.

        An entry is left out of its own list if another input refers to it by its id: that input
        shows the entry in the place of the id. The message is "-" if there is nothing to write.
        """
        # An input with nothing to show, such as a list of which all entries are shown elsewhere, is
        # not in `texts`.
        texts = _write_inputs(signature, inputs)
        lines = [prefix]
        for name in signature.input_fields:
            if name in texts:
                lines.append(escape_markers(f"{name}: {texts[name]}"))
        lines.append(suffix)

        message = "\n".join(line for line in lines if line)
        return message or "-"

    def format_assistant_message_content(
        self,
        signature: type[dspy.Signature],
        outputs: dict[str, Any],
        missing_field_message: str | None = None,
    ) -> str:
        """Return an answer: the value of a single output, or a line `name: value` per output."""
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
        """Return the outputs in an answer of the model, by name.

        Raises:
            AdapterParseError: The answer is blank or too long, an output is missing, or its text is
                not exactly a value of its type. The error holds the unchanged completion.
        """
        if len(completion) > MAX_ANSWER_LENGTH:
            reason = f"the answer has more than {MAX_ANSWER_LENGTH:,} characters"
            raise _parse_error(signature, completion, reason)

        # An empty text as an answer is written in quotes: "".
        if not completion.strip():
            raise _parse_error(signature, completion, "the answer is empty")

        outputs: dict[str, Any] = {}
        for name, text in _split_outputs(completion, list(signature.output_fields)).items():
            annotation = signature.output_fields[name].annotation
            try:
                outputs[name] = _read_value(unescape_markers(text), annotation)
            except (ValueError, RecursionError) as error:
                expected = _describe_type(annotation)
                reason = f"{name} is no {expected}: {one_line(error, MAX_REASON_LENGTH)}"
                raise _parse_error(signature, completion, reason) from error

        # Only outputs without a default must be in the answer.
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
        self._shown_entries: list[Any] = []
        """The entries that were shown in the place of their ids."""

    def add_named_entries(self, id_field: str, entries: Iterable[Any]) -> None:
        """Make `write` show these entries where an input only has their ids.

        For the id field `memory_id`, `write` looks for ids in fields with a name that ends with
        `memory_ids`, such as `related_memory_ids`.

        Args:
            id_field: The field of the entries that holds their id, such as `memory_id`.
            entries: Objects with an id, such as memories.
        """
        entries_by_id: dict[str, Any] = {}
        for entry in entries:
            entry_id = _fields_of(entry).get(id_field)
            entries_by_id[str(entry_id)] = entry

        # The plural of the id field, such as `memory_ids`, ends the names of fields with ids.
        suffix = f"{id_field}s"
        self._entries_by_suffix[suffix] = entries_by_id

    def has_shown(self, entry: Any) -> bool:
        """Return whether this entry was shown in the place of its id."""
        # Two entries with the same content are still two, so they are compared by identity.
        return any(shown_entry is entry for shown_entry in self._shown_entries)

    def write(self, value: Any) -> str:
        """Return a value on one line.

        Lines of a text and elements of a list are separated by " | ". Of an object only the values
        are written, separated by spaces. Anything else is written as JSON.
        """
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
        """Return the value of a field on one line, in brackets if it is a list or an object.

        A field with ids of entries, such as `related_memory_ids`, shows the entries in their place.
        An empty value is written as "".
        """
        if value is None or value in ("", [], ()):
            return ""

        # `add_named_entries` was told which entries belong to names that end with `memory_ids`.
        for suffix, entries_by_id in self._entries_by_suffix.items():
            if name.endswith(suffix):
                return self._write_named_entries(value, entries_by_id)

        text = self.write(value)
        if isinstance(value, list | tuple | BaseModel | Mapping):
            return f"({text})"
        return text

    def _write_named_entries(
        self, entry_ids: Iterable[str], entries_by_id: Mapping[str, Any]
    ) -> str:
        """Return the entries with these ids as "(m1 Ada pet dog) (m2 Ben city Oslo)".

        An id without an entry is written as it is: "(m3)". The entries are also added to those for
        which `has_shown` is true, so that the prompt does not list them a second time.
        """
        texts: list[str] = []
        for entry_id in entry_ids:
            if entry_id not in entries_by_id:
                texts.append(f"({entry_id})")
                continue
            entry = entries_by_id[entry_id]
            texts.append(f"({_write_with_ids(entry)})")
            self._shown_entries.append(entry)
        return " ".join(texts)


def _write_with_ids(value: Any) -> str:
    """Return a value on one line in which ids of entries stay ids.

    So an entry that is shown in the place of its id does not show further entries inside it.
    """
    # A new writer knows no entries that it could show.
    return _InputWriter().write(value)


def _write_inputs(signature: type[dspy.Signature], inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return each input as one line of text, by its name.

    If a fact refers to a memory by its id, the line of the facts shows the memory in the place of
    the id, and the line of the memories leaves it out. An input of which all entries are left out
    has no line.
    """
    # For each input with entries that others refer to, such as "memories", the field of their ids.
    id_fields = _id_fields_of_named_lists(signature)
    entries_by_input = {name: _as_list(inputs.get(name)) for name in id_fields}
    writer = _InputWriter()
    for name, id_field in id_fields.items():
        writer.add_named_entries(id_field, entries_by_input[name])

    # Inputs that refer to entries come first: the writer remembers which entries it has shown.
    texts: dict[str, str] = {}
    for name in signature.input_fields:
        if name in inputs and name not in entries_by_input:
            texts[name] = writer.write(inputs[name])

    for name, entries in entries_by_input.items():
        remaining_entries = [entry for entry in entries if not writer.has_shown(entry)]
        # These may have ids of entries too, which stay ids: entries are shown in other inputs only.
        if remaining_entries:
            texts[name] = _write_with_ids(remaining_entries)
    return texts


def _parse_error(
    signature: type[dspy.Signature],
    completion: str,
    reason: str | None = None,
    outputs: dict[str, Any] | None = None,
) -> AdapterParseError:
    """Return the error for an answer that cannot be read.

    Args:
        signature: Declares the outputs.
        completion: The answer.
        reason: What is wrong with it; if None, DSPy's message says which outputs are missing.
        outputs: The outputs that could be read.
    """
    # DSPy's annotations are wrong: it uses the class of the signature, and a dictionary.
    signature_class: Any = signature
    parsed_result: Any = outputs
    error = AdapterParseError(
        "CompactAdapter", signature_class, quote_answer(completion), reason, parsed_result
    )
    # Only the message is short.
    error.lm_response = completion
    return error


def _input_models(signature: type[dspy.Signature]) -> dict[str, type[BaseModel]]:
    """Return the pydantic model of each input that is an object or a list of objects, by name."""
    models: dict[str, type[BaseModel]] = {}
    for name, info in signature.input_fields.items():
        model = _model_in(info.annotation)
        if model is not None:
            models[name] = model
    return models


def _id_fields_of_named_lists(signature: type[dspy.Signature]) -> dict[str, str]:
    """Return the inputs whose entries another input refers to, each with the field of their ids.

    If the objects in `memories` have a field `memory_id`, and the objects in `new_facts` have a
    field `related_memory_ids`, the result is `{"memories": "memory_id"}`.
    """
    models = _input_models(signature)
    id_fields: dict[str, str] = {}
    for name, model in models.items():
        id_field = _id_field(model)
        if id_field is None:
            continue
        other_models = [other for other_name, other in models.items() if other_name != name]
        if any(_has_field_ending_with(other, f"{id_field}s") for other in other_models):
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
    """Return the value of an output as a model should write it: a bare text, or JSON.

    Fields of an object that have their default value are left out. A text is quoted as JSON if
    `parse` would otherwise read something else than this text.
    """
    if not isinstance(value, str):
        json_value = _ANY_VALUE.dump_python(value, mode="json", exclude_defaults=True, fallback=str)
        return json.dumps(json_value, ensure_ascii=False)

    quoted_value = json.dumps(value, ensure_ascii=False)
    if not _is_plain_line(value, output_names):
        return quoted_value
    # An output of the type `Any` is read as JSON if that is possible: the bare text "12" would
    # become the number 12. An output of the type `str` stays a text.
    if annotation is not str and _is_json(value):
        return quoted_value
    return value


def _is_plain_line(text: str, output_names: Collection[str]) -> bool:
    """Return whether a text can be written without quotes and be read back unchanged."""
    is_one_line = len(text.splitlines()) == 1 and text == text.strip()
    looks_quoted = text.startswith(('"', "`"))
    looks_like_output = any(text.startswith(f"{name}:") for name in output_names)
    return is_one_line and not looks_quoted and not looks_like_output


def _split_outputs(completion: str, names: list[str]) -> dict[str, str]:
    """Return the text of each output in an answer: what follows its name and a colon in a line.

    If there is only one output, an answer may leave out its name: then all of it is the text.

    Args:
        completion: The answer, such as "city: Oslo" and "year: 1999" on two lines.
        names: The names of the outputs, such as "city" and "year".
    """
    answer = completion.strip()
    any_name = "|".join(re.escape(name) for name in names)
    label = re.compile(rf"^({any_name}):[ \t]*", re.MULTILINE)
    # `split` returns first what stands before any name, which belongs to no output. Then come a
    # name and its text, the next name and its text, and so on.
    text_before, *parts = label.split(answer)
    begins_with_label = bool(parts) and not text_before
    if len(names) == 1 and not begins_with_label:
        return {names[0]: answer}

    outputs: dict[str, str] = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        # If an output occurs twice, the first text counts.
        if name not in outputs:
            outputs[name] = text.strip()
    return outputs


def _read_value(text: str, annotation: TypeHint) -> Any:
    """Return the value that a text stands for: JSON of a type, or a bare text.

    Args:
        text: The text of one output, perhaps in a code fence.
        annotation: The type of the output.

    Raises:
        ValueError: The text is no value of the type.
    """
    text = _without_fence(text)
    if annotation is str:
        is_quoted = text.startswith('"') and _is_json(text)
        return json.loads(text) if is_quoted else text

    adapter = TypeAdapter[Any](annotation)
    try:
        return adapter.validate_python(json.loads(text))
    except ValueError:
        is_meant_as_json = text.startswith(("[", "{", '"'))
        if is_meant_as_json:
            raise
        # Models write a choice such as `Literal["yes", "no"]` without quotes.
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
    """Return the type of an output in words that a small model understands.

    `str` is "text", and `Literal["yes", "no"]` is "yes or no". An object is shown by its keys, such
    as {"subject", "value"}, and a list of objects as JSON [{"subject", "value"}, ...].
    """
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
