"""Changes from one version of a memory to the next, as JSON (`memory.changes`).

A memory is frozen: to add a conversation makes a new version of it. A store does not write each
version as a whole, but only the changes: `diff` finds them, and `apply_changes` makes the next
version of the one before. It does so for records, and for documents: the JSON of a record as
dictionaries and lists.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import build
from mempiler.data.catalog import benchmark
from mempiler.engines.lm import language_model
from mempiler.memory.changes import apply_changes, common_prefix_length, diff
from mempiler.memory.memory import Memory
from mempiler.programs.names import METHODS
from mempiler.programs.writing import finalize_memory, write_item
from mempiler.records import Record
from pydantic import BaseModel, ConfigDict


class Leaf(Record):
    """A part of a `Tree`."""

    text: str
    number: float = 0.5


class Tree(BaseModel):
    """A record with a field of every kind that a memory may have."""

    model_config = ConfigDict(frozen=True)

    leaf: Leaf = Leaf(text="")
    leaves: tuple[Leaf, ...] = ()
    leaves_by_name: dict[str, Leaf] = {}
    words: tuple[str, ...] = ()
    words_by_number: dict[int, str] = {}
    note: str | None = None


class Box(BaseModel):
    """A record of one value, of any type."""

    value: Any


LEAVES_BY_LETTER = {letter: Leaf(text=letter) for letter in "abcde"}
LEAVES = list(LEAVES_BY_LETTER.values())

TREES = st.builds(
    Tree,
    leaf=st.sampled_from(LEAVES),
    leaves=st.lists(st.sampled_from(LEAVES), max_size=6).map(tuple),
    leaves_by_name=st.dictionaries(st.sampled_from("xyz"), st.sampled_from(LEAVES)),
    words=st.lists(st.sampled_from(["one", "two", "three"]), max_size=4).map(tuple),
    words_by_number=st.dictionaries(st.integers(0, 3), st.sampled_from(["one", "two"])),
    note=st.none() | st.text(max_size=3),
)


def tree_with_leaves(letters: str) -> Tree:
    """Return a tree with a leaf for every letter."""
    return Tree(leaves=tuple(LEAVES_BY_LETTER[letter] for letter in letters))


def diff_through_json(before: BaseModel, after: BaseModel) -> dict[str, Any]:
    """Return the changes between two versions, as they come back from a store."""
    return json.loads(json.dumps(diff(before, after)))


def document_of(record: BaseModel) -> dict[str, Any]:
    """Return the document of a record: what its JSON says, as dictionaries and lists."""
    return json.loads(record.model_dump_json())


def patched_document(before: BaseModel, after: BaseModel) -> Mapping[str, Any]:
    """Return the document of the version before, after the changes to the next version."""
    return apply_changes(document_of(before), diff_through_json(before, after))


@given(before=TREES, after=TREES)
def test_changes_turn_a_document_into_the_next_one_with_its_keys_in_order(
    before: Tree, after: Tree
) -> None:
    """`before` and `after` are two random trees, which have fields of many types."""
    patched_json = json.dumps(patched_document(before, after))

    assert patched_json == json.dumps(document_of(after))


@given(before=TREES, after=TREES)
def test_changes_turn_a_version_into_the_next_one_and_leave_the_old_one_as_it_was(
    before: Tree, after: Tree
) -> None:
    json_before = before.model_dump_json()

    patched = apply_changes(before, diff_through_json(before, after))

    assert patched.model_dump_json() == after.model_dump_json()
    assert before.model_dump_json() == json_before


@given(before=TREES, after=TREES)
def test_changed_version_keeps_the_objects_of_its_unchanged_beginning(
    before: Tree, after: Tree
) -> None:
    """Leaves at the beginning that are equal in both versions stay the same objects.

    A search index recognizes what did not change by that.
    """
    patched = apply_changes(before, diff_through_json(before, after))

    unchanged_count = common_prefix_length(before.leaves, after.leaves)
    assert common_prefix_length(patched.leaves, before.leaves) >= unchanged_count
    for position in range(unchanged_count):
        assert patched.leaves[position] is before.leaves[position]


@pytest.mark.parametrize(("before", "after"), [(1, True), (1.0, 1), (False, 0)])
def test_equal_value_of_another_type_is_a_change(before: Any, after: Any) -> None:
    document = patched_document(Box(value=before), Box(value=after))

    # In Python `True` is equal to 1; in JSON it is not.
    assert json.dumps(document) == json.dumps({"value": after})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(["a"], "a", id="list to text"),
        pytest.param("a", ["a"], id="text to list"),
        pytest.param({"a": 1}, 1, id="mapping to number"),
        pytest.param(1, {"a": 1}, id="number to mapping"),
        pytest.param(["a"], {"a": 1}, id="list to mapping"),
    ],
)
def test_value_of_another_kind_replaces_the_one_before(before: Any, after: Any) -> None:
    assert diff(Box(value=before), Box(value=after)) == {"value": {"value": after}}


class Splice(NamedTuple):
    """A change of a sequence at one position."""

    position: int
    removed: int
    """How many items are removed."""
    inserted: str
    """A letter for each leaf that is inserted."""


def splices_between(before: str, after: str) -> list[Splice]:
    """Return the changes between two sequences of leaves, with a letter for each leaf."""
    changes = diff(tree_with_leaves(before), tree_with_leaves(after))
    splices: list[Splice] = []
    for position, removed, new_leaves in changes["leaves"]["items"]:
        letters = [leaf["text"] for leaf in new_leaves]
        splices.append(Splice(position, removed, "".join(letters)))
    return splices


@pytest.mark.parametrize(
    ("before", "after", "expected_splices"),
    [
        ("abc", "abcd", [Splice(position=3, removed=0, inserted="d")]),
        ("abc", "adc", [Splice(position=1, removed=1, inserted="d")]),
        ("abc", "", [Splice(position=0, removed=3, inserted="")]),
        ("ab", "ba", [Splice(position=0, removed=2, inserted="ba")]),
        (
            "abcd",
            "bced",
            [
                Splice(position=0, removed=1, inserted=""),
                Splice(position=3, removed=0, inserted="e"),
            ],
        ),
    ],
)
def test_changes_of_a_sequence_name_removed_and_new_items(
    before: str, after: str, expected_splices: list[Splice]
) -> None:
    """Each letter stands for an item of the sequence."""
    assert splices_between(before, after) == expected_splices


@pytest.mark.parametrize(
    "tree", [Tree(), document_of(Tree())], ids=["of a version", "of a document"]
)
def test_change_of_an_unknown_kind_is_refused(tree: Any) -> None:
    """A change names its kind, such as "items" or "keys". There is no kind "sorted"."""
    with pytest.raises(ValueError, match="unknown kind 'sorted'"):
        apply_changes(tree, {"leaves": {"sorted": []}})


BENCHMARKS_BY_METHOD = {
    **dict.fromkeys(METHODS, "locomo"),
    "pramem": "movielens",
    "h2memory": "palbench.restate",
    "logs+session-rag": "palbench.select",
}
"""A benchmark with histories that the method can remember."""


def written_versions(method_name: str) -> Sequence[Memory[Any]]:
    """Return the versions of a memory: empty, after each of three items, and finalized."""
    # PraMem practises in rounds; two are enough here.
    settings = {"rounds": 2} if method_name == "pramem" else {}
    writer = build(method_name, **settings).method.writer
    history = benchmark(BENCHMARKS_BY_METHOD[method_name]).load().examples[0].history

    memory: Memory[Any] = writer.Memory()
    versions = [memory]
    with dspy.context(lm=language_model("offline")):
        for item in history.items[:3]:
            extraction = writer.extract(item)
            memory = write_item(writer, memory, item, extraction)
            versions.append(memory)
        versions.append(finalize_memory(writer, memory))
    return versions


@pytest.mark.parametrize("method_name", BENCHMARKS_BY_METHOD)
def test_changes_lead_from_the_first_to_the_last_version_of_every_method(
    method_name: str,
) -> None:
    """Each method of Mempiler has a memory with fields of its own."""
    versions = written_versions(method_name)
    document = document_of(versions[0])
    memory = versions[0]

    for before, after in pairwise(versions):
        changes = diff_through_json(before, after)

        # The changes lead from document to document ...
        document = apply_changes(document, changes)
        assert document == document_of(after)
        assert type(after).model_validate_json(json.dumps(document)) == after

        # ... and from memory to memory.
        memory = apply_changes(memory, changes)
        assert memory == after
