"""OmniBehavior's gold labels, field by field, and what is asked of which scene."""

from typing import Any

import pytest
from mempiler.data.omnibehavior.records import OPEN, QUESTIONS, gold


def open_field(field: str, value: Any) -> dict[str, Any]:
    return {"field": field, "type": "text" if isinstance(value, str) else "continuous", "true_value": value}


@pytest.mark.vectors("omnibehavior_labels", "v*", "l-*", "a-*", "s-*", "q-*", "c-*", "no-type", "en-*", "movie-rating")
def test_every_field_has_the_released_label(case, agrees):
    values = gold(case["input"]["record"])
    yes_or_no = {field: int(value) for field, value in values.items() if field in QUESTIONS}
    others = [open_field(field, value) for field, value in values.items() if field in OPEN]
    ours = {"binary": yes_or_no, "other": others}
    wanted = {"field": None, "label": None, **case["expected"]}
    field = wanted["field"]
    agrees({**ours, "field": field, "label": yes_or_no.get(field)}, wanted)


@pytest.mark.vectors("omnibehavior_labels", "scene-*")
def test_every_scene_asks_the_released_fields_in_their_order(case, agrees):
    asked = list(gold(case["input"]["record"]))
    agrees({"binary_fields": [f for f in asked if f in QUESTIONS], "other_fields": [f for f in asked if f in OPEN]})
