"""Write the values of outputs in the form in which the adapter reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ...reading.layouts import Layout

HEADER = re.compile(r"^\[\[ ## (\w+) ## \]\]", re.MULTILINE)
"""The header that DSPy's chat adapter writes above a field: `[[ ## answer ## ]]`."""


def render_answer(values: Mapping[str, Any], layout: Layout) -> str:
    """Return an answer that holds the values of all outputs.

    Args:
        values: JSON values by output.
        layout: The form that the adapter asked for.
    """
    if layout == "json":
        return json.dumps(values, ensure_ascii=False, indent=2)

    sections: list[str] = []
    for name, value in values.items():
        # A header inside a value would end it, so it becomes "name:".
        text = HEADER.sub(r"\1:", to_text(value))
        sections.append(f"[[ ## {name} ## ]]\n{text}")
    sections.append("[[ ## completed ## ]]\n")
    return "\n\n".join(sections)


def to_text(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value)
