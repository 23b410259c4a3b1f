"""Filling any typed output: a walk over its JSON schema that takes every leaf from the text or from the demos.

Lists map over the source list, one item per unit; a list whose items cite others (a list property `x_ids`) has one item
per group of alike units of that list, which says what they share. In a mapped record a text leaf is a part of its unit:
the property of the same name if the unit is a record, its id for `id` and `x_id`, its speaker for `speaker`, its date
for `time` and `date`, else its body; where a demo shows which part it is, the demo decides. Options follow the nearest
demo, otherwise the first one is taken. Numbers are the first number near; a bool is True unless demos say otherwise.

Example:
    >>> fill(view, Output("facts", {"type": "array", "items": {"type": "string"}}))
    ['Ann: I moved to Rome']

Honest limit: values have the right type, not the right meaning; string patterns are not obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .answers import answer, best_sentence, when
from .groups import groups
from .lessons import Lesson, closest, dropped, item_schema, learn, nearest, source_units
from .prompt import Output
from .schema import Schema, expand, is_text
from .text import stems
from .units import Source, Unit
from .view import View

_NUMBER = re.compile(r"(?<!\w)-?\d{1,15}(?:\.\d{1,9})?(?![\d])")
_DEEP = 4


@dataclass(frozen=True)
class Slot:
    """One place in an output that wants a value."""

    name: str
    schema: Schema
    root: Schema
    unit: Unit | None = None
    """The unit it is mapped from; None outside a mapped list."""
    taught: tuple[tuple[Lesson, Any], ...] = ()
    """What the demos put here, nearest first."""
    depth: int = 0
    optional: bool = field(default=False)

    def child(self, name: str, schema: Schema, optional: bool = False) -> Slot:
        """The slot of a property of this one."""
        inner = tuple(
            (lesson, value[name]) for lesson, value in self.taught if isinstance(value, dict) and name in value
        )
        schema = expand(schema, self.root)
        return replace(self, name=name, schema=schema, taught=inner, depth=self.depth + 1, optional=optional)


def fill(view: View, output: Output) -> Any:
    """A value of the output's type, as JSON would hold it."""
    near = [(Lesson(Unit(body=view.probe(demo.inputs))), value) for demo, value in view.teachers(output.name)]
    probe = stems(view.probe(view.prompt.inputs))
    near.sort(key=lambda pair: -view.weights.cosine(probe, pair[0].unit.stems))
    schema = expand(output.schema, output.schema)
    if is_text(schema) and not _asks_id(output.name):
        return _cut(answer(view, output.name), schema)
    return _value(view, Slot(output.name, schema, output.schema, taught=tuple(near)))


def _value(view: View, slot: Slot) -> Any:
    schema = slot.schema
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _option(view, slot, schema["enum"])
    kind = schema.get("type")
    if "anyOf" in schema or isinstance(kind, list):
        return _union(view, slot, schema.get("anyOf") or [{"type": one} for one in kind or ()])
    if kind == "null":
        return None
    if kind == "boolean":
        return _option(view, slot, [True, False])
    if kind in ("integer", "number"):
        return _number(view, slot)
    if kind == "array":
        return _array(view, slot)
    if kind == "object":
        return _record(view, slot)
    return _cut(_text(view, slot) or "", schema)


def _option(view: View, slot: Slot, options: Sequence[Any]) -> Any:
    taught = [value for _, value in slot.taught if value in options]
    ranked = list(dict.fromkeys([*taught, *options]))
    return view.choose([(1.0 - 0.2 * n, option) for n, option in enumerate(ranked)])


def _union(view: View, slot: Slot, choices: Sequence[Schema]) -> Any:
    choices = [expand(choice, slot.root) for choice in choices]
    nullable = {"type": "null"} in choices
    real = [choice for choice in choices if choice.get("type") != "null"]
    if not real or (nullable and slot.taught and slot.taught[0][1] is None):
        return None
    inner = replace(slot, schema=real[0])
    if nullable and slot.depth >= _DEEP:
        return None
    if nullable and real[0].get("type") == "string" and _text(view, inner) is None:
        return None
    if nullable and real[0].get("type") in ("integer", "number") and not _numbers(view, slot):
        return None
    return _value(view, inner)


