"""The prompts of a program as text for people: instructions, fields and demos of every predictor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .state import AUGMENTED, FieldState, PredictorState


def prompts_text(states: Mapping[str, PredictorState], markdown: bool = False) -> str:
    """What every predictor is asked with, whole.

    Args:
        states: By the predictor's name, as `manifest.read_states` gives those of a saved program.
        markdown: Headings, lists and fences of Markdown instead of plain lines.
    """
    return "\n\n".join("\n".join(_predictor(name, state, markdown)) for name, state in states.items()) + "\n"


def _predictor(name: str, state: PredictorState, markdown: bool) -> Iterator[str]:
    yield f"## {name}" if markdown else f"{name}\n{'=' * len(name)}"
    yield f"\n{_fenced(state.instructions) if markdown else state.instructions}"
    for kind, title in (("in", "Inputs"), ("out", "Outputs")):
        fields = [_field(field, markdown) for field in state.fields if field.kind == kind]
        yield "\n".join([f"\n{title}\n", *fields])
    settings = {**state.config, **state.decisions, **({"nearest": state.nearest} if state.nearest is not None else {})}
    if settings:
        yield f"\nSettings: {', '.join(f'{key} = {_value(value)}' for key, value in settings.items())}"
    for number, demo in enumerate(state.demos, 1):
        title = f"Demo {number} of {len(state.demos)}, " + (
            "made by the program" if demo.get(AUGMENTED) else "labelled"
        )
        values = [f"{field.name}: {_value(demo[field.name])}" for field in state.fields if field.name in demo]
        yield f"\n### {title}\n" if markdown else f"\n{title}\n{'-' * len(title)}"
        yield _fenced("\n".join(values)) if markdown else "\n".join(values)


def _field(field: FieldState, markdown: bool) -> str:
    name = f"- `{field.name}` ({field.type})" if markdown else f"  {field.name} ({field.type})"
    return f"{name}: {field.desc}" if field.desc else name


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fenced(text: str) -> str:
    """A fence longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
