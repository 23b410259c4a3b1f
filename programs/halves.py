"""A prompt that is longer than the model's window is asked in two halves, where its longest list can be cut.

    update(existing_facts=[f1 ... f900], dialogue=...)      too long
    update(existing_facts=[f1 ... f450], dialogue=...)  +  update(existing_facts=[f451 ... f900], dialogue=...)

Only where the answers can be put together: every output that must be there is a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_origin

import dspy


def is_context(name: str) -> bool:
    """Whether an input is shown to understand the others by, and nothing is to be done about it: by its name."""
    return name.startswith("earlier")


def halves(predictor: Any, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """The inputs with their longest list cut in two; [] where nothing can be cut, or answers not be put together."""
    lists = {name: cast("list[Any]", value) for name, value in inputs.items() if isinstance(value, list)}
    # What is context alone belongs to both halves: cut, it would have the same work done twice.
    lists = {name: value for name, value in lists.items() if len(value) > 1 and not is_context(name)}
    if not isinstance(predictor, dspy.Predict) or not lists:
        return []
    signature: Any = predictor.signature
    needed = [field for field in signature.output_fields.values() if field.is_required()]
    if not needed or any(get_origin(field.annotation) is not list for field in needed):
        return []
    name = max(lists, key=lambda each: len(str(lists[each])))
    value, middle = lists[name], (len(lists[name]) + 1) // 2
    return [{**inputs, name: part} for part in (value[:middle], value[middle:])]


def together(found: Sequence[dspy.Prediction]) -> dspy.Prediction:
    """The answers to the halves as one: lists one after the other, texts likewise."""
    fields: dict[str, Any] = {}
    for prediction in found:
        for name in prediction.keys():  # noqa: SIM118
            value = prediction[name]
            if isinstance(value, list):
                fields[name] = [*fields.get(name, []), *cast("list[Any]", value)]
            else:
                fields[name] = "\n".join(part for part in (str(fields.get(name) or ""), str(value or "")) if part)
    return dspy.Prediction(**fields)
