"""On the bundled samples no built-in way to search finds less than plain BM25 does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mempiler.memory.bm25 import LENT
from mempiler.memory.index import Index


@pytest.fixture
def retrieval(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "perf"))
    import retrieval

    return retrieval


@pytest.mark.parametrize("name", ["longmemeval", "memoryquest"])
def test_turns_that_lend_their_scores_find_no_less(retrieval: Any, name: str) -> None:
    told = retrieval.histories(name)
    raw, lent = (
        np.concatenate([retrieval.indexed(Index(lent=lent), asked)[0] for asked in told]).mean(axis=0)
        for lent in ({}, LENT)
    )
    assert (lent >= raw).all()
    assert lent[0] > raw[0]
