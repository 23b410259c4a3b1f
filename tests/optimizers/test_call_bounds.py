"""Optimizers make no more calls, and no fewer, than their bounds say.

A plan shows these bounds to a user before a compile. An optimizer makes two kinds of calls: answers
to training questions, and proposals of better instructions.
"""

from typing import Any

import dspy
import pytest
from mempiler import build
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.optimizers.compile import CompileConfig, compile_program, plan_job

SETTINGS: dict[str, dict[str, Any]] = {
    "labeled": {},
    "knn": {},
    "bootstrap": {"max_rounds": 2, "max_tries": 4},
    "bootstrap-random": {"num_candidate_programs": 2, "max_tries": 4},
    "mipro": {"num_candidates": 3, "num_trials": 4, "minibatch_size": 2, "max_tries": 4},
    "copro": {"breadth": 3, "depth": 2},
    "simba": {"bsize": 4, "num_candidates": 2, "max_steps": 2},
    "gepa": {"max_metric_calls": 20},
    "infer-rules": {"num_candidates": 2, "max_tries": 4},
    "better-together": {"strategy": "bootstrap -> labeled"},
    "settings": {"num_trials": 3, "names": ["k"]},
}
"""Settings that keep each optimizer small."""


def test_the_bounds_of_every_optimizer_but_finetune_are_tested() -> None:
    """`SETTINGS` has the optimizers whose calls are counted in this file."""
    assert set(SETTINGS) == set(OPTIMIZERS) - {"finetune"}


def headline_questions(locomo: Any, count: int) -> list[dspy.Example]:
    """Return the first questions of LoCoMo that count for its score."""
    counted = [example for example in locomo.examples if locomo.in_headline(example)]
    return counted[:count]


@pytest.mark.parametrize(
    "threshold",
    [
        pytest.param(0.0, id="every answer becomes a demo"),
        pytest.param(0.5, id="only right answers become demos"),
    ],
)
@pytest.mark.parametrize("optimizer", SETTINGS)
def test_an_optimizer_makes_no_more_and_no_fewer_calls_than_its_bounds_say(
    optimizer: str, threshold: float
) -> None:
    """Calls either answer questions ("task") or propose instructions ("prompt").

    Turn RAG writes and recalls without a model, and makes one call to answer a question.
    """
    locomo = benchmark("locomo")
    questions = headline_questions(locomo, 12)
    program = build("turn-rag", embedder=embedder())
    config = CompileConfig(optimizer, settings=SETTINGS[optimizer], threads=2, threshold=threshold)
    meter = Meter()

    def model_for(role: Any) -> MeteredLM:
        return MeteredLM("offline/x", Metering(meter, role), engine=OfflineEngine(), cache=False)

    with dspy.context(lm=model_for("task"), disable_history=True, trace=None):
        prompt_lm = model_for("prompt")
        job = plan_job(program, locomo, questions, config, prompt_lm)
        bounds = config.make_optimizer().call_bounds(job)
        compile_program(program, locomo, questions, config, prompt_lm)

    calls = meter.read().calls
    assert bounds is not None
    assert bounds.answers.low <= calls["task"] <= bounds.answers.high
    assert bounds.proposals.low <= calls["prompt"] <= bounds.proposals.high
