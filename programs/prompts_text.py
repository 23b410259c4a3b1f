"""The prompts of a program as text that people read, e.g. `mempiler show --prompts`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .field_values import AUGMENTED
from .state import PredictorState


def prompts_text(states: Mapping[str, PredictorState]) -> str:
    """Return the prompts of a program as one text that people can read.

    Args:
        states: What is saved of each predictor, by its name (`manifest.read_states`).
    """
    sections = [_predictor_text(name, state) for name, state in states.items()]
    return "\n\n".join(sections) + "\n"


def _predictor_text(name: str, state: PredictorState) -> str:
    """Return the name, instructions, fields, settings and demos of one predictor as text."""
    lines = [name, "=" * len(name), "", state.instructions, ""]
    for field in state.fields:
        lines.append(f"{field.kind} {field.name} ({field.type}): {field.desc}")

    settings = _settings_text(state)
    if settings:
        lines.extend(["", f"Settings: {settings}"])

    for number, demo in enumerate(state.demos, 1):
        title = f"Demo {number} of {len(state.demos)}"
        # Other demos are labelled examples of the training set.
        if demo.get(AUGMENTED):
            title += ", made by the program"
        lines.extend(["", title, "-" * len(title)])
        lines.extend(_demo_lines(state, demo))
    return "\n".join(lines)


def _settings_text(state: PredictorState) -> str:
    """Return the settings of a predictor as text, e.g. "temperature = 0.7, nearest = 4".

    Settings without a value are left out.
    """
    settings = {**state.config, **state.decisions, "nearest": state.nearest}
    parts: list[str] = []
    for name, value in settings.items():
        if value is not None:
            parts.append(f"{name} = {_as_text(value)}")
    return ", ".join(parts)


def _demo_lines(state: PredictorState, demo: Mapping[str, Any]) -> list[str]:
    """Return a demo as lines of the form "name: value", in the order of the predictor's fields."""
    lines: list[str] = []
    for field in state.fields:
        if field.name in demo:
            lines.append(f"{field.name}: {_as_text(demo[field.name])}")
    return lines


def _as_text(value: Any) -> str:
    """Return a text as it is, and anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
