"""Deltas: the next version's document from the one before, by no more than what changed."""

import json
from itertools import pairwise
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import Memory, build
from mempiler.data.catalog import benchmark
from mempiler.engines.models import language_model
from mempiler.memory.deltas import applied, delta, shared
from mempiler.programs.fold import close, take
from mempiler.programs.names import METHODS
from mempiler.records import Record
from pydantic import BaseModel, ConfigDict


class Leaf(Record):
    text: str
    number: float = 0.5


class Tree(BaseModel):
    model_config = ConfigDict(frozen=True)

    leaf: Leaf = Leaf(text="")
    leaves: tuple[Leaf, ...] = ()
    named: dict[str, Leaf] = {}
    words: tuple[str, ...] = ()
    by_number: dict[int, str] = {}
    note: str | None = None


class Plain(BaseModel):
    value: Any


LEAVES = [Leaf(text=text) for text in ("a", "b", "c", "d", "e")]
TREES = st.builds(
    Tree,
    leaf=st.sampled_from(LEAVES),
    leaves=st.lists(st.sampled_from(LEAVES), max_size=6).map(tuple),
    named=st.dictionaries(st.sampled_from("xyz"), st.sampled_from(LEAVES)),
    words=st.lists(st.sampled_from(["one", "two", "three"]), max_size=4).map(tuple),
    by_number=st.dictionaries(st.integers(0, 3), st.sampled_from(["one", "two"])),
    note=st.none() | st.text(max_size=3),
)


def after_patch(before: BaseModel, after: BaseModel) -> dict[str, Any]:
    document = json.loads(before.model_dump_json())
    return applied(document, json.loads(json.dumps(delta(before, after))))


@given(before=TREES, after=TREES)
def test_a_patched_document_is_that_of_the_next_version_in_its_order(before: Tree, after: Tree) -> None:
    """And a patched version is the next one, and shares what stayed."""
    held = before.model_dump_json()
    assert json.dumps(after_patch(before, after)) == json.dumps(json.loads(after.model_dump_json()))
    made = applied(before, json.loads(json.dumps(delta(before, after))))
    assert (made.model_dump_json(), before.model_dump_json()) == (after.model_dump_json(), held)
    stayed = min(shared(before.leaves, after.leaves), shared(made.leaves, before.leaves))
    assert stayed == shared(before.leaves, after.leaves)


@pytest.mark.parametrize(("before", "after"), [(1, True), (1.0, 1), (False, 0)])
def test_an_equal_value_of_another_type_is_a_change(before: Any, after: Any) -> None:
    found = after_patch(Plain(value=before), Plain(value=after))
    assert json.dumps(found) == json.dumps({"value": after})


@pytest.mark.parametrize(
    ("before", "after", "items"),
    [
        ("abc", "abcd", [[3, 0, ["d"]]]),
        ("abc", "adc", [[1, 1, ["d"]]]),
        ("abc", "bcd", [[0, 1, []], [3, 0, ["d"]]]),
        ("abcd", "aecde", None),
        ("ab", "ba", [[0, 2, ["b", "a"]]]),
        ("abc", "", [[0, 3, []]]),
    ],
)
def test_a_sequence_changes_where_items_went_and_came(before: str, after: str, items: Any) -> None:
    known = {leaf.text: leaf for leaf in LEAVES}
    first, second = (Tree(leaves=tuple(map(known.__getitem__, text))) for text in (before, after))
    found = delta(first, second)["leaves"]["items"]
    if items is not None:
        assert [[place, gone, [leaf["text"] for leaf in came]] for place, gone, came in found] == items
    assert after_patch(first, second) == json.loads(second.model_dump_json())


@pytest.mark.parametrize(
    "change", [{"leaves": {"sorted": []}}, {"named": {"keys": {"gone": ["q"], "put": {}, "in": {}}}}]
)
def test_what_is_no_change_of_the_document_is_refused(change: Any) -> None:
    with pytest.raises((KeyError, ValueError)):
        applied(Tree().model_dump(mode="json"), change)
    with pytest.raises((KeyError, ValueError)):
        applied(Tree(), change)


CASES = [
    *((name, "locomo") for name in METHODS if name not in ("pramem", "h2memory")),
    ("pramem", "movielens"),
    ("h2memory", "palbench.restate"),
    ("logs+session-rag", "palbench.select"),
]


@pytest.mark.parametrize(("method", "questions"), CASES)
def test_the_versions_of_every_method_are_told_by_their_deltas(method: str, questions: str) -> None:
    history = benchmark(questions).load().examples[0].history
    writer = build(method, **({"rounds": 2} if method == "pramem" else {})).method.writer
    versions: list[Memory] = [writer.Memory()]
    with dspy.context(lm=language_model("offline")):
        for item in history.items[:3]:
            versions.append(take(writer, versions[-1], item, writer.prepare(item)))
        versions.append(close(writer, versions[-1]))
    changed = [delta(before, after) for before, after in pairwise(versions)]
    document, made = json.loads(versions[0].model_dump_json()), versions[0]
    for change, after in zip(changed, versions[1:], strict=True):
        document = applied(document, json.loads(json.dumps(change)))
        assert document == json.loads(after.model_dump_json())
        assert type(after).model_validate_json(json.dumps(document)) == after
        made = applied(made, json.loads(json.dumps(change)))
        assert made == after
