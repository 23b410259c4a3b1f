"""Memories are frozen values, with one index for all versions of each; the next version is told by what changed."""

import gc
import json
import pickle
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import build
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.engines.models import language_model
from mempiler.errors import UserError
from mempiler.memory.changes import apply_changes, common_prefix_length, diff
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.index import Index
from mempiler.memory.search.index_cache import IndexCache
from mempiler.memory.memory import Memory, TurnMemory
from mempiler.programs.baselines.retrieval import logged
from mempiler.programs.writing import finalize_memory, write_item
from mempiler.programs.names import METHODS
from mempiler.programs.pramem.memory import ExperienceMemory
from mempiler.records import Action, Behavior, Logs, Profile, Record, Session, Turn
from pydantic import BaseModel, ConfigDict


class Notes(Memory):
    notes: tuple[str, ...] = ()


@pytest.mark.parametrize("inner", [Notes, ExperienceMemory])
def test_beneath_logs_the_inner_memory_says_how_it_goes_on(inner: type[Any]) -> None:
    kind = logged(inner)
    before, settled = kind(answered=True), kind(inner=inner())
    found = before.continue_from(settled)
    assert found.answered
    assert found.inner is before.inner.continue_from(settled.inner)


def test_turns_are_kept_as_what_they_are_and_those_of_a_session_are_a_dialogue() -> None:
    said = [Turn(id=f"x:{n}", speaker="Ann", text="I  moved\nto Lisbon.", caption="a street") for n in range(6)]
    items: list[Any] = [
        Session(id="x", turns=tuple(said[:2])),
        Logs(id="x", turns=(said[2],)),
        Profile(id="x", turns=(said[3],)),
        Behavior.from_actions("x", [Action(id="x:4", scene="video", situation="a clip", action="liked")]),
        Session(id="x", turns=(said[5],)),  # two sessions of one id are two dialogues
    ]
    memory = TurnMemory()
    for item in items:
        memory = memory.with_session(item)
    found = [(entry.id, entry.kind, entry.tags.get(DIALOGUE, "")) for entry in memory.entries()]
    kinds = ("turn", "turn", "log", "profile", "record", "turn")
    dialogues = ("x:0", "x:0", "", "", "", "x:5")
    assert found == [(f"x:{n}", kind, in_) for n, (kind, in_) in enumerate(zip(kinds, dialogues, strict=True))]
    assert all(entry.sources == (entry.id,) and entry.hit().kind == entry.kind for entry in memory.entries())


class Word(Record):
    id: str
    text: str


class Words(Memory):
    words: tuple[Word, ...] = ()

    def entries(self) -> list[Entry]:
        return list(map(self.entry, self.words))

    def parts(self) -> tuple[Word, ...]:
        return self.words

    def entry(self, part: Word) -> Entry:
        return Entry(id=part.id, text=part.text)

    def having(self, words: Sequence[Word]) -> "Words":
        return self.model_copy(update={"words": tuple(words)})


def words(*texts: str) -> Words:
    return Words(words=tuple(Word(id=text, text=text) for text in texts))


