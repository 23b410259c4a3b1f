"""Random puts and deletions in a store and in LangGraph's own in memory: afterwards both hold and find the same."""

import random
from typing import Any

from langgraph.store.memory import InMemoryStore  # pyright: ignore[reportMissingImports]

FILTERS = [{}, {"n": {"$gte": 2}}, {"n": {"$lt": 2, "$ne": 0}}, {"n": 1, "text": "one"}, {"missing": 1}]


def same(store: Any, seed: int, ops: int) -> bool:
    """Does `ops` operations on namespaces of this seed, and compares; says what differs by an assertion."""
    draw, theirs = random.Random(seed), InMemoryStore()
    spaces = [(f"u{seed}", "a"), (f"u{seed}", "b"), (f"u{seed}",), (f"v{seed}", "a")]
    for _ in range(ops):
        space, key = draw.choice(spaces), draw.choice("xyz")
        value = draw.choice([None, {"n": draw.randint(0, 3), "text": draw.choice(["one", "two"])}])
        for each in (theirs, store):
            each.put(space, key, value)
    for space in spaces:
        for wanted in FILTERS:
            ours, other = (_items(each.search(space, filter=wanted, limit=99)) for each in (store, theirs))
            assert ours == other, (seed, space, wanted, ours, other)
        for key in "xyz":
            ours, other = store.get(space, key), theirs.get(space, key)
            assert (ours and ours.value) == (other and other.value), (seed, space, key)
    # Theirs also lists namespaces whose items were all deleted.
    filled = {item.namespace for item in theirs.search((f"u{seed}",), limit=99)}
    assert set(store.list_namespaces(prefix=[f"u{seed}"])) == filled, seed
    firsts = {each[:1] for each in filled if "a" in each}
    assert set(store.list_namespaces(prefix=["*"], suffix=["a"], max_depth=1)) >= firsts, seed
    return True


def _items(found: Any) -> list[Any]:
    return sorted((item.namespace, item.key, sorted(item.value.items())) for item in found)
