"""Compiles whose endpoint dies or whose budget strikes, over real HTTP: one optimizer per mechanism, slowly all others.

Eight training, four dev and four test questions: requests 1 to 4 score the start on the dev questions, then the
optimizer asks, then its result is scored on the dev questions, then both on the test questions.
"""

from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import load
from mempiler.engines.models import language_model
from mempiler.runs.manifest import read_manifest

OPTIMIZERS = {
    "bootstrap": ["max_tries=4"],
    "mipro": ["num_trials=2", "num_candidates=2"],
    "gepa": ["max_metric_calls=10"],
    "better-together": ["strategy=labeled -> bootstrap"],
    "bootstrap-random": ["num_candidate_programs=1", "max_tries=3"],
    "copro": ["breadth=2", "depth=1"],
    "simba": ["bsize=4", "max_steps=1", "num_candidates=2"],
    "infer-rules": ["num_candidates=1", "max_tries=3"],
    "labeled": [],
    "knn": [],
}
"""Settings that keep each optimizer small."""
QUICK = ("bootstrap", "gepa")
SCORED_FIRST = 4


def each(*names: str) -> pytest.MarkDecorator:
    """A test per optimizer, the slow ones marked."""
    marks = ([] if name in QUICK else [pytest.mark.slow] for name in names)
    found = [pytest.param(name, marks=mark) for name, mark in zip(names, marks, strict=True)]
    return pytest.mark.parametrize("optimizer", found)


each_optimizer = each(*OPTIMIZERS)
each_that_asks = each(*(name for name in OPTIMIZERS if name not in ("labeled", "knn")))


def compile_words(optimizer: str, out: Path, *words: str) -> list[str]:
    settings = [word for setting in OPTIMIZERS[optimizer] for word in ("--optimizer-set", setting)]
    return ["compile", "turn-rag", "--with", optimizer, "--out", str(out), *settings, *words]


def loads_untuned(out: Path) -> bool:
    """Whether a folder holds the start: loadable, and said to be compiled by nothing."""
    predictors = load(out).all_predictors().values()
    return not read_manifest(out).optimizer and not any(predictor.demos for predictor in predictors)


def asked(part: dict[str, Any]) -> int:
    """Questions of an evaluation, those outside the headline score too."""
    return sum(category["n"] for category in part["by"].values())


def answers(out: Path, make_history: Any) -> bool:
    with dspy.context(lm=language_model("offline")):
        return bool(load(out)(history=make_history(2), question="Who saw Quito?").answer)


@each_optimizer
@pytest.mark.parametrize("alive", [SCORED_FIRST + 3])
def test_an_endpoint_that_dies_under_the_optimizer_leaves_the_start(stub, mempiler_cli, tmp_path, optimizer, alive):
    server = stub(lambda n, text: "dead" if n > alive else None)
    ran = mempiler_cli(server, *compile_words(optimizer, tmp_path / "out"), threads=2)
    assert (ran.code, ran.out) == (3, "")
    assert ran.resume
    assert server.answered == alive
    assert loads_untuned(tmp_path / "out")


@pytest.mark.parametrize("late", [1, 5])
def test_an_endpoint_that_dies_while_scoring_is_no_result(stub, mempiler_cli, tmp_path, late):
    healthy = stub()
    words = compile_words("bootstrap", tmp_path / "out")
    mempiler_cli(healthy, *compile_words("bootstrap", tmp_path / "healthy"))
    server = stub(lambda n, text: "dead" if n > healthy.answered - late else None)
    ran = mempiler_cli(server, *words)
    assert healthy.answered == server.answered + late
    if late == 1:
        # One of four test questions without an answer is more than --max-lost allows.
        assert (ran.code, ran.out, (tmp_path / "out").exists()) == (4, "", False)
    else:
        assert (ran.code, ran.out) == (3, "")
        assert loads_untuned(tmp_path / "out")


@each_that_asks
def test_a_budget_that_strikes_the_optimizer_still_gives_a_scored_program(
    stub, mempiler_cli, make_history, tmp_path, optimizer
):
    # 4 calls score the start, 12 are kept back for the scoring to come, 2 are left to the optimizer.
    server = stub()
    ran = mempiler_cli(server, *compile_words(optimizer, tmp_path / "out", "--max-calls", "18"), threads=4)
    assert ran.code == 0
    assert ran.found["stopped"] == "max-calls 18, less what scoring needs"
    assert server.answered == len(server.texts) <= 18
    for part in ("before", "after"):
        assert asked(ran.found[part]) == 4
        assert ran.found[part]["failures"] == 0
    assert answers(tmp_path / "out", make_history)


@pytest.mark.parametrize(
    ("optimizer", "calls", "n"),
    [
        *(("mipro", calls, n) for calls, n in ((0, 0), (3, 0), (6, 2))),
        *(pytest.param(name, 6, 0, marks=pytest.mark.slow) for name in ("labeled", "knn")),
    ],
)
def test_a_budget_that_strikes_while_scoring_is_kept_exactly(
    stub, mempiler_cli, make_history, tmp_path, optimizer, calls, n
):
    server = stub()
    limit = ["--adapter", "chat", "--max-calls", str(calls)]
    ran = mempiler_cli(server, *compile_words(optimizer, tmp_path / "out", *limit))
    assert (ran.code, ran.found["stopped"]) == (0, f"max-calls {calls}")
    assert (len(server.texts), asked(ran.found["before"]), ran.found["promoted"]) == (calls, n, False)
    assert loads_untuned(tmp_path / "out")
    assert answers(tmp_path / "out", make_history)
