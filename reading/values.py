"""Read a value of a declared type from what a model wrote.

Form is repaired: shapes, spellings, ids, numbers in place of texts. Content is not: a missing value
stays missing, unless its field has a default. A list loses its unreadable elements and keeps the
others; a list that loses all its elements is unreadable.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from ..validation import validation_message
from .choices import OneOf, chosen_letter
from .ids import IdFrom, IdMatcher
from .json_text import JsonObject, LooseJsonParser, ReadBudget
from .list_shapes import list_elements
from .repairs import RepairLog, UnreadableError, preview
from .scalars import read_bool, read_choice, read_number, read_text
from .spelling import is_null_like, normalize_name
from .type_hints import (
    TypeHint,
    allows_none,
    allows_text,
    element_type_of,
    is_marked,
    is_union,
    marks_of,
    model_fields,
    value_type_of,
    without_marks,
)

MAX_VALUES = 20_000
"""Most values that are read from one answer, fields of objects included."""

_LIST_TYPES = (list, tuple, set, frozenset, Sequence)


class ValueReader:
    """Reads the values of one answer and logs what it had to repair.

    Example:
        >>> from mempiler.reading.values import ValueReader
        >>> reader = ValueReader()
        >>> reader.read('["80%", 4]', list[int], "counts")
        [80, 4]
        >>> reader.repairs.entries
        [Repair(kind='cast', path='counts[0]')]

    Args:
        inputs: The inputs of the prompt, with the ids and the options that answers refer to.
        max_text_length: Texts with more characters are unreadable.
    """

    def __init__(
        self,
        inputs: Mapping[str, object] | None = None,
        max_text_length: int | None = None,
    ) -> None:
        self.repairs = RepairLog()
        self._inputs = inputs or {}
        self._max_text_length = max_text_length
        self._id_matchers: dict[IdFrom, IdMatcher] = {}
        self._read_budget = ReadBudget()
        self._remaining_values = MAX_VALUES

    def read(self, raw: JsonValue, type_hint: TypeHint, path: str = "") -> Any:
        """Return a value of a type.

        Args:
            raw: The text of a field, or a JSON value.
            type_hint: The type that the value should have.
            path: Where the value stands in the answer.

        Raises:
            UnreadableError: The value cannot be read as this type, or the answer holds too many
                values.
        """
        self._remaining_values -= 1
        if self._remaining_values < 0:
            raise UnreadableError(path, f"the answer holds more than {MAX_VALUES:,} values")

        try:
            if is_marked(type_hint):
                return self._read_marked(raw, type_hint, path)
            return self._read_plain(raw, type_hint, path)
        except UnreadableError:
            raise
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            # For example a number of more digits than Python converts.
            raise UnreadableError(path, f"cannot be read: {type(error).__name__}") from error

    def _read_marked(self, raw: JsonValue, type_hint: TypeHint, path: str) -> object:
        """Return a value of a type with a mark: one of some options, or an id that inputs show."""
        plain_type = without_marks(type_hint)
        marks = marks_of(type_hint)
        if not marks:
            # The type carries other annotations, such as pydantic's own.
            return self._read_plain(raw, plain_type, path)

        # A second mark would contradict the first.
        mark = marks[0]
        if isinstance(mark, OneOf):
            return self._read_option(raw, mark, path)

        if get_origin(plain_type) is list:
            # The elements are the ids. Each of them comes back to this method.
            (element_type,) = get_args(plain_type)
            marked_element: TypeHint = Annotated[element_type, mark]
            return self._read_plain(raw, list[marked_element], path)

        means_no_id = allows_none(plain_type) and is_null_like(raw)
        shown_id = raw if means_no_id else self._read_id(raw, mark, path)
        return self._read_plain(shown_id, plain_type, path)

    def _read_plain(self, raw: JsonValue, type_hint: TypeHint, path: str) -> object:
        """Return a value of a type without marks."""
        if isinstance(raw, str) and not allows_text(type_hint):
            raw = self._parse_json(raw, path)

        if type_hint is Any:
            return raw
        if isinstance(type_hint, type):
            return self._read_class(raw, type_hint, path)
        if is_union(type_hint):
            return self._read_union(raw, type_hint, path)

        origin = get_origin(type_hint)
        if origin is Literal:
            return read_choice(raw, get_args(type_hint), path, self.repairs)
        if origin in _LIST_TYPES:
            return self._read_list(raw, type_hint, path)
        if origin is dict:
            return self._read_dict(raw, type_hint, path)
        return _validate(raw, type_hint, path)

    def _read_class(self, raw: JsonValue, value_type: type, path: str) -> object:
        """Return an instance of a class: a model, a member of an enumeration or a scalar."""
        if issubclass(value_type, BaseModel):
            return self._read_model(raw, value_type, path)
        if issubclass(value_type, enum.Enum):
            values = [member.value for member in value_type]
            return value_type(read_choice(raw, values, path, self.repairs))
        # A bool is an int to Python, so it comes first.
        if issubclass(value_type, bool):
            return read_bool(raw, path, self.repairs)
        if issubclass(value_type, int | float):
            return read_number(raw, value_type, path, self.repairs)
        if issubclass(value_type, str):
            return read_text(raw, path, self.repairs, self._max_text_length)
        return _validate(raw, value_type, path)

    def _parse_json(self, text: str, path: str) -> JsonValue:
        """Return the JSON value that a text writes, or the text itself if it writes none."""
        parser = LooseJsonParser(self._read_budget)
        try:
            value = parser.parse_field(text)
        except UnreadableError as error:
            raise UnreadableError(path, str(error)) from error

        for slip in parser.slips:
            self.repairs.add(slip, path)
        return value

    def _read_option(self, raw: JsonValue, mark: OneOf, path: str) -> str:
        """Return the label of the option that a text chooses, e.g. "(b)"."""
        text = read_text(raw, path, self.repairs, self._max_text_length)
        options = cast("Sequence[str]", self._inputs.get(mark.field) or ())
        label = chosen_letter(text, options)
        if label is None:
            reason = f"{preview(text)} chooses none of the {len(options)} options, or several"
            raise UnreadableError(path, reason)

        if label != text:
            self.repairs.add("spelling", path)
        return label

    def _read_id(self, raw: JsonValue, mark: IdFrom, path: str) -> str:
        """Return the id that a model means, spelled as the prompt shows it.

        An id that the prompt does not show is returned as the model wrote it.

        Args:
            raw: An id, perhaps with decoration: "D1:3", "[d1:3]", "turn D1:3" or 3.
            mark: The inputs that show the ids, and whether the model may invent others.
            path: Where the id stands in the answer.

        Raises:
            UnreadableError: The value is of a kind that cannot be an id.
        """
        if raw is None or isinstance(raw, bool | dict):
            raise UnreadableError(path, f"an id is due, not {preview(raw)}")

        written_id = _unwrapped_id(raw)
        shown_id = self._id_matcher(mark).match(written_id)
        if shown_id is not None:
            if shown_id != written_id:
                self.repairs.add("id", path)
            return shown_id

        new_id = str(written_id)
        # An empty text names nothing, so it is not an unknown id.
        if new_id.strip() and not mark.allow_new:
            self.repairs.add("unknown id", path)
        return new_id

    def _id_matcher(self, mark: IdFrom) -> IdMatcher:
        """Return the matcher for the ids of a mark.

        It is made once for an answer, since finding the ids of long inputs takes time and a list
        may hold thousands of ids.
        """
        if mark not in self._id_matchers:
            self._id_matchers[mark] = mark.matcher(self._inputs)
        return self._id_matchers[mark]

    def _read_union(self, raw: JsonValue, type_hint: TypeHint, path: str) -> object:
        """Return a value of the first type of a union as which it can be read."""
        if allows_none(type_hint) and is_null_like(raw):
            return None

        alternatives = [hint for hint in get_args(type_hint) if hint is not type(None)]
        for alternative in alternatives[:-1]:
            repair_count = len(self.repairs)
            try:
                return self.read(raw, alternative, path)
            except UnreadableError:
                self.repairs.truncate(repair_count)
        # If all fail, the error of the last type is raised.
        return self.read(raw, alternatives[-1], path)

    def _read_list(self, raw: JsonValue, type_hint: TypeHint, path: str) -> object:
        """Return a list, tuple or set of those elements that can be read."""
        element_type = element_type_of(type_hint)
        raw_elements = self._raw_elements(raw, element_type, path)

        elements: list[object] = []
        first_reason = ""
        for number, raw_element in enumerate(raw_elements):
            element_path = f"{path}[{number}]"
            repair_count = len(self.repairs)
            try:
                element = self.read(raw_element, element_type, element_path)
            except UnreadableError as error:
                self.repairs.truncate(repair_count)
                self.repairs.add("element", element_path)
                first_reason = first_reason or str(error)
                continue

            # A list of ids goes without those that the prompt did not show.
            if not self.repairs.has_unknown_id(element_path):
                elements.append(element)

        if first_reason and not elements:
            reason = f"none of {len(raw_elements)} elements can be read; {first_reason}"
            raise UnreadableError(path, reason)

        list_type = get_origin(type_hint)
        return elements if list_type in (list, Sequence) else list_type(elements)

    def _raw_elements(self, raw: JsonValue, element_type: TypeHint, path: str) -> list[JsonValue]:
        """Return the elements of a list before they are read.

        A model may write another value where a list is due. `list_elements` finds the elements in
        it, and the repair is logged:

            {"name": "Rex"}                 one element without the brackets of a list
            {"items": [{"name": "Rex"}]}    a list inside an object
            "S2, S7 and S8"                 an enumeration

        Raises:
            UnreadableError: The value is empty.
        """
        # JSON has lists only, but the validator of a field may return a tuple or a set.
        if isinstance(raw, list | tuple | set):
            return list(raw)
        if raw is None or raw == "":
            raise UnreadableError(path, "a list is due, and there is nothing")

        self.repairs.add("shape", path)
        return list_elements(raw, element_type)

    def _read_dict(self, raw: JsonValue, type_hint: TypeHint, path: str) -> dict[str, object]:
        """Return a dict with text keys; its values have the declared type."""
        if not isinstance(raw, dict):
            raise UnreadableError(path, f"an object is due, not {preview(raw)}")

        value_type = value_type_of(type_hint)
        values: dict[str, object] = {}
        for key, raw_value in raw.items():
            values[str(key)] = self.read(raw_value, value_type, f"{path}.{key}")
        return values

    def _read_model(self, raw: JsonValue, model: type[BaseModel], path: str) -> BaseModel:
        """Return an instance of a model."""
        if isinstance(raw, model):
            # A validator of the field made it.
            return raw

        raw_fields = self._raw_fields(raw, model, path)
        values = self._read_fields(raw_fields, model, path)
        try:
            return model.model_validate(values)
        except ValidationError as error:
            raise UnreadableError(path, validation_message(error)) from error

    def _raw_fields(self, raw: JsonValue, model: type[BaseModel], path: str) -> JsonObject:
        """Return the fields of an object by normalized name.

        An object may be wrapped, in a list as in `[{"score": 7}]` or below a key as in
        `{"result": {"score": 7}}`. A number may stand for an object of one field: `7`.
        """
        if isinstance(raw, list) and len(raw) == 1:
            self.repairs.add("shape", path)
            (raw,) = raw

        if isinstance(raw, int | float) and not isinstance(raw, bool):
            names = list(model.model_fields)
            if len(names) == 1:
                self.repairs.add("shape", path)
                raw = {names[0]: raw}

        if not isinstance(raw, dict):
            raise UnreadableError(path, f"an object is due, not {preview(raw)}")

        raw_fields = {normalize_name(key): value for key, value in raw.items()}
        field_keys = {field.key for field in model_fields(model)}
        has_only_an_unknown_key = len(raw_fields) == 1 and not raw_fields.keys() & field_keys
        if has_only_an_unknown_key:
            (inner_value,) = raw_fields.values()
            if isinstance(inner_value, dict):
                self.repairs.add("shape", path)
                return self._raw_fields(inner_value, model, path)
        return raw_fields

    def _read_fields(
        self, raw_fields: JsonObject, model: type[BaseModel], path: str
    ) -> dict[str, object]:
        """Return the values of a model's fields by name, except those that take their defaults.

        Args:
            raw_fields: The fields by normalized name.
            model: The model that declares the fields.
            path: Where the object stands in the answer.

        Raises:
            UnreadableError: A required field is missing or unreadable.
        """
        values: dict[str, object] = {}
        for field in model_fields(model):
            field_path = f"{path}.{field.name}" if path else field.name
            if field.key not in raw_fields:
                if field.is_required:
                    raise UnreadableError(field_path, "is missing")
                continue

            raw = field.apply_validators(raw_fields[field.key])
            if raw is None and not field.is_required and not allows_none(field.type_hint):
                self.repairs.add("null", field_path)
                continue

            repair_count = len(self.repairs)
            try:
                values[field.name] = self.read(raw, field.type_hint, field_path)
            except UnreadableError:
                if field.is_required:
                    raise
                self.repairs.truncate(repair_count)
                self.repairs.add("field", field_path)
        return values


def _unwrapped_id(raw: JsonValue) -> JsonValue:
    """Return the id in a list where a single id is due; any other value as it is.

    The elements of a longer list become one text: `["turn", "D1:3"]` is "turn, D1:3". The matcher
    finds the only id in it, and refuses a text with several.
    """
    if not isinstance(raw, list):
        return raw
    if len(raw) == 1:
        return raw[0]
    return ", ".join(str(part) for part in raw)


def _validate(value: JsonValue, type_hint: TypeHint, path: str) -> object:
    """Return a value as pydantic converts it to a type."""
    adapter: TypeAdapter[Any] = TypeAdapter(type_hint)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise UnreadableError(path, validation_message(error)) from error