class Counting(TextEmbedder):
    """The offline embedder, which counts the texts that it is given, queries apart."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        super().__init__("counting", embedder().embed, 384)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        return super().embed(texts)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        return super().embed(texts)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "insert", "replace", "remove", "swap", "back"]),
        st.integers(0, 99),
        st.integers(0, 9),
    ),
    max_size=12,
)
TEXTS = ("rye bread", "oat milk", "bread with milk", "a bicycle", "the red bicycle", "piano", "rye", "milk", "red", "a")


@pytest.mark.parametrize(("dense", "hybrid"), [(False, False), (True, False), (True, True)])
@given(steps=STEPS)
def test_every_version_is_searched_as_if_its_index_were_its_own(dense: bool, hybrid: bool, steps: list[Any]) -> None:
    near = embedder() if dense else None
    indexes, versions = IndexCache(near, hybrid), [words("rye bread", "a bicycle")]
    for number, (kind, place, text) in enumerate(steps):
        last = versions[-1]
        held, new = list(last.words), Word(id=f"w{number}", text=TEXTS[text])
        if kind == "append" or not held:
            held.append(new)
        elif kind == "insert":
            held.insert(place % len(held), new)
        elif kind == "replace":
            held[place % len(held)] = new.model_copy(update={"id": held[place % len(held)].id})
        elif kind == "remove":
            del held[place % len(held)]
        elif kind == "swap":
            held.insert(0, held.pop())
        versions.append(versions[place % len(versions)] if kind == "back" else last.having(held))
        own = Index(near, hybrid)
        own.add(versions[-1].entries())
        queries = ["red milk", "rye"]
        assert indexes.search(versions[-1], queries, 99) == own.search(queries, 99)
        assert indexes.entries(versions[-1]) == versions[-1].entries()


def test_only_what_is_new_in_a_version_is_embedded() -> None:
    counting = Counting()
    indexes, first = IndexCache(counting), words("rye", "oats", "milk")
    indexes.search(first, ["bread"], 1)
    changed = [*first.words[:1], first.words[1].model_copy(update={"text": "oat bread"}), *first.words[2:]]
    second = first.having([*changed, Word(id="new", text="piano")])
    third = second.having(second.words[1:])
    for memory in (second, third):
        indexes.search(memory, ["bread"], 1)
    assert counting.texts == ["rye", "oats", "milk", "oat bread", "piano"]


def test_a_string_instead_of_queries_is_refused_before_it_is_embedded() -> None:
    class Strict(Counting):
        def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
            raise AssertionError("embedded")

    with pytest.raises(UserError, match="put it in a list"):
        IndexCache(Strict()).search(words("rye"), "rye", 1)


def test_an_index_goes_with_the_last_version_of_its_memory_and_with_the_indexes() -> None:
    indexes, memory = IndexCache(), words("rye")
    indexes.search(memory, ["rye"], 1)
    successor = memory.having(words("oats").words)
    kept = weakref.ref(memory.lineage.indexes[indexes])
    del memory
    gc.collect()
    assert kept() is not None
    del successor
    gc.collect()
    assert kept() is None
    memory = words("rye")
    indexes.search(memory, ["rye"], 1)
    del indexes
    gc.collect()
    assert len(memory.lineage.indexes) == 0


def test_versions_are_searched_by_many_threads_at_once(hasty: None) -> None:
    indexes, base = IndexCache(), words("rye")
    versions = [base.having([*base.words, Word(id=f"w{n}", text=f"number{n}")]) for n in range(8)]

    def searched(n: int) -> bool:
        hits = indexes.search(versions[n % 8], [f"number{n % 8} rye"], 3)[0]
        return {hit.id for hit in hits} == {f"w{n % 8}", "rye"}

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(searched, range(400)))


def test_queries_are_embedded_and_ranked_side_by_side_and_a_filter_may_search() -> None:
    together = threading.Barrier(4, timeout=10)

    class Patient:
        name = "patient"

        def words(self, query: str) -> Sequence[str]:
            return ()

        def scores(self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]) -> np.ndarray:
            if query == "rye":
                together.wait()
            return np.zeros(len(texts))

    class Waiting(Counting):
        reranker = Patient()

        def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
            if texts == ["rye"]:
                together.wait()
            return super().embed_queries(texts)

    indexes, memory = IndexCache(Waiting(), hybrid=True), words("rye bread", "oat milk")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: indexes.search(memory, ["rye"], 1), range(4)))
    assert [hits[0].id for (hits,) in found] == ["rye bread"] * 4
    where = lambda entry: indexes.search(memory, ["milk"], 1)[0][0].id == entry.id  # noqa: E731
    assert [hit.id for hit in indexes.search(memory, ["bread"], 2, where=where)[0]] == ["oat milk"]


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
    return apply_changes(document, json.loads(json.dumps(diff(before, after))))


@given(before=TREES, after=TREES)
def test_a_patched_document_is_that_of_the_next_version_in_its_order(before: Tree, after: Tree) -> None:
    """And a patched version is the next one, and shares what stayed."""
    held = before.model_dump_json()
    assert json.dumps(after_patch(before, after)) == json.dumps(json.loads(after.model_dump_json()))
    made = apply_changes(before, json.loads(json.dumps(diff(before, after))))
    assert (made.model_dump_json(), before.model_dump_json()) == (after.model_dump_json(), held)
    stayed = min(common_prefix_length(before.leaves, after.leaves), common_prefix_length(made.leaves, before.leaves))
    assert stayed == common_prefix_length(before.leaves, after.leaves)


@pytest.mark.parametrize(("before", "after"), [(1, True), (1.0, 1), (False, 0)])
def test_an_equal_value_of_another_type_is_a_change(before: Any, after: Any) -> None:
    found = after_patch(Plain(value=before), Plain(value=after))
    assert json.dumps(found) == json.dumps({"value": after})


@pytest.mark.parametrize(
    ("before", "after", "items"),
    [
        ("abc", "abcd", [[3, 0, ["d"]]]),
        ("abc", "adc", [[1, 1, ["d"]]]),
        ("abcd", "bced", [[0, 1, []], [3, 0, ["e"]]]),
        ("abcd", "aecde", None),
        ("ab", "ba", [[0, 2, ["b", "a"]]]),
        ("abc", "", [[0, 3, []]]),
    ],
)
def test_a_sequence_changes_where_items_went_and_came(before: str, after: str, items: Any) -> None:
    known = {leaf.text: leaf for leaf in LEAVES}
    first, second = (Tree(leaves=tuple(map(known.__getitem__, text))) for text in (before, after))
    found = diff(first, second)["leaves"]["items"]
    if items is not None:
        assert [[place, gone, [leaf["text"] for leaf in came]] for place, gone, came in found] == items
    assert after_patch(first, second) == json.loads(second.model_dump_json())


@pytest.mark.parametrize(
    "change", [{"leaves": {"sorted": []}}, {"named": {"keys": {"gone": ["q"], "put": {}, "in": {}}}}]
)
def test_what_is_no_change_of_the_document_is_refused(change: Any) -> None:
    with pytest.raises((KeyError, ValueError)):
        apply_changes(Tree().model_dump(mode="json"), change)
    with pytest.raises((KeyError, ValueError)):
        apply_changes(Tree(), change)


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
            versions.append(write_item(writer, versions[-1], item, writer.extract(item)))
        versions.append(finalize_memory(writer, versions[-1]))
    changed = [diff(before, after) for before, after in pairwise(versions)]
    document, made = json.loads(versions[0].model_dump_json()), versions[0]
    for change, after in zip(changed, versions[1:], strict=True):
        document = apply_changes(document, json.loads(json.dumps(change)))
        assert document == json.loads(after.model_dump_json())
        assert type(after).model_validate_json(json.dumps(document)) == after
        made = apply_changes(made, json.loads(json.dumps(change)))
        assert made == after


def test_which_index_serves_a_memory_is_no_part_of_its_content() -> None:
    memory = words("rye")
    separate = memory.with_new_lineage()
    assert separate == memory
    assert separate.lineage is not memory.lineage
    assert memory.having(memory.words).lineage is memory.lineage
    assert "lineage" not in memory.model_dump_json()
    assert pickle.loads(pickle.dumps(memory)) == memory
