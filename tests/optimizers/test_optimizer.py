"""The example in the docstring of `optimizers/optimizer.py` is an optimizer that works."""

import re
import textwrap
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


def optimizer_of_docstring() -> Any:
    """Return the class `LongestAnswers` of the docstring's example."""
    docstring = optimizer_module.__doc__ or ""
    # The example is the indented block from the decorator on.
    example = re.search(r"^    @dataclass.*?(?=^\S)", docstring, re.MULTILINE | re.DOTALL)
    assert example is not None
    source = f"from __future__ import annotations\n{textwrap.dedent(example[0])}"

    names: dict[str, Any] = dict(vars(optimizer_module), dataclass=dataclass, mempiler=mempiler)
    exec(source, names)
    return names["LongestAnswers"]


def test_the_example_of_an_optimizer_compiles_the_student() -> None:
    """The optimizer of the example takes the questions with the longest answers as demos."""
    answers = ["a", "aaaaa", "aaa", "aaaa", "aa"]
    lm = language_model()
    job = OptimizerJob(
        student=build("turn-rag"),
        train=[dspy.Example(question="?", answer=answer) for answer in answers],
        val=(),
        metric_views=MetricViews(benchmark("locomo")),
        task_lm=lm,
        prompt_lm=lm,
    )

    compiled = optimizer_of_docstring()(num_demos=3).run(job)

    (predictor,) = compiled.predictors()
    assert [demo.answer for demo in predictor.demos] == ["aaaaa", "aaaa", "aaa"]
