"""Every output type is filled with a valid value."""

from __future__ import annotations

import enum
from datetime import date, datetime
from typing import Any, Literal, Optional

import dspy
import pydantic
import pytest

from tests.engines.offline_prediction import chat, make_signature
from tests.engines.offline_prediction import predict as predicted

LINES = (
    "[D1:1] (8 May 2023, Monday 13:56) Ann: I paid 12 dollars for 3 bowls yesterday.\n"
    "[D1:2] (8 May 2023, Monday 13:56) Bob: That is 4.5 dollars each, isn't it? I moved to Rome."
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(pydantic.BaseModel):
    name: str
    weight: float = pydantic.Field(ge=0, le=1)
    tags: list[str] = []


class Whole(pydantic.BaseModel):
    kind: Literal["small", "large"]
    count: int = pydantic.Field(ge=1, le=5)
    parts: list[Part]
    first: Part
    note: Optional[str] = None  # noqa: UP045 - both spellings of an optional type must be read
    made: date | None = None


class Tree(pydantic.BaseModel):
    label: str
    children: list[Tree] = []


ANY: Any = Ellipsis
KINDS: list[tuple[Any, Any]] = [
    # What comes from the text, or is the first option.
    *((int, 12), (bool, True), (Literal["b", "a"], "b"), (date, date(2023, 5, 7)), (Colour, Colour.RED)),
    (dict[str, str], {}),
    *((kind, ANY) for kind in (str, float, datetime, str | None, int | str, Optional[int])),  # noqa: UP045
    *((kind, ANY) for kind in (Literal["yes; or no", "b"], Literal[1, 2, 3], dict[str, Any], list[str], set[str])),
    *((kind, ANY) for kind in (Whole, Tree, Part | None, list[Whole], list[Part], list[Literal["x", "y"]])),
    *((kind, ANY) for kind in (tuple[int, str], list[list[str]])),
]


@pytest.mark.parametrize("adapter", [chat, dspy.JSONAdapter], ids=["chat", "json"])
@pytest.mark.parametrize(("kind", "value"), KINDS, ids=str)
def test_a_type_is_filled(kind: Any, value: Any, adapter: Any) -> None:
    inputs = {"context": (str, dspy.InputField()), "question": (str, dspy.InputField())}
    signature = make_signature({**inputs, "value": (kind, dspy.OutputField())}, "Fill the fields.")
    question = "How much did Ann pay for the bowls?"
    found = predicted(signature, adapter=adapter(), context=LINES, question=question).value
    pydantic.TypeAdapter(kind).validate_python(found, strict=not isinstance(found, (list, tuple, set)))
    assert value is ANY or found == value