def _numbers(view: View, slot: Slot) -> list[str]:
    unit, sentence = (slot.unit, slot.unit.body) if slot.unit else _best(view)
    return _NUMBER.findall(sentence) or _NUMBER.findall(unit.body)


def _number(view: View, slot: Slot) -> int | float:
    taught = [value for _, value in slot.taught if isinstance(value, (int, float)) and not isinstance(value, bool)]
    copied = [str(value) in lesson.unit.body for lesson, value in slot.taught]
    found = [float(text) for text in _numbers(view, slot)]
    value = float(taught[0]) if taught and not (found and all(copied)) else found[0] if found else 0.0
    whole = slot.schema.get("type") == "integer"
    step = 1 if whole else 1e-6
    low = max(slot.schema.get("minimum", value), slot.schema.get("exclusiveMinimum", value - step) + step)
    high = min(slot.schema.get("maximum", max(value, low)), slot.schema.get("exclusiveMaximum", float("inf")) - step)
    value = min(max(value, low), high)
    return int(value) if whole else value


def _record(view: View, slot: Slot) -> dict[str, Any]:
    properties = slot.schema.get("properties", {})
    required = slot.schema.get("required", properties)
    return {name: _value(view, slot.child(name, part, name not in required)) for name, part in properties.items()}


def _array(view: View, slot: Slot) -> list[Any]:
    if "prefixItems" in slot.schema:
        return [_value(view, slot.child(slot.name, part)) for part in slot.schema["prefixItems"]]
    least, most = slot.schema.get("minItems", 0), slot.schema.get("maxItems")
    items = item_schema(slot.schema, slot.root)
    if "enum" in items or items.get("type") == "boolean":
        values = next((value for _, value in slot.taught if isinstance(value, list)), None)
        values = values if values is not None else [_value(view, slot.child(slot.name, items))]
    elif slot.unit is not None:
        values = _inner(view, slot, items)
    elif _asks_id(slot.name) and items.get("type") == "string":
        values = _relevant_ids(view, slot.name)
    else:
        values = _mapped(view, slot, items)
    if slot.schema.get("uniqueItems"):
        values = list({repr(value): value for value in values}.values())
    if least > len(values):
        filler = _value(view, replace(slot.child(slot.name, items), unit=slot.unit or _best(view)[0]))
        values += [filler] * (least - len(values))
    return values[:most]


def _mapped(view: View, slot: Slot, items: Schema) -> list[Any]:
    grouped = _grouped(view, slot, items)
    if grouped is not None:
        return grouped
    lessons = learn(view, slot.name) if slot.depth == 0 else []
    values = []
    for unit in source_units(view.source(), view.query):
        near = nearest(view, unit, lessons)
        if dropped(near, len(lessons)):
            continue
        taught = tuple((lesson, lesson.item) for lesson in near if lesson.item is not None)
        values.append(_value(view, Slot(slot.name, items, slot.root, unit, taught, slot.depth + 1)))
    return values


def _grouped(view: View, slot: Slot, items: Schema) -> list[Any] | None:
    """One item per group of alike units, for items that shall cite several: of the list that their `x_ids` points at.

    Where no units are alike, one per unit. None where the items cite no list.
    """
    named = [name for name, part in items.get("properties", {}).items() if _cites(part, slot.root)]
    cited = next((source for name in named if name.endswith("_ids") and (source := view.reference(name))), None)
    if cited is None or slot.depth > 0:
        return None
    alike = [Unit(group.text, cites=tuple(unit.id for unit in group.units if unit.id)) for group in groups(cited.units)]
    values = []
    for unit in alike or cited.units:
        values.append(_value(view, Slot(slot.name, items, slot.root, unit, (), slot.depth + 1)))
    return values


