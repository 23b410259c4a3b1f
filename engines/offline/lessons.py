"""What demos teach about lists: how they turned each unit of their source into an item, or left it out.

A lesson pairs a unit of a demo's source with the item that shares most words with it. A new unit is treated as the
lesson nearest to it was, where "near" also means: as close to something in the referenced list as that unit was to
something in its own. A unit is dropped only on strong evidence: at least ten lessons, of which the three nearest all
had no item.

Example:
    >>> nearest(view, unit, learn(view, "operations"))[0].item
    {'op': 'UPDATE', 'memory_id': 'm7', 'content': 'Ann moved to Rome'}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .schema import expand
from .text import Stems, stems
from .units import Source, Unit, read_source
from .view import View

_ENOUGH = 10
_SKIMMED = 40
"""Units of all demos together that are looked at; of longer demos, evenly spread ones."""


@dataclass(frozen=True)
class Lesson:
    """One unit of a demo's source."""

    unit: Unit
    item: Any = None
    """The item made from it; None if it was left out."""
    closeness: float = 0.0
    """Highest cosine with a unit of the referenced list."""
    twin: Unit | None = None
    """That unit of the referenced list."""


def source_units(source: Source | None, query: str) -> list[Unit]:
    """The units a list output is mapped over; plain text is cut into its sentences."""
    if source is None:
        return [Unit(body=query)] if query else []
    if source.is_list:
        return list(source.units)
    return [replace(unit, body=sentence) for unit in source.units for sentence, _ in unit.sentences]


def closest(view: View, unit: Unit, reference: Source | None) -> tuple[float, Unit | None]:
    """The unit of a referenced list that is most like `unit`, and how like it is (cosine)."""
    scored = [(view.weights.cosine(unit.stems, other.stems), other) for other in (reference.units if reference else ())]
    return max(scored, key=lambda pair: pair[0]) if scored else (0.0, None)


def learn(view: View, name: str) -> list[Lesson]:
    """The lessons that the demos hold for the list output `name`."""
    source = view.source()
    lessons: list[Lesson] = []
    teachers = view.teachers(name)
    most = max(_SKIMMED // max(len(teachers), 1), _ENOUGH)
    for demo, items in teachers:
        if source is None or not isinstance(items, list) or source.name not in demo.inputs:
            continue
        units = source_units(read_source(source.name, demo.inputs[source.name]), "")
        units = units[:: max(-(-len(units) // most), 1)]
        made = _assign(view, units, items)
        target = next((read_source(n, demo.inputs[n]) for n in view.references if n in demo.inputs), None)
        lessons += [Lesson(unit, made.get(n), *closest(view, unit, target)) for n, unit in enumerate(units)]
    return lessons


def nearest(view: View, unit: Unit, lessons: Sequence[Lesson]) -> list[Lesson]:
    """The three lessons nearest to a unit."""
    target = next((view.sources[name] for name in view.references if name in view.sources), None)
    mine = closest(view, unit, target)[0]
    ranked = sorted(
        lessons, key=lambda lesson: -_nearness(view.weights.cosine(unit.stems, lesson.unit.stems), mine, lesson)
    )
    return ranked[:3]


def dropped(near: Sequence[Lesson], total: int) -> bool:
    """Whether the evidence to leave a unit out is strong."""
    return total >= _ENOUGH and len(near) == 3 and all(lesson.item is None for lesson in near)


def item_schema(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """The schema of the items of an array."""
    return expand(schema.get("items", {}), root)


def _nearness(alike: float, mine: float, lesson: Lesson) -> float:
    return alike + 1.0 - abs(mine - lesson.closeness)


def _assign(view: View, units: Sequence[Unit], items: Sequence[Any]) -> dict[int, Any]:
    made: dict[int, Any] = {}
    for item in items:
        found = _stems_of(item)
        scored = [(view.weights.cosine(found, unit.stems), -n) for n, unit in enumerate(units) if n not in made]
        score, place = max(scored, default=(0.0, 0))
        if score > 0.2:
            made[-place] = item
    return made


def _stems_of(value: Any) -> Stems:
    if isinstance(value, dict):
        return tuple(word for part in value.values() for word in _stems_of(part))
    return stems(value) if isinstance(value, str) else ()
