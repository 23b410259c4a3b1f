"""Scoring in one call: what `mempiler evaluate` does, for Python.

found = mempiler.evaluate(my_agent, "locomo", data="locomo10.json", lm="openai/gpt-4.1-mini")
print(found.score, found.summary())
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .experiment import Part, run_evaluate
from .results import Evaluation
from .setup import Setup


def evaluate(
    thing: Any, on: str, part: Part = "all", config: Mapping[str, Any] | None = None, **setup: Any
) -> Evaluation:
    """Scores anything that answers questions about a history, on a benchmark; logged as one run.

    Args:
        thing: A callable `(history, question)`, a `dspy.Module`, a class or object with `add` and `search`; or the name
            of these, of a method, a saved program, a file of answers, or the URL of a chat endpoint.
        on: The benchmark.
        part: Which questions: all, or a part of the split that compile uses.
        config: Settings of the thing, e.g. {"timeout": 60}.
        **setup: Data, models and limits: the fields of `runs.setup.Setup`.

    Raises:
        UserError: The thing, the benchmark or a field is none.
    """
    return run_evaluate(thing, Setup(on, **setup), part, config)
