"""The example in the docstring of `optimizers/optimizer.py` is an optimizer."""

import re
from dataclasses import dataclass
from typing import Any

import dspy
import mempiler
from mempiler.data.catalog import benchmark
from mempiler.engines.lm import language_model
from mempiler.optimizers import optimizer as optimizer_module
from mempiler.optimizers.job import OptimizerJob
from mempiler.optimizers.metric_views import MetricViews
from mempiler.programs.catalog import build


def test_the_example_of_an_optimizer_compiles_the_student() -> None:
    docstring = optimizer_module.__doc__ or ""
    example = re.search(r"^    @dataclass.*?(?=^\S)", docstring, re.MULTILINE | re.DOTALL)
    assert example is not None
    names: dict[str, Any] = dict(vars(optimizer_module), dataclass=dataclass, mempiler=mempiler)
    source = re.sub("^    ", "", example[0], flags=re.MULTILINE)
    exec(f"from __future__ import annotations\n{source}", names)
    lm = language_model()
    job = OptimizerJob(
        student=build("turn-rag"),
        train=[dspy.Example(question="?", answer="a" * length) for length in (1, 5, 3, 4, 2)],
        val=(),
        metric_views=MetricViews(benchmark("locomo")),
        task_lm=lm,
        prompt_lm=lm,
    )

    compiled = names["LongestAnswers"](num_demos=3).run(job)

    demos = [predictor.demos for _, predictor in compiled.named_predictors()]
    assert [[len(demo.answer) for demo in each] for each in demos] == [[5, 4, 3]]
