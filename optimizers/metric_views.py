"""One metric, the views of it that optimizers need.

A benchmark scores an answer once, richly (`Score`). Bootstrapping wants to know whether a trace is good enough, search
wants a number. Handing either the rich object would be a silent fault: any object is true.

Example:
    >>> views = MetricViews(benchmark, threshold=0.5)
    >>> optimizer = dspy.BootstrapFewShot(metric=views.passed)
"""

from __future__ import annotations

from typing import Any

import dspy

from ..data.benchmark import Benchmark


class MetricViews:
    """Views of a benchmark's metric.

    Args:
        benchmark: Whose metric it is.
        threshold: Least score of an answer that is good enough to learn from.
    """

    def __init__(self, benchmark: Benchmark, threshold: float = 0.5) -> None:
        self._benchmark = benchmark
        self.threshold = threshold

    def number(self, example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> float:
        """The score, for search and reinforcement learning."""
        return float(self._benchmark.score(example, prediction).value)

    def passed(self, example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> bool:
        """Whether the answer reaches the threshold, for bootstrapping."""
        return self.number(example, prediction) >= self.threshold
