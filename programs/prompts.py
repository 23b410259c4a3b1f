"""The prompts of a program as text for people: instructions, fields and demos of every predictor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .state import AUGMENTED, PredictorState


def prompts_text(states: Mapping[str, PredictorState]) -> str:
    """What every predictor is asked with, whole.

    Args:
        states: By the predictor's name, as `manifest.read_states` gives those of a saved program.
    """
    return "\n\n".join("\n".join(_predictor(name, state)) for name, state in states.items()) + "\n"


def _predictor(name: str, state: PredictorState) -> Iterator[str]:
    yield f"{name}\n{'=' * len(name)}\n\n{state.instructions}"
    for kind, title in (("in", "Inputs"), ("out", "Outputs")):
        yield f"\n{title}\n"
        for field in state.fields:
            if field.kind == kind:
                yield f"  {field.name} ({field.type})" + (f": {field.desc}" if field.desc else "")
    settings = {**state.config, **state.decisions, **({"nearest": state.nearest} if state.nearest is not None else {})}
    if settings:
        yield f"\nSettings: {', '.join(f'{key} = {_value(value)}' for key, value in settings.items())}"
    for number, demo in enumerate(state.demos, 1):
        made = "made by the program" if demo.get(AUGMENTED) else "labelled"
        title = f"Demo {number} of {len(state.demos)}, {made}"
        yield f"\n{title}\n{'-' * len(title)}"
        yield from (f"{field.name}: {_value(demo[field.name])}" for field in state.fields if field.name in demo)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
