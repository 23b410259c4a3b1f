"""A small paper for tests: baselines on the bundled sample of LoCoMo, with one printed table."""

from typing import Any

from mempiler.runs.papers.paper import Paper

TURNS: dict[str, Any] = {
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
"""A section with a printed table; with a judge, its two variants are compared."""

SIZES: dict[str, Any] = {
    "name": "sizes",
    "title": "how many turns",
    "benchmark": "locomo",
    "variants": ["k = 1", "k = 3"],
    "baseline": "k = 3",
    "columns": [{"name": "all"}],
}
"""A section that the paper prints no table of."""

PAPER: dict[str, Any] = {
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
"""The small paper as its JSON file would be; "rows" are the names of a variant's printed rows."""


def small_paper(**changes: Any) -> Paper:
    """Return the small paper; `changes` gives other fields."""
    return Paper.model_validate({**PAPER, **changes})


def one_section_paper(variants: dict[str, Any], baseline: str, **changes: Any) -> Paper:
    """Return a paper whose only section, "turns", has these variants."""
    section = {**TURNS, "variants": list(variants), "baseline": baseline, "comparisons": []}
    return small_paper(variants=variants, sections=[section], **changes)