def _cites(part: Schema, root: Schema) -> bool:
    return expand(part, root).get("type") == "array"


def _inner(view: View, slot: Slot, items: Schema) -> list[Any]:
    """A list inside a mapped record: the unit's id where ids are asked for, else one item, or none where it may be."""
    if _asks_id(slot.name):
        if slot.unit and slot.unit.cites:
            return list(slot.unit.cites)
        found = _text(view, replace(slot, schema=items))
        return [] if found is None else [found]
    if slot.optional or slot.depth >= _DEEP:
        return []
    return [_value(view, slot.child(slot.name, items))]


def _text(view: View, slot: Slot) -> str | None:
    """A text leaf; None where it should be an id, a speaker or a date and the unit has none."""
    form = slot.schema.get("format")
    if form in ("date", "date-time", "time"):
        return _day(view, slot.unit, form)
    if form == "uuid":
        return "00000000-0000-0000-0000-000000000000"
    reference = view.reference(slot.name)
    if reference is not None:
        return _referred(view, slot, reference)
    if slot.unit is None:
        unit, sentence = _best(view)
        return unit.id if _asks_id(slot.name) else sentence
    parts = _parts(slot.unit)
    for lesson, value in slot.taught:
        part = next((part for part, text in _parts(lesson.unit).items() if text and text == value), None)
        if part:
            return parts[part]
    constants = {value for _, value in slot.taught if isinstance(value, str)}
    if len(slot.taught) > 1 and len(constants) == 1:
        return constants.pop()
    copied = (slot.unit.item or {}).get(slot.name)
    if isinstance(copied, str) and copied:
        return copied
    role = slot.name.rpartition("_")[2]
    if role in ("id", "ids", "speaker", "time", "date"):
        return parts[{"ids": "id", "date": "time"}.get(role, role)]
    return view.choose([(1.0, parts["said"] if slot.depth == 1 else slot.unit.body), *_shorter(slot.unit)])


def _parts(unit: Unit) -> dict[str, str | None]:
    return {"id": unit.id, "speaker": unit.speaker, "time": unit.when or None, "text": unit.body, "said": unit.said}


def _shorter(unit: Unit) -> list[tuple[float, str]]:
    return [(0.5, sentence) for sentence, _ in unit.sentences if len(unit.sentences) > 1]


def _referred(view: View, slot: Slot, reference: Source) -> str | None:
    if slot.unit is None:
        return next(iter(_relevant_ids(view, slot.name)), None)
    if slot.taught and slot.taught[0][1] is None:
        return None
    score, twin = closest(view, slot.unit, reference)
    return twin.id if twin and score > (0.3 if slot.taught else 0.5) else None


def _relevant_ids(view: View, name: str) -> list[str]:
    reference = view.reference(name)
    wanted = view.query_stems or tuple(word for unit in view.material for word in unit.stems)
    units = [unit for unit in (reference.units if reference else view.material) if unit.id]
    scored = sorted(((view.weights.overlap(wanted, unit.stems), -n) for n, unit in enumerate(units)), reverse=True)
    return [units[-n].id or "" for score, n in scored[:5] if score > 0]


def _asks_id(name: str) -> bool:
    return name.rpartition("_")[2] in ("id", "ids")


def _best(view: View) -> tuple[Unit, str]:
    return best_sentence(view) if view.material else (Unit(body=""), "")


def _day(view: View, unit: Unit | None, form: str) -> str:
    if form == "time":
        return "00:00:00"
    day = unit.date if unit else None
    if unit is None and view.material and (moment := when(view)[0]):
        day = moment.day
    text = day.isoformat() if day else "1970-01-01"
    clock = re.search(r"\b\d\d:\d\d(?::\d\d)?\b", unit.when) if unit else None
    return text if form == "date" else f"{text}T{clock[0] if clock else '00:00:00'}"


def _cut(text: str, schema: Schema) -> str:
    text = text[: schema.get("maxLength")]
    return text + "." * max(schema.get("minLength", 0) - len(text), 0)
