"""Reading values: form is mended and counted, content is not made up, and bad elements cost nothing but themselves."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import pytest
from mempiler.reading.ids import Shown, ShownIds
from mempiler.reading.kinds import UnreadableError
from mempiler.reading.values import ValueReader
from pydantic import BaseModel

IDS = ["D1:1", "D1:2", "D2:1", "m7"]
SHOWN = {"dialogue": "".join(f"[{id}] Ann: words\n" for id in IDS)}


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Thing(BaseModel):
    id: Annotated[str, Shown("dialogue", new=True)] = ""
    name: str
    kind: Literal["animal", "place"]
    count: int = 1
    tags: list[str] = []


class Edit(BaseModel):
    target: Annotated[str | None, Shown("dialogue")] = None


DOG = {"name": "Rex", "kind": "animal"}
REX = Thing(name="Rex", kind="animal")
OSLO = Thing(name="Oslo", kind="place")


def read(raw: Any, annotation: Any) -> tuple[Any, list[str]]:
    reader = ValueReader(SHOWN)
    value = reader.read(raw, annotation, "x")
    return value, [repair.kind for repair in reader.repairs]


@pytest.mark.parametrize(
    ("raw", "annotation", "value", "kinds"),
    [
        ([DOG], list[Thing], [REX], []),
        ('[{"name": "Rex", "kind": "animal"}]', list[Thing], [REX], []),
        (DOG, list[Thing], [REX], ["shape"]),
        ({"items": [DOG]}, list[Thing], [REX], ["shape"]),
        ({"Rex": {"name": "Rex", "kind": "animal"}}, list[Thing], [Thing(id="Rex", name="Rex", kind="animal")], None),
        ('{"name": "Rex", "kind": "animal"}\n{"name": "Oslo", "kind": "place"}', list[Thing], [REX, OSLO], None),
        ("[{'name': 'Rex', 'kind': 'animal'},]", list[Thing], [REX], None),
        ("[{“name”: “Rex”, “kind”: “animal”}]", list[Thing], [REX], None),
        ('[{"name": "Rex", "kind": "animal"}', list[Thing], [REX], ["layout", "cut"]),
        ('Found:\n[{"name": "Rex", "kind": "animal"}]\nThat is all.', list[Thing], [REX], None),
        (
            '```\n[{"name": "Oslo", "kind": "place"}]\n```\nNo:\n```\n[{"name": "Rex", "kind": "animal"}]\n```',
            list[Thing],
            [REX],
            None,
        ),
        ([DOG, None], list[Thing], [REX], ["element"]),
        ([DOG, "and so on"], list[Thing], [REX], ["element"]),
        ([DOG, {**DOG, "kind": "mineral"}], list[Thing], [REX], ["element"]),
        ([{**DOG, "kind": "ANIMALS."}], list[Thing], [REX], ["spelling"]),
        ([{**DOG, "count": None}], list[Thing], [REX], ["null"]),
        ({"target": None}, Edit, Edit(), []),
        ([{**DOG, "count": "many"}], list[Thing], [REX], ["field"]),
        ([{**DOG, "name": 7}], list[Thing], [Thing(name="7", kind="animal")], ["cast"]),
        ([{**DOG, "count": "3"}], list[Thing], [Thing(name="Rex", kind="animal", count=3)], []),
        ("yes", bool, True, ["cast"]),
        ("No.", bool, False, ["cast"]),
        ("LARGE", Size, Size.LARGE, ["spelling"]),
        ("No: the dates differ.", Literal["yes", "no"], "no", ["spelling"]),
        ("none", int | None, None, []),
        ("80%", int, 80, ["cast"]),
        ([], list[Thing], [], []),
    ],
)
def test_form_is_mended_and_counted(raw: Any, annotation: Any, value: Any, kinds: list[str] | None) -> None:
    found, mended = read(raw, annotation)
    assert found == value
    assert mended == kinds if kinds is not None else mended


@pytest.mark.parametrize(
    ("raw", "annotation"),
    [
        (None, list[Thing]),
        ("", list[Thing]),
        ([None], list[Thing]),
        ([{"name": "Rex"}], list[Thing]),
        ([{"kind": "animal"}], list[Thing]),
        ("I cannot help with that.", list[Thing]),
        ('[{"name": "Rex", "kind": "animal"}, {"name": "Os', list[Thing]),
        ('["a walk", "a sw', list[str]),
        ("maybe", bool),
        ("3.5", int),
        ("yes and no", Literal["yes", "no"]),
        ("CORRECT? No, wait. WRONG.", Literal["CORRECT", "WRONG"]),
        ("", Literal["yes", "no"]),
        ("enormous", Size),
        (None, str),
        ({"a": 1, "b": 2}, str),
    ],
)
def test_what_is_not_there_is_not_made_up(raw: Any, annotation: Any) -> None:
    with pytest.raises(UnreadableError):
        read(raw, annotation)


@pytest.mark.parametrize(
    ("said", "id"),
    [
        ("D1:2", "D1:2"),
        ('"D1:2".', "D1:2"),
        ("turn D1:2", "D1:2"),
        ("7", "m7"),
        (7, "m7"),
        (2, "D1:2"),
        ("1:2", "D1:2"),
        (1, None),
        ("D1:1 or D1:2", None),
        ("D9:9", None),
        ("", None),
    ],
)
def test_an_id_is_matched_where_exactly_one_can_be_meant(said: Any, id: str | None) -> None:
    assert ShownIds(IDS).match(said) == id


def test_unknown_ids_are_dropped_from_lists_and_counted() -> None:
    ids = list[Annotated[str, Shown("dialogue")]]
    assert read(["D1:1", "D9:9"], ids) == (["D1:1"], ["unknown id"])
    assert read("[D1:1], [D2:1]", ids)[0] == ["D1:1", "D2:1"]
    assert read(["NEW_1"], list[Annotated[str, Shown("dialogue", new=True)]]) == (["NEW_1"], [])
