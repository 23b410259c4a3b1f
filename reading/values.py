"""Reading a value of a type from what a model wrote, element by element.

Form is mended: shapes, casts, spellings, ids. Content is not: a value that is missing stays missing, unless the field
has a default. A list loses its bad elements and keeps the others; one of which nothing is left cannot be read.
"""

from __future__ import annotations

import enum
import json
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from ..errors import misfit
from .choices import OneOf, chosen_letter
from .ids import Shown, ShownIds
from .json_text import LOOKS, parsed
from .kinds import (
    Field,
    Repair,
    RepairKind,
    UnreadableError,
    admits_none,
    bare,
    fields_of,
    is_id,
    is_nothing,
    plain,
)

MOST_VALUES = 20_000
"""Most values of one answer that are read, fields of objects included; what holds further ones counts as unreadable."""
_NEAR = 0.8
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_CLAUSE = re.compile(r"[,.;:!?\n]")
"""Where the first clause of a sentence ends."""
_YES_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class ValueReader:
    """Reads the values of one answer and keeps what it had to repair; a text longer than `longest` cannot be read."""

    def __init__(self, inputs: Mapping[str, Any] | None = None, longest: int | None = None) -> None:
        self.inputs = inputs or {}
        self.longest = longest
        self.repairs: list[Repair] = []
        self._ids_of: dict[Shown, ShownIds] = {}
        self._looks = iter(range(LOOKS))
        self._left = MOST_VALUES

    def read(self, raw: Any, annotation: Any, where: str = "") -> Any:
        """The value of the type that is due, of the text of a field or a value that was parsed already.

        Raises:
            UnreadableError: It is none of this type, and cannot be made one; or the answer holds too many values.
        """
        self._left -= 1
        if self._left < 0:
            raise UnreadableError(where, f"the answer holds more than {MOST_VALUES:,} values")
        try:
            return self._value(raw, annotation, where)
        except UnreadableError:
            raise
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise UnreadableError(where, f"cannot be read: {type(error).__name__}") from error

    def _value(self, raw: Any, annotation: Any, where: str) -> Any:
        marks: tuple[Any, ...] = ()
        while get_origin(annotation) is Annotated:
            annotation, *found = get_args(annotation)
            marks += tuple(found)
        for mark in marks:
            if isinstance(mark, OneOf):
                return self._option(raw, mark, where)
            if isinstance(mark, Shown) and get_origin(annotation) is list:
                annotation = list[Annotated[get_args(annotation)[0], mark]]  # pyright: ignore[reportInvalidTypeArguments]
            elif isinstance(mark, Shown) and not (admits_none(annotation) and is_nothing(raw)):
                raw = self._id(raw, mark, where)
        origin = get_origin(annotation)
        may_be_text = annotation is str or (origin in (Union, types.UnionType) and str in get_args(annotation))
        if isinstance(raw, str) and not may_be_text:
            raw = self._parsed(raw, where)
        if annotation is Any:
            return raw
        if origin in (Union, types.UnionType):
            return self._union(raw, annotation, where)
        if origin is Literal:
            return self._choice(raw, get_args(annotation), where)
        if origin in (list, tuple, set, frozenset, Sequence):
            return self._list(raw, annotation, where)
        if origin is dict:
            return self._dict(raw, get_args(annotation), where)
        for kind, read in _READINGS.items():
            if isinstance(annotation, type) and issubclass(annotation, kind):
                return read(self, raw, annotation, where)
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(annotation)
            return adapter.validate_python(raw)
        except ValidationError as error:
            raise UnreadableError(where, misfit(error)) from error

    def repair(self, kind: RepairKind, where: str) -> None:
        """Notes something that was put right."""
        self.repairs.append(Repair(kind, where))

    def _parsed(self, raw: str, where: str) -> Any:
        try:
            return parsed(raw, lambda slip: self.repair(slip, where), self._looks)
        except UnreadableError as error:
            raise UnreadableError(where, str(error)) from error

    def _union(self, raw: Any, annotation: Any, where: str) -> Any:
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        if len(kinds) < len(get_args(annotation)) and is_nothing(raw):
            return None
        for kind in kinds[:-1]:
            kept = len(self.repairs)
            try:
                return self.read(raw, kind, where)
            except UnreadableError:
                del self.repairs[kept:]
        return self.read(raw, kinds[-1], where)

    def _member(self, raw: Any, annotation: Any, where: str) -> Any:
        return annotation(self._choice(raw, [each.value for each in annotation], where))

    def _text(self, raw: Any, annotation: Any, where: str) -> str:
        if isinstance(raw, str):
            if self.longest is not None and len(raw) > self.longest:
                raise UnreadableError(where, f"the text has {len(raw):,} characters, more than {self.longest:,}")
            return raw
        if isinstance(raw, Mapping) and len(raw) == 1:
            raw = next(iter(raw.values()))
            self.repair("shape", where)
            return self._text(raw, annotation, where)
        if isinstance(raw, list) and raw and all(isinstance(part, str | int | float) for part in raw):
            self.repair("shape", where)
            return ", ".join(str(part) for part in raw)
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise UnreadableError(where, f"a text is due, not {_shown(raw)}")
        self.repair("cast", where)
        return str(int(raw)) if isinstance(raw, float) and raw.is_integer() else str(raw)

    def _number(self, raw: Any, annotation: Any, where: str) -> Any:
        if isinstance(raw, int | float) and not isinstance(raw, bool):
            if math.isfinite(raw) and (annotation is float or isinstance(raw, int) or raw.is_integer()):
                return annotation(raw)
        elif isinstance(raw, str) and re.fullmatch(r"[-+]?\d+(\.\d+)?\s*%?", raw.strip()):
            self.repair("cast", where)
            return self._number(float(raw.strip(" %\t\n")), annotation, where)
        due = "a whole number" if annotation is int else "a number"
        raise UnreadableError(where, f"{due} is due, not {_shown(raw)}")

    def _truth(self, raw: Any, annotation: Any, where: str) -> bool:
        if isinstance(raw, bool):
            return raw
        said = str(raw).strip(" .\"'`*").casefold()
        if said not in _YES_NO:
            raise UnreadableError(where, f"true or false is due, not {_shown(raw)}")
        self.repair("cast", where)
        return _YES_NO[said]

    def _choice(self, raw: Any, allowed: Sequence[Any], where: str) -> Any:
        """A defined value, or that of nearest spelling, or the one that begins an answer which names no other one."""
        if raw in allowed and not isinstance(raw, bool):
            return raw
        by_name = {plain(each): each for each in allowed}
        said = plain(raw) if isinstance(raw, str | int | float) else ""
        near = [said] if said in by_name else get_close_matches(said, by_name, 1, _NEAR) if said else []
        if not near and isinstance(raw, str):
            first, *rest = _CLAUSE.split(raw, maxsplit=1)
            others = [re.escape(str(each)) for name, each in by_name.items() if name != plain(first)]
            more = any(re.search(rf"(?<!\w)(?:{'|'.join(others)})(?!\w)", part, re.IGNORECASE) for part in rest)
            near = [plain(first)] if plain(first) in by_name and not more else []
        if not near:
            raise UnreadableError(where, f"{_shown(raw)} is none of: {', '.join(map(str, allowed))}")
        self.repair("spelling", where)
        return by_name[near[0]]

    def _id(self, raw: Any, mark: Shown, where: str) -> str:
        """A shown id; another text is left as it is, for code to refuse, and counted."""
        if raw is None or isinstance(raw, Mapping | bool):
            raise UnreadableError(where, f"an id is due, not {_shown(raw)}")
        if isinstance(raw, list):
            raw = raw[0] if len(raw) == 1 else ", ".join(map(str, raw))
        if mark not in self._ids_of:
            self._ids_of[mark] = mark.ids(self.inputs)
        found = self._ids_of[mark].match(raw)
        if found is None:
            if not mark.new and str(raw).strip():
                self.repair("unknown id", where)
            return str(raw)
        if found != raw:
            self.repair("id", where)
        return found

    def _option(self, raw: Any, mark: OneOf, where: str) -> str:
        said, options = self._text(raw, str, where), self.inputs.get(mark.field) or ()
        found = chosen_letter(said, options)
        if found is None:
            raise UnreadableError(where, f"{_shown(said)} chooses none of the {len(options)} options, or several")
        if found != said:
            self.repair("spelling", where)
        return found

    def _list(self, raw: Any, annotation: Any, where: str) -> Any:
        origin, args = get_origin(annotation), get_args(annotation)
        kind = args[0] if args else Any
        elements = self._elements(raw, kind, where)
        found, why = [], ""
        for n, element in enumerate(elements):
            place, kept = f"{where}[{n}]", len(self.repairs)
            try:
                value = self.read(element, kind, place)
            except UnreadableError as error:
                del self.repairs[kept:]
                self.repair("element", place)
                why = why or str(error)
                continue
            if self.repairs[kept:] and self.repairs[-1] == Repair("unknown id", place):
                continue
            found.append(value)
        if elements and not found and why:
            raise UnreadableError(where, f"none of {len(elements)} elements can be read; {why}")
        return found if origin in (list, Sequence) else origin(found)

    def _elements(self, raw: Any, kind: Any, where: str) -> list[Any]:
        if isinstance(raw, list | tuple | set):
            return list(raw)
        if raw is None or raw == "":
            raise UnreadableError(where, "a list is due, and there is nothing")
        self.repair("shape", where)
        if isinstance(raw, Mapping):
            wrapped = any(isinstance(value, list | tuple | Mapping) for value in raw.values())
            return list(raw) if is_id(kind) and not wrapped else _unwrapped(raw, kind)
        if isinstance(raw, str) and bare(kind) is str:
            lines = (_BULLET.sub("", line).strip() for line in raw.splitlines())
            return _listed(raw) if is_id(kind) else [line for line in lines if line]
        if isinstance(raw, str) and get_origin(bare(kind)) is Literal:
            return _listed(raw)
        return [raw]

    def _dict(self, raw: Any, args: tuple[Any, ...], where: str) -> dict[Any, Any]:
        if not isinstance(raw, Mapping):
            raise UnreadableError(where, f"an object is due, not {_shown(raw)}")
        kind = args[1] if len(args) > 1 else Any
        return {str(key): self.read(value, kind, f"{where}.{key}") for key, value in raw.items()}

    def _model(self, raw: Any, model: type[BaseModel], where: str) -> BaseModel:
        if isinstance(raw, model):
            return raw
        if isinstance(raw, list) and len(raw) == 1:
            self.repair("shape", where)
            raw = raw[0]
        if isinstance(raw, int | float) and not isinstance(raw, bool) and len(model.model_fields) == 1:
            self.repair("shape", where)
            raw = dict.fromkeys(model.model_fields, raw)
        if not isinstance(raw, Mapping):
            raise UnreadableError(where, f"an object is due, not {_shown(raw)}")
        given = {plain(key): value for key, value in raw.items()}
        fields = fields_of(model)
        if len(given) == 1 and not given.keys() & {field.key for field in fields}:
            inside = next(iter(given.values()))
            if isinstance(inside, Mapping):
                self.repair("shape", where)
                return self._model(inside, model, where)
        values: dict[str, Any] = {}
        for field in fields:
            self._field(values, field, given, f"{where}.{field.name}" if where else field.name)
        try:
            return model.model_validate(values)
        except ValidationError as error:
            raise UnreadableError(where, misfit(error)) from error

    def _field(self, values: dict[str, Any], field: Field, given: dict[str, Any], where: str) -> None:
        """Puts the value of one field of an object to the others; nothing where its default is due."""
        if field.key not in given:
            if field.required:
                raise UnreadableError(where, "is missing")
            return
        raw = given[field.key]
        for before in field.before:
            # One that cannot take such a value at all has nothing to say of it.
            with suppress(TypeError, ValueError, AttributeError):
                raw = before(raw)
        if raw is None and not field.required and not admits_none(field.annotation):
            self.repair("null", where)
            return
        kept = len(self.repairs)
        try:
            values[field.name] = self.read(raw, field.annotation, where)
        except UnreadableError:
            if field.required:
                raise
            del self.repairs[kept:]
            self.repair("field", where)


