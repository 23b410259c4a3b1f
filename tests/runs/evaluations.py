"""Rows and evaluations without a run, for tests of what is made of them."""

from collections.abc import Iterable
from typing import Any

from mempiler.runs.results import Evaluation
from mempiler.runs.rows import Row


def row(id: str = "q0", score: float = 1.0, **changed: Any) -> Row:
    """A scored question; one of category 5 is outside the headline score."""
    values: dict[str, Any] = {"group": "g", "category": "4", "counts": changed.get("category") != "5"}
    values |= {"question": f"What of {id}?", "gold": "gold", "answer": "answer", "parts": {"f1": score}}
    return Row(**{"id": id, "score": score, "recall": {}, "sources": (), "seconds": 0.1, **values, **changed})


def evaluation(rows: Iterable[Row], **changed: Any) -> Evaluation:
    """The evaluation of these questions."""
    asked = tuple(rows)
    values: dict[str, Any] = {"program": "turn-rag", "benchmark": "locomo", "lm": "openai/x", "embedder": None}
    values |= {"calls": {"task": len(asked), "prompt": 0, "judge": 0, "cached": 0}, "write_failures": 0}
    values |= {"comparable": True, "tokens": {"input": 1200, "output": 34}, "cost": 0.5, "seconds": 1.0}
    return Evaluation(rows=asked, **{**values, **changed})
