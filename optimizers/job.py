"""What an optimizer is run with: one `Job`, whatever DSPy's teleprompter behind it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from ..programs.program import MemoryProgram
from .metric_views import MetricViews

ENDLESS = 1_000_000
"""Errors an optimizer tolerates: the guard at the LM boundary decides when to stop, not a count of ten."""


@dataclass(frozen=True)
class Job:
    """Everything an optimizer is run with."""

    student: MemoryProgram
    train: Sequence[dspy.Example]
    """Examples to learn from; for optimizers without a valset, all of them."""
    val: Sequence[dspy.Example]
    """Examples to choose by; empty for optimizers without a valset."""
    views: MetricViews
    task_lm: Any
    prompt_lm: Any
    lookup: Callable[[str], Any]
    """Finds another entry of the catalog by name, for optimizers made of others."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    threads: int = 8
    ended: Callable[[Exception], None] = lambda error: None
    """Told what ended a step of several, which the others outlive."""
    category: Callable[[dspy.Example], str] = lambda example: ""
    """The category of a question: labelled demos are spread over them."""
    noted: Callable[[str], None] = lambda line: None
    """Told what a user should know of the result, in one line."""
