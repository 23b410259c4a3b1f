"""Thresholds for cosines: those of the embedder, unless somebody names one."""

from typing import Any

import numpy as np
import pytest
from mempiler.programs.catalog import build


class Named:
    """An embedder that is never asked."""

    dimension = 2

    def __init__(self, name: str) -> None:
        self.name = name

    def embed(self, texts: Any) -> np.ndarray:
        raise AssertionError


@pytest.mark.parametrize(
    ("method", "embedder", "expected"),
    [
        ("pgr", "openai/text-embedding-3-small", {"min_score": 0.3, "augment_score": 0.6, "merge_score": 0.8}),
        ("pgr", "offline", {"min_score": 0.13, "augment_score": 0.44, "merge_score": 0.8}),
        ("pgr", "minilm", {"min_score": 0.31, "augment_score": 0.75, "merge_score": 0.92}),
        ("pgr+memory-r2", "minilm", {"min_score": 0.31, "augment_score": 0.75, "inner_min_score": 0.16}),
        ("memory-r2", "openai/text-embedding-3-small", {"min_score": 0.1}),
        ("memory-r2", "e5", {"min_score": 0.73}),
        ("rgmem", "openai/text-embedding-3-small", {"node_cosine": 0.5, "merge_cosine": 0.85}),
        ("rgmem", "offline", {"node_cosine": 0.27, "merge_cosine": 0.85}),
    ],
)
def test_an_embedder_brings_its_thresholds(method: str, embedder: str, expected: dict[str, float]) -> None:
    config = build(method, embedder=Named(embedder)).method.config
    assert {name: config[name] for name in expected} == expected


def test_a_setting_that_is_named_wins() -> None:
    assert build("pgr", embedder=Named("minilm"), min_score=0.2).method.config["min_score"] == 0.2


def test_a_policy_over_words_keeps_its_defaults_and_one_over_cosines_does_not() -> None:
    assert build("pgr+turn-rag").method.config["min_score"] == 0.3
    assert build("pgr+turn-rag", embedder=Named("minilm")).method.config["min_score"] == 0.31
