"""On the bundled samples no built-in way to search finds less than plain BM25 does."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mempiler.memory.index import Index
from mempiler.memory.words import LENT

SCRIPT = Path(__file__).parents[2] / "perf" / "retrieval.py"


@pytest.fixture(scope="module")
def retrieval():
    spec = importlib.util.spec_from_file_location("retrieval", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["retrieval"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["retrieval"]


@pytest.mark.parametrize("name", ["longmemeval", "memoryquest"])
def test_turns_that_lend_their_scores_find_no_less(retrieval: Any, name: str) -> None:
    told = retrieval.histories(name)
    raw, lent = (
        np.concatenate([retrieval.indexed(Index(lent=lent), asked) for asked in told]).mean(axis=0)
        for lent in ({}, LENT)
    )
    assert (lent >= raw).all()
    assert lent[0] > raw[0]


def test_every_way_is_printed(
    retrieval: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Path(retrieval.benchmark.__code__.co_filename).parent / "samples" / "locomo.json"
    monkeypatch.setattr(sys, "argv", ["retrieval.py", "--data", str(sample)])
    retrieval.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:8]] == ["raw", "lent", "embedder", "sum", "hybrid"]
