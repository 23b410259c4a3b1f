"""An index that was changed is, to the last bit, the one that was made of what is left; whenever rows are given up."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.engines.embedders import TextEmbedder
from mempiler.memory import hybrid, rows
from mempiler.memory.dense import DenseIndex
from mempiler.memory.hybrid import HybridIndex
from mempiler.memory.index import DIALOGUE, Entry, Index
from mempiler.memory.sparse import SparseIndex

WORDS = ("lisbon", "jazz", "piano", "river")
QUERIES = [*WORDS, "lisbon river", "nothing", "jazz\npiano"]
KINDS: dict[str, Callable[[], Index]] = {
    "sparse": SparseIndex,
    "dense": lambda: DenseIndex(drawn()),
    "hybrid": lambda: HybridIndex(drawn()),
}


def drawn() -> TextEmbedder:
    """Vectors that a text decides, from a dozen: equal ones are common."""

    def compute(texts: Sequence[str]) -> np.ndarray:
        return np.stack([np.random.default_rng(sum(text.encode()) % 12).standard_normal(24) for text in texts])

    return TextEmbedder("drawn", compute, 24)


texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join), min_size=1, max_size=3).map("\n".join)
entries = st.builds(
    lambda number, text, dialogue: Entry(id=f"e{number}", text=text, tags={DIALOGUE: dialogue} if dialogue else {}),
    st.integers(0, 14),
    texts,
    st.sampled_from(["", "a", "b"]),
)
steps = st.lists(st.lists(entries, max_size=12) | st.sets(st.integers(0, 14).map("e{}".format)), max_size=6)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from([0, rows.SPARE]), st.booleans())
def test_a_changed_index_is_the_one_that_was_always_so(
    kind: str, changes: list[list[Entry] | set[str]], spare: int, asked: bool
) -> None:
    index, kept = KINDS[kind](), dict[str, Entry]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "SPARE", spare)
        patch.setattr(hybrid, "SPARE", spare)
        for change in changes:
            if isinstance(change, set):
                index.remove(change)
                kept = {id: entry for id, entry in kept.items() if id not in change}
            else:
                index.add(change)
                kept |= {entry.id: entry for entry in change}
            if asked:
                index.search(QUERIES[:1], k=1)
    fresh = KINDS[kind]()
    fresh.add(kept.values())
    assert index.ids == fresh.ids == tuple(kept)
    for k in (1, 4, 99):
        assert index.search(QUERIES, k) == fresh.search(QUERIES, k)
    even = index.search(QUERIES, k=3, where=lambda entry: int(entry.id[1:]) % 2 == 0)
    assert even == fresh.search(QUERIES, k=3, where=lambda entry: int(entry.id[1:]) % 2 == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_that_come_and_go_leave_no_rows(kind: str) -> None:
    index = KINDS[kind]()
    for n in range(0, 9000, 90):
        index.add([Entry(id=f"e{n + m}", text=f"jazz {m}") for m in range(90)])
        index.remove([f"e{n - 90 + m}" for m in range(90)])
    assert len(index) == 90
    held = {
        "sparse": lambda: index._scorer._rows.keys,
        "dense": lambda: index._table,
        "hybrid": lambda: index._lines._table,
    }  # type: ignore[attr-defined]
    assert len(held[kind]()) < 3000
