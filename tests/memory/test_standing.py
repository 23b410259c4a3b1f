"""Filters that an index remembers: the hits are those of a filter that is asked anew, and it is asked less."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.engines.embedders import embedder
from mempiler.memory.dense import DenseIndex
from mempiler.memory.index import Entry, Index
from mempiler.memory.indexes import empty_index
from mempiler.memory.standing import MOST, Spoken, Standing

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "search"]), st.integers(0, 7), st.sampled_from(["Ada", "Bob", None])),
    max_size=25,
)


def said(id: int, speaker: str | None) -> Entry:
    return Entry(id=f"e{id}", text=f"walk number{id} home", speaker=speaker)


@pytest.mark.parametrize("make", [lambda: empty_index(embedder()), lambda: empty_index(embedder(), True), empty_index])
@given(steps=STEPS)
def test_hits_are_those_of_a_filter_that_is_asked_anew(make: Callable[[], Index], steps: list) -> None:
    index = make()
    for kind, id, speaker in steps:
        if kind == "add":
            index.add([said(id, speaker)])
        elif kind == "remove":
            index.remove([f"e{id}"])
        for same in (True, False):
            where = Spoken(speaker or "Ada", same)
            probe = [f"number{id} home"]
            assert index.search(probe, 3, where=where) == index.search(probe, 3, where=lambda e, w=where: w(e))


@dataclass(frozen=True)
class Asked(Standing):
    name: str
    asked: list[str] = field(default_factory=list, compare=False)

    def __call__(self, entry: Entry) -> bool:
        self.asked.append(entry.id)
        return True


def test_it_is_asked_of_new_entries_alone_and_again_where_it_was_not_used_for_long() -> None:
    index, asked = DenseIndex(embedder()), Asked("a")
    index.add([said(1, "Ada"), said(2, "Ada")])
    for _ in range(3):
        index.search(["home"], 2, where=asked)
    index.add([said(3, "Ada"), said(1, "Bob")])
    index.search(["home"], 2, where=asked)
    assert asked.asked == ["e1", "e2", "e1", "e3"]
    for n in range(MOST + 1):
        index.search(["home"], 1, where=Asked(f"other {n}"))
    index.search(["home"], 2, where=asked)
    assert len(asked.asked) == 7
