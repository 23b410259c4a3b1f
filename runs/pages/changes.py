"""What a compile changed in a program, predictor by predictor: instructions, fields, settings, demos."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from ...programs.program import MemoryProgram
from ...programs.state import PredictorState, dump_predictor

LONGEST_VALUE, LONGEST_DEMO = 400, 1_200
"""Characters; longer ones are cut."""


class Change(BaseModel, frozen=True):
    """What a compile changed in one predictor."""

    predictor: str
    instructions: tuple[str, ...]
    """The lines of a unified diff; those of the instructions where nothing changed in them."""
    settings: tuple[tuple[str, str, str], ...] = ()
    """Fields and settings: name, before, after."""
    added: tuple[str, ...] = ()
    """Demos."""
    removed: tuple[str, ...] = ()
    kept: int = 0
    changed: bool = True


def states(program: MemoryProgram) -> dict[str, PredictorState]:
    """What an optimizer can change in a program, by predictor."""
    return {name: dump_predictor(predictor) for name, predictor in program.all_predictors().items()}


def program_changes(before: Mapping[str, PredictorState], after: Mapping[str, PredictorState]) -> tuple[Change, ...]:
    """Each predictor's prompt, and what was changed in it."""
    return tuple(_change(name, before.get(name, state), state) for name, state in after.items())


def _change(name: str, a: PredictorState, b: PredictorState) -> Change:
    lines = [*difflib.unified_diff(a.instructions.splitlines(), b.instructions.splitlines(), lineterm="")]
    first, second = _settings(a), _settings(b)
    settings = [key for key in {**first, **second} if first.get(key) != second.get(key)]
    before, after = ([json.dumps(demo, sort_keys=True) for demo in state.demos] for state in (a, b))
    kept = Counter(before) & Counter(after)
    return Change(
        predictor=name,
        # Without the names of the sides.
        instructions=tuple(lines[2:] or [f" {line}" for line in b.instructions.splitlines()]),
        settings=tuple((key, _text(first.get(key)), _text(second.get(key))) for key in settings),
        added=tuple(_demo(b, demo) for demo in (Counter(after) - kept).elements()),
        removed=tuple(_demo(a, demo) for demo in (Counter(before) - kept).elements()),
        kept=kept.total(),
        changed=bool(lines or settings or before != after),
    )


def _settings(state: PredictorState) -> dict[str, Any]:
    fields = {each.name: each.model_dump(include={"desc", "prefix", "type", "kind", "shape"}) for each in state.fields}
    own = {"config": state.config, "decisions": state.decisions, "nearest": state.nearest}
    return dict(_flat({**fields, **own}))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _demo(state: PredictorState, demo: str) -> str:
    values, sides = json.loads(demo), []
    for kind in ("in", "out"):
        names = [field.name for field in state.fields if field.kind == kind and field.name in values]
        sides.append(", ".join(f"{name}={_value(values[name])}" for name in names))
    return _cut(" -> ".join(sides), LONGEST_DEMO)


def _value(value: Any) -> str:
    return _text(_cut(value, LONGEST_VALUE)) if isinstance(value, str) else _cut(_text(value), LONGEST_VALUE)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