_READINGS: Mapping[type, Callable[[ValueReader, Any, Any, str], Any]] = {
    BaseModel: ValueReader._model,
    enum.Enum: ValueReader._member,
    bool: ValueReader._truth,
    int: ValueReader._number,
    float: ValueReader._number,
    str: ValueReader._text,
}


def _unwrapped(raw: Mapping[Any, Any], kind: Any) -> list[Any]:
    """The elements of an object that stands for a list: one element, a wrapper around a list, or a dict by id."""
    model = bare(kind)
    fields = list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []
    names = set(map(plain, fields))
    keys = {plain(key) for key in raw}
    if names and keys & names:
        return [raw]
    values = list(raw.values())
    lists = [value for value in values if isinstance(value, list | tuple)]
    if len(lists) == 1 and (len(values) == 1 or is_id(kind)):
        return list(lists[0])
    if names and all(isinstance(value, Mapping) for value in values):
        id = next((name for name in fields if name.endswith("id")), fields[0])
        return [value if plain(id) in map(plain, value) else {id: key, **value} for key, value in raw.items()]
    if len(values) == 1 and isinstance(values[0], Mapping):
        return _unwrapped(values[0], kind)
    return [raw] if names else values


def _listed(text: str) -> list[str]:
    return [part for part in re.split(r"[,;\s、，]+|\band\b", text.strip(" \t\n[](){}")) if part.strip("\"'`.")]


def _shown(raw: Any) -> str:
    text = json.dumps(raw, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
