"""Compiling a program: one teleprompter, one stage, and a result that is fit to be saved.

    program ── staged copy ──> teleprompter ──> compiled copy ── unfrozen, only its own demos, no LM bound

The program that is passed in is not changed. Questions that are not part of the benchmark's headline score (LoCoMo's
adversarial ones) are not trained on.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..errors import UserError
from ..programs.program import MemoryProgram, Stage
from ..programs.state import own_demos
from .catalog import optimizer as entry
from .metric_views import MetricViews


def compile_program(
    program: MemoryProgram,
    benchmark: Benchmark,
    trainset: Sequence[dspy.Example],
    optimizer: str = "bootstrap",
    stage: Stage = "all",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    threshold: float = 0.5,
) -> MemoryProgram:
    """Tunes a program on training questions, under the LM of the current context.

    Args:
        program: What to tune; stays as it is.
        benchmark: Whose metric decides.
        trainset: Questions with answers.
        optimizer: A name of `catalog.OPTIMIZERS`.
        stage: Which predictors may change.
        seed: Order in which training questions are tried.
        settings: Overrides of the optimizer's settings.
        threshold: Least score of an answer to learn from.

    Returns:
        A compiled copy that shares the program's memory cache.

    Raises:
        UserError: No training question counts, or an unknown setting.
    """
    chosen = entry(optimizer)
    unknown = set(settings or {}) - set(chosen.settings)
    if unknown:
        raise UserError(
            f"optimizer {optimizer!r} has no setting {sorted(unknown)[0]!r}; it has: {', '.join(chosen.settings)}"
        )
    examples = [example for example in trainset if benchmark.counts(example)]
    if not examples:
        raise UserError("there is no training question that counts for the score; raise --train or widen --categories")
    random.Random(seed).shuffle(examples)
    teleprompter = chosen.make(MetricViews(benchmark, threshold), {**chosen.settings, **(settings or {})})
    student = program.staged(stage)
    # Without a trace of its own, plain calls inside an optimizer would fill the process-wide one.
    with dspy.context(trace=None):
        compiled: MemoryProgram = teleprompter.compile(student, trainset=benchmark.interleave(examples))
    return tidy(compiled)


def tidy(compiled: MemoryProgram) -> MemoryProgram:
    """Makes what an optimizer returned fit to be saved: nothing frozen, no LM bound, only demos a prompt shows."""
    compiled.unfrozen()
    for predictor in compiled.all_predictors().values():
        predictor.demos = own_demos(predictor)
        predictor.lm = None
    return compiled
