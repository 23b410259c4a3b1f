"""The teleprompters by name: how each is made, and what it changes.

Example:
    >>> OPTIMIZERS["bootstrap"].make(views, settings)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dspy

from ..errors import UnknownNameError
from .metric_views import MetricViews


@dataclass(frozen=True)
class Optimizer:
    """One entry of the catalog."""

    make: Callable[[MetricViews, Mapping[str, Any]], Any]
    """Makes the teleprompter from a metric and settings."""
    settings: Mapping[str, Any]
    """Settings with their defaults."""
    changes: str
    """What it changes in a program."""
    cost: str
    """What it costs in task calls, roughly."""


def _labeled(views: MetricViews, settings: Mapping[str, Any]) -> Any:
    return dspy.LabeledFewShot(k=settings["max_labeled_demos"])


def _bootstrap(views: MetricViews, settings: Mapping[str, Any]) -> Any:
    return dspy.BootstrapFewShot(metric=views.passed, **settings)


OPTIMIZERS: dict[str, Optimizer] = {
    "labeled": Optimizer(
        _labeled,
        {"max_labeled_demos": 16},
        "demos: train questions with their gold answers, for predictors that have these fields",
        "none",
    ),
    # Labelled demos are needed: a teacher without demos hardly ever passes, and then nothing is bootstrapped.
    "bootstrap": Optimizer(
        _bootstrap,
        {"max_bootstrapped_demos": 4, "max_labeled_demos": 16, "max_rounds": 1},
        "demos: calls of the program's own that led to a good answer, for every predictor, and labelled ones",
        "one run of the program per tried question, until 4 pass, and the writing of their memories",
    ),
}


def optimizer(name: str) -> Optimizer:
    """The entry of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name]
