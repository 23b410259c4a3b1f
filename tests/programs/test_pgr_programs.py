"""PGR and its policy over other methods wherever a method name is taken: build, save, load, evaluate, compile."""

import dspy
import pytest
from mempiler.engines.embedders import embedder
from mempiler.errors import UserError
from mempiler.programs.catalog import build, needs_embedder
from mempiler.runs.artifact import load, save
from mempiler.runs.manifest import read_manifest


def made(name, **config):
    return build(name, embedder=embedder() if needs_embedder(name) else None, **config)


@pytest.mark.parametrize("name", ["pgr+pgr+turn-rag", "pgr+pgr"])
def test_a_policy_does_not_stand_on_itself(name):
    with pytest.raises(UserError, match=r"^predictors .*imagine and .*imagine have equal signatures,.*$"):
        made(name)


def test_a_policy_stands_on_another_one(scripted, make_history):
    def reply(kind, text, n):
        return {"tree": [{"action_id": "A1", "action": "meet in Quito"}]} if kind == "tree" else {kind: "x"}

    config = {"iterations": 0, "augment": "none", "summary": False, "inner_k": 2, "inner_inner_k": 4}
    program = made("pgr+logs+turn-rag", **config)
    with dspy.context(lm=scripted(reply)):
        found = program(history=make_history(3), question="Where?").context
    assert any("Quito" in hit.text for hit in found.hits)
    assert config.items() <= program.method.config.items()
    assert set(program.all_predictors()) == {"method.reader.policy.imagine", "task.answer"}


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("pgr+turn-rag", {"inner_k": 7, "k": 3, "summary": False}),
        ("pgr+logs+turn-rag", {"iterations": 0, "inner_earlier": "none", "inner_inner_k": 7}),
    ],
)
def test_a_saved_program_is_loaded_with_the_settings_of_both_layers(name, config, tmp_path):
    program = made(name, **config)
    save(program, tmp_path / "program")
    loaded = load(tmp_path / "program")
    assert read_manifest(tmp_path / "program").method == loaded.name == name
    assert loaded.method.config == program.method.config
    assert config.items() <= loaded.method.config.items()
    assert set(loaded.all_predictors()) == set(program.all_predictors())
    before, after = (p.method.reader.policy.imagine.demos for p in (program, loaded))
    assert [dict(demo) for demo in after] == [dict(demo) for demo in before]
