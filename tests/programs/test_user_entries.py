"""The entries of a memory, one by one, in every method."""

from pathlib import Path
from typing import Any

import pytest
from mempiler import Store, build
from mempiler.engines.embedders import embedder
from mempiler.engines.models import language_model
from mempiler.programs.catalog import needs_embedder

METHODS = [
    "turn-rag",
    "session-rag",
    "full-context",
    "memory-r2",
    "pgr",
    "pgr+turn-rag",
    "pgr+memory-r2",
    "rgmem",
    "h2memory",
    "logs+session-rag",
    "memory-bank",
    "recursive-summary",
    "condition-mem",
]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "memories.sqlite") as opened:
        yield opened


def memory_of(store: Store, method: str, user: str = "ada") -> Any:
    made = build(method, embedder=embedder() if needs_embedder(method) else None)
    return made.memory(store, user, lm=language_model("offline"))


def everything(memory: Any) -> dict[str, Any]:
    """All entries by id, page by page."""
    found, cursor = {}, None
    while True:
        page = memory.list(cursor, limit=2)
        found |= {entry.id: entry for entry in page.entries}
        if page.next is None:
            return found
        cursor = page.next


@pytest.mark.parametrize("method", METHODS)
def test_what_a_search_finds_is_listed_and_can_be_read(method: str, store: Store, make_history: Any) -> None:
    memory = memory_of(store, method)
    for item in make_history(3).items:
        memory.add(item)
    listed, found = everything(memory), memory.search("Oslo Quito Hanoi friends", 100)
    assert listed
    for hit in found.entries:
        entry = listed[hit.id]
        assert (entry.text, entry.kind, entry.turns) == (hit.text, hit.kind, hit.sources)
        assert memory.get(hit.id) == entry
        assert bool(entry.sessions) == bool(entry.turns)
    assert memory.get("nothing of that name") is None
