"""Find the elements of a value that stands where a list is due."""

from __future__ import annotations

import re
from typing import Literal, get_origin

from pydantic import BaseModel, JsonValue

from .ids import id_field_name
from .json_text import JsonObject
from .spelling import normalize_name
from .type_hints import TypeHint, is_id, without_marks

_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_WORD_SEPARATOR = re.compile(r"[,;\s、，]+|\band\b")


def list_elements(raw: JsonValue, element_type: TypeHint) -> list[JsonValue]:
    """Return the elements of a value that a model wrote where a list is due.

    A text is split if its type tells where. For a list of texts, its lines are the elements; for a
    list of ids or of fixed choices, its words. Any value that is not taken apart is one element.

    Args:
        raw: An object, a text or another value.
        element_type: The type that elements should have.
    """
    if isinstance(raw, dict):
        if is_id(element_type) and not _holds_containers(raw):
            # {"S2": 1, "S7": 1} lists the ids S2 and S7.
            return list(raw)
        return _elements_of_object(raw, element_type)

    if isinstance(raw, str):
        plain_type = without_marks(element_type)
        if plain_type is str and not is_id(element_type):
            return _split_lines(raw)
        if plain_type is str or get_origin(plain_type) is Literal:
            return _split_words(raw)

    return [raw]


def _holds_containers(raw: JsonObject) -> bool:
    """Say whether an object holds a list or another object."""
    return any(isinstance(value, list | tuple | dict) for value in raw.values())


def _elements_of_object(raw: JsonObject, element_type: TypeHint) -> list[JsonValue]:
    """Return the elements of an object that a model wrote where a list is due.

    For a list of models with the fields `id` and `name`:

        {"name": "Rex"}                                 the object is the only element
        {"pets": [{"name": "Rex"}, {"name": "Bo"}]}     the elements are in the list below a key
        {"p1": {"name": "Rex"}, "p2": {"name": "Bo"}}   the keys are the ids of the elements

    For a list of texts:

        {"first": "a walk", "second": "a swim"}         the values are the elements
        {"plans": {"first": "a walk"}}                  the elements are in the object below a key
    """
    field_names = _field_names(element_type)
    field_keys = {normalize_name(name) for name in field_names}
    keys = {normalize_name(key) for key in raw}
    if keys & field_keys:
        return [raw]

    # {"pets": [...]} wraps the list. A list of ids may stand beside other values, as in
    # {"answer": ["S2", "S7"], "reason": "Both suit."}.
    values = list(raw.values())
    lists = [value for value in values if isinstance(value, list | tuple)]
    if len(lists) == 1 and (len(values) == 1 or is_id(element_type)):
        return list(lists[0])

    # {"S2": {...}, "S7": {...}} holds the elements by their ids.
    id_field = id_field_name(field_names)
    if id_field is not None and all(isinstance(value, dict) for value in values):
        return _objects_by_id(raw, id_field)

    # {"result": {...}} wraps an object that stands for the list.
    if len(values) == 1 and isinstance(values[0], dict):
        return _elements_of_object(values[0], element_type)

    # An object without a known field is no instance of the model. Reading it says so.
    return [raw] if field_names else values


def _objects_by_id(raw: JsonObject, id_field: str) -> list[JsonValue]:
    """Return objects that are keyed by their ids as a list; each gets its id, if it has none."""
    id_key = normalize_name(id_field)
    objects: list[JsonValue] = []
    for key, value in raw.items():
        fields = dict(value) if isinstance(value, dict) else {}
        has_id = any(normalize_name(name) == id_key for name in fields)
        if has_id:
            objects.append(fields)
        else:
            objects.append({id_field: key, **fields})
    return objects


def _field_names(element_type: TypeHint) -> list[str]:
    """Return the names of the fields of a model; none of any other type."""
    model = without_marks(element_type)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return list(model.model_fields)
    return []


def _split_lines(text: str) -> list[JsonValue]:
    """Return the lines of a text without their bullets."""
    lines: list[JsonValue] = []
    for line in text.splitlines():
        content = _BULLET.sub("", line).strip()
        if content:
            lines.append(content)
    return lines


def _split_words(text: str) -> list[JsonValue]:
    """Return the words of an enumeration such as "[S2, S7 and S8]"."""
    words = _WORD_SEPARATOR.split(text.strip(" \t\n[](){}"))
    return [word for word in words if word.strip("\"'`.")]
