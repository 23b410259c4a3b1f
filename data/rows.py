"""Rows of benchmark files: read into models, and reported by line and field where they do not fit.

Example:
    >>> from mempiler.data.field_types import Text
    >>> from mempiler.data.rows import Location, Row
    >>> class Question(Row):
    ...     question: Text
    >>> Location(print, "line 2").validate(Question, {"question": " "})
    Finding(kind='wrong value', where="line 2, field 'question'", message='is empty', fatal=True)
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from .dataset import Finding, FindingListener

MAX_LISTED_NAMES = 12
"""Most field names that one message lists."""

_PLAIN_MESSAGES = {
    "missing": "is missing",
    "string_too_short": "is empty",
    "string_pattern_mismatch": "is empty",
}
"""What a finding says for some types of pydantic's errors."""
_NOT_AN_OBJECT = {"model_type", "dict_type", "model_attributes_type"}
"""Types of pydantic's errors for a value that should be an object."""

RowT = TypeVar("RowT", bound=BaseModel)


class Row(BaseModel):
    """A row, or a part of one. Other fields are ignored; a number is read as a text."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of optional fields; a row has one field of each group."""


@dataclass(frozen=True)
class Location:
    """A place in a file, e.g. "line 3", where a reader may find something to report."""

    on_finding: FindingListener
    """Receives what is reported."""
    where: str

    def at(self, part: object) -> Location:
        """Return a place inside this one."""
        return Location(self.on_finding, f"{self.where}, {part}")

    def field(self, name: str) -> Location:
        """Return the place of a field of the row at this place."""
        return self.at(f"field {name!r}")

    def warn(self, kind: str, message: str) -> None:
        """Report something that the reader copes with."""
        self.on_finding(Finding(kind, self.where, message))

    def reject(self, kind: str, message: str) -> None:
        """Report something because of which the file is refused."""
        self.on_finding(Finding(kind, self.where, message, fatal=True))

    def validate(self, model: type[RowT], value: Any) -> RowT | None:
        """Return the value as a model; if it does not fit, report each wrong field, return None."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            self._reject_fields(error.errors(), describe_misnamed_fields(model, value))
            return None

    def _reject_fields(self, errors: list[ErrorDetails], misnamed: str) -> None:
        """Report each error of a row.

        Args:
            errors: The errors of pydantic.
            misnamed: The message for fields under wrong names; "" if there are none. It lists the
                missing fields of the row, so it replaces their errors.
        """
        if misnamed:
            self.reject("missing field", misnamed)
        for error in errors:
            path = error["loc"]
            is_missing = error["type"] == "missing"
            # Fields of objects inside the row are not in the message.
            is_field_of_row = len(path) == 1
            if misnamed and is_missing and is_field_of_row:
                continue
            place = self.field(".".join(map(str, path))) if path else self
            kind = "missing field" if is_missing else "wrong value"
            place.reject(kind, _message(error))


def describe_misnamed_fields(model: type[BaseModel], value: Any) -> str:
    """Describe the unknown fields of a row beside the fields that it lacks.

    Most often a field is both, because it has another name than the reader expects.

    Only models that allow further fields (`extra="allow"`) are described, since their authors want
    to know of every field. Files of published benchmarks have many fields that no reader needs.

    Returns:
        E.g. "found: query, gold; expected: question, answer"; "" if the row has no unknown field or
        lacks none.
    """
    if not isinstance(value, Mapping) or model.model_config.get("extra") != "allow":
        return ""
    row = cast("Mapping[str, Any]", value)

    known_names: set[str] = set()
    missing_names: list[str] = []
    for name, field in model.model_fields.items():
        accepted_names = {name, *_aliases(field.validation_alias)}
        known_names |= accepted_names
        if field.is_required() and not accepted_names & row.keys():
            missing_names.append(name)
    if issubclass(model, Row):
        for group in model.alternatives:
            if not set(group) & row.keys():
                missing_names.append(" or ".join(group))

    unknown_names = [str(name) for name in row if name not in known_names]
    if not missing_names or not unknown_names:
        return ""
    return f"found: {_shortened_list(unknown_names)}; expected: {', '.join(missing_names)}"


def _shortened_list(names: Sequence[str]) -> str:
    """Return names with commas between them; long names, and long lists, are cut."""
    shown_names = [name[:40] for name in names[:MAX_LISTED_NAMES]]
    if len(names) > MAX_LISTED_NAMES:
        shown_names.append("...")
    return ", ".join(shown_names)


def _aliases(alias: object) -> list[str]:
    """Return the other names of a field, as pydantic's `validation_alias` gives them."""
    if alias is None:
        return []
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return [choice for choice in choices if isinstance(choice, str)]


def _message(error: ErrorDetails) -> str:
    """Return what a finding says of an error of pydantic, e.g. "is 7, expected a valid list"."""
    kind = error["type"]
    if kind in _PLAIN_MESSAGES:
        return _PLAIN_MESSAGES[kind]
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")

    # Models have tuples where files have lists.
    expected = error["msg"].removeprefix("Input should be ").replace("tuple", "list")
    # For these, pydantic speaks of models and of Python's types.
    if kind in _NOT_AN_OBJECT:
        expected = "an object"
    return f"is {reprlib.repr(error['input'])}, expected {expected}"
