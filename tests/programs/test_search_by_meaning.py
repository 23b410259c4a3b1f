"""Which methods add an embedding model to their search by words, and what thresholds mean then."""

from collections.abc import Sequence
from typing import Any

import dspy
import numpy as np
import pytest
from mempiler import History, build
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.engines.models import language_model
from mempiler.programs.catalog import preset

HOME, AWAY = ("lisbon", "live"), ("boat", "sail")
"""Words of one meaning each."""


def meaning(name: str = "meaning") -> TextEmbedder:
    """An embedder that knows two meanings; everything else is far from both."""

    def compute(texts: Sequence[str]) -> np.ndarray:
        return np.array([[*(any(w in t.lower() for w in ws) for ws in (HOME, AWAY)), 0.2] for t in texts], np.float32)

    return TextEmbedder(name, compute, 3)


def history() -> History:
    said = ("I moved to Lisbon", "Rye bread is best warm", "My boat leaks", "Oat milk froths")
    return History.parse([[{"role": "user", "name": "Ada", "content": text}] for text in said], id="ada")


def searched_by(reader: Any) -> str:
    indexes = reader.indexes
    return "words" if indexes.embedder is None else "both" if indexes.hybrid else "vectors"


@pytest.mark.parametrize("method", ["turn-rag", "session-rag"])
def test_an_embedding_model_searches_alone_where_it_is_told_to(method: str) -> None:
    # Without an embedder of meaning there is nothing but words.
    for given, kind in ((meaning(), "vectors"), (embedder(), "words")):
        assert searched_by(build(method, embedder=given, hybrid=False).method.reader) == kind


@pytest.mark.parametrize(
    ("method", "paper", "usual"),
    [
        ("fact-store", "memoryquest", "vectors"),
        ("pgr", "implexconv", "vectors"),
        ("memory-r2", "locomo", "vectors"),
        ("rgmem", "personamem", "words"),
    ],
)
def test_words_and_cosines_add_up_but_on_the_benchmarks_of_a_paper(method: str, paper: str, usual: str) -> None:
    for config, kind in (({}, "both"), (preset(method, paper), usual), ({"hybrid": True}, "both")):
        program = build(method, embedder=meaning(), **config)
        reader: Any = program.method.reader
        reader = getattr(reader, "inner", reader)
        with dspy.context(lm=language_model("offline")):
            memory = program.remember(history()).memory
        assert searched_by(reader) == kind
        assert program.method.reader.hybrid is (kind == "both")
        assert reader.search(memory, ["Lisbon"], 3)[0]
    # The offline embedder, which compares spelling, adds nothing.
    assert not build(method, embedder=embedder()).method.reader.hybrid


@pytest.mark.parametrize(
    ("method", "embedder", "expected"),
    [
        ("pgr", "openai/text-embedding-3-small", {"min_score": 0.3, "augment_score": 0.6, "merge_score": 0.8}),
        ("pgr+turn-rag", "minilm", {"min_score": 0.31}),
        ("pgr", "minilm", {"min_score": 0.31, "augment_score": 0.75, "merge_score": 0.92}),
        ("pgr+memory-r2", "minilm", {"min_score": 0.31, "augment_score": 0.75, "inner_min_score": 0.16}),
        ("memory-r2", "e5", {"min_score": 0.73}),
        ("rgmem", "offline", {"node_cosine": 0.27, "merge_cosine": 0.85}),
    ],
)
def test_an_embedder_brings_its_thresholds(method: str, embedder: str, expected: dict[str, float]) -> None:
    config = build(method, embedder=meaning(embedder)).method.config
    assert {name: config[name] for name in expected} == expected
    assert build("pgr", embedder=meaning("minilm"), min_score=0.2).method.config["min_score"] == 0.2
