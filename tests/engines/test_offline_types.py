"""Every output type is filled with a valid value, also in signatures made at random."""

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


ADAPTERS = {"chat": chat, "json": dspy.JSONAdapter}
FLAT = [
    str,
    bool,
    int,
    float,
    Literal["yes; or no", "b"],
    Literal[1, 2, 3],
    Colour,
    date,
    datetime,
    Optional[int],  # noqa: UP045
    str | None,
    int | str,
    list[str],
    set[str],
    dict[str, str],
    dict[str, Any],
]
NESTED = [Whole, Tree, Part | None, list[Whole], list[Part], list[Literal["x", "y"]], tuple[int, str], list[list[str]]]


def predict(outputs: dict[str, Any], adapter: str, demos: list[dict[str, Any]] | None = None) -> dspy.Prediction:
    fields: dict[str, Any] = {name: (kind, dspy.OutputField()) for name, kind in outputs.items()}
    inputs = {"context": (str, dspy.InputField()), "question": (str, dspy.InputField())}
    signature = make_signature({**inputs, **fields}, "Fill the fields.")
    question = "How much did Ann pay for the bowls?"
    return predicted(signature, demos or [], ADAPTERS[adapter](), context=LINES, question=question)


def assert_valid(value: Any, kind: Any) -> None:
    pydantic.TypeAdapter(kind).validate_python(value, strict=not isinstance(value, (list, tuple, set)))


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("kind", [*FLAT, *NESTED], ids=str)
def test_a_type_is_filled(kind: Any, adapter: str) -> None:
    assert_valid(predict({"value": kind}, adapter).value, kind)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 12),
        (bool, True),
        (Literal["b", "a"], "b"),
        (date, date(2023, 5, 7)),
        (Colour, Colour.RED),
        (dict[str, str], {}),
    ],
    ids=str,
)
def test_without_demos_values_come_from_the_text_or_are_the_first_option(kind: Any, value: Any) -> None:
    assert predict({"value": kind}, "chat").value == value
