"""Every optimizer's program answers the same before saving and after loading; no proposal is shown a whole history."""

import dspy
import pytest
from mempiler import build, load, save
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.engines.models import language_model
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.optimizers.compile import Compilation, compile_program

SMALL = {
    "bootstrap-random": {"num_candidate_programs": 1, "max_tries": 6},
    "mipro": {"num_candidates": 3, "num_trials": 2, "max_tries": 6},
    "copro": {"breadth": 2, "depth": 1},
    "simba": {"bsize": 6, "num_candidates": 2, "max_steps": 1},
    "gepa": {"max_metric_calls": 20},
    "infer-rules": {"num_candidates": 1, "max_tries": 6},
    "better-together": {"strategy": "bootstrap -> knn"},
}
COMPILED = [*(("turn-rag", name) for name in sorted(set(OPTIMIZERS) - {"finetune"})), ("memory-r2", "bootstrap")]


@pytest.fixture(scope="module")
def questions():
    found = benchmark("locomo")
    own = [example for example in found.examples if found.group(example) == "sample-1" and found.counts(example)]
    return found, own[:12], own[12:15]


@pytest.mark.parametrize(("method", "name"), COMPILED)
def test_the_loaded_program_answers_as_before_and_proposals_see_no_whole_history(
    questions, listening, tmp_path, method, name
):
    found, train, asked = questions
    how = Compilation(name, settings=SMALL.get(name), threads=4)
    engine = listening()
    prompt_lm = MeteredLM("offline/x", Meter(), "prompt", engine=engine, temperature=0.0, cache=False)
    with dspy.context(lm=language_model(), disable_history=True, trace=None):
        compiled = compile_program(build(method, embedder=embedder()), found, train, how, prompt_lm)
        before = [compiled(**example.inputs()).answer for example in asked]
        save(compiled, tmp_path / "saved")
        loaded = load(tmp_path / "saved")
        assert [loaded(**example.inputs()).answer for example in asked] == before
    # Words of a turn that belong to no question's evidence: only a whole history would show them all.
    evidence = {turn for example in train for turn in example.focus}
    turns = train[0].history.turns.items()
    elsewhere = [turn.text for id, (turn, _) in turns if id not in evidence and len(turn.text) > 30]
    assert max((sum(words in text for words in elsewhere) for text in engine.prompts), default=0) < len(elsewhere) / 2
    assert all("turns=(" not in text for text in engine.prompts)
    assert engine.prompts or name not in ("mipro", "copro", "gepa")
