"""What differs between two programs, predictor by predictor: instructions, fields, settings, demos."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..programs.state import FieldState, PredictorState

NARROW = (60, 200)
"""Longest value, and longest demo, of a terminal."""


def predictor_changes(a: PredictorState, b: PredictorState, widths: tuple[int, int] = NARROW) -> dict[str, Any]:
    """What differs between two states of one predictor, as plain JSON.

    Args:
        a: The first.
        b: The second.
        widths: Longest value, and longest demo; longer ones are cut.
    """
    before, after = a.instructions.splitlines(), b.instructions.splitlines()
    first, second = ({field.name: _words(field) for field in state.fields} for state in (a, b))
    fields = {
        f"{name}.{key}": change
        for name in first
        if name in second
        for key, change in changes(first[name], second[name]).items()
    }
    return {
        "instructions": list(difflib.unified_diff(before, after, "a", "b", lineterm="")),
        "fields": fields,
        "fields_only_a": [name for name in first if name not in second],
        "fields_only_b": [name for name in second if name not in first],
        "settings": changes(_settings(a), _settings(b)),
        "demos": _demos(a, b, widths),
    }


def _demos(a: PredictorState, b: PredictorState, widths: tuple[int, int]) -> dict[str, Any]:
    before, after = ([json.dumps(demo, sort_keys=True) for demo in state.demos] for state in (a, b))
    kept = Counter(before) & Counter(after)
    return {
        "kept": kept.total(),
        "removed": [_demo(a, demo, widths) for demo in (Counter(before) - kept).elements()],
        "added": [_demo(b, demo, widths) for demo in (Counter(after) - kept).elements()],
        "reordered": [demo for demo in before if demo in kept] != [demo for demo in after if demo in kept],
    }


def _demo(state: PredictorState, demo: str, widths: tuple[int, int]) -> str:
    """A demo on one line: its inputs and outputs, long values cut."""
    values = json.loads(demo)
    sides = []
    for kind in ("in", "out"):
        names = [field.name for field in state.fields if field.kind == kind and field.name in values]
        sides.append(", ".join(f"{name}={_value(values[name], widths[0])}" for name in names))
    return _cut(" -> ".join(sides), widths[1])


def _words(field: FieldState) -> dict[str, Any]:
    return {"desc": field.desc, "prefix": field.prefix, "type": field.type, "kind": field.kind, "shape": field.shape}


def _settings(state: PredictorState) -> dict[str, Any]:
    return dict(flat({"config": state.config, "decisions": state.decisions, "nearest": state.nearest}))


def changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Names whose values differ, each with both."""
    names = [name for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)]
    return {name: {"a": a.get(name), "b": b.get(name)} for name in names}


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted name."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def differs(found: Mapping[str, Any]) -> bool:
    """Whether `predictor_changes` found anything."""
    demos = found["demos"]
    rest = [value for name, value in found.items() if name != "demos"]
    return any(rest) or any(demos[name] for name in ("removed", "added", "reordered"))


def as_text(value: Any) -> str:
    """A value on one line."""
    return json.dumps(value, ensure_ascii=False)


def _value(value: Any, most: int) -> str:
    return as_text(_cut(value, most)) if isinstance(value, str) else _cut(as_text(value), most)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
