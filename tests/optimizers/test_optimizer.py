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


def job_with_answers(*answers: str) -> OptimizerJob:
    """Return a job to compile turn RAG on training questions with these answers."""
    lm = language_model()
    return OptimizerJob(
        student=build("turn-rag"),
        train=[dspy.Example(question="?", answer=answer) for answer in answers],
        val=(),
        metric_views=MetricViews(benchmark("locomo")),
        task_lm=lm,
        prompt_lm=lm,
    )


def test_the_optimizer_in_the_docstring_takes_the_longest_answers_as_demos() -> None:
    """The docstring is that of the module `optimizers/optimizer.py`."""
    longest_answers = optimizer_of_docstring()(num_demos=3)

    compiled = longest_answers.run(job_with_answers("a", "aaaaa", "aaa", "aaaa", "aa"))

    (predictor,) = compiled.predictors()
    assert [demo.answer for demo in predictor.demos] == ["aaaaa", "aaaa", "aaa"]
