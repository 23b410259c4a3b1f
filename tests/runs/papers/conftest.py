"""A small paper: baselines on the bundled sample of LoCoMo, with two printed tables."""

from collections.abc import Callable
from typing import Any

import pytest
from mempiler.runs.papers.paper import Paper

TURNS = {
    "name": "turns",
    "title": "turns against nothing",
    "benchmark": "locomo",
    "variants": ["three turns", "nothing"],
    "baseline": "nothing",
    "columns": [
        {"name": "all", "printed": ["Avg."]},
        {"name": "tokens", "of": "tokens", "digits": 0},
    ],
    "printed": ["table1"],
    "comparisons": [{"label": "turns over nothing", "one": "three turns", "other": "nothing"}],
}
SIZES = {
    "name": "sizes",
    "title": "how many turns",
    "benchmark": "locomo",
    "variants": ["k = 1", "k = 3"],
    "baseline": "k = 3",
    "columns": [{"name": "all"}],
}
PLAIN: dict[str, Any] = {
    "name": "tiny",
    "summary": "two baselines",
    "variants": {
        "three turns": {"program": "turn-rag", "settings": {"k": 3}, "rows": ["RAG"]},
        "nothing": {"program": "no-memory"},
        "k = 1": {"program": "turn-rag", "settings": {"k": 1}},
        "k = 3": {"program": "turn-rag", "settings": {"k": 3}},
    },
    "printed": {
        "table1": [
            {
                "title": "Table 1",
                "model": "m",
                "columns": ["method", "Avg."],
                "rows": [["RAG", 38.1]],
            }
        ]
    },
    "sections": [TURNS, SIZES],
}


@pytest.fixture
def make_paper() -> Callable[..., Paper]:
    """Makes the small paper with some of its fields changed; `turns` are the variants of its only section then."""

    def make(turns: dict[str, Any] | None = None, own: str = "nothing", **changes: Any) -> Paper:
        if turns is not None:
            changes |= {
                "variants": turns,
                "sections": [
                    {**TURNS, "variants": list(turns), "baseline": own, "comparisons": []}
                ],
            }
        return Paper.model_validate({**PLAIN, **changes})

    return make
