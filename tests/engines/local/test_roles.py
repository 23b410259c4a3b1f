"""Separate weights: who answers whom, whom a group trains, checkpoints of all roles, and folders of several models."""

import asyncio
import json
from types import SimpleNamespace

import dspy
import pytest

torch = pytest.importorskip("torch", reason="local models need the local extra")

from mempiler.engines.local.engine import LocalEngine, local_lm  # noqa: E402
from mempiler.engines.local.model import LocalModel  # noqa: E402
from mempiler.engines.local.role_jobs import RoleReinforceJob  # noqa: E402
from mempiler.engines.models import keep, language_model  # noqa: E402
from mempiler.errors import DataError, UserError  # noqa: E402
from mempiler.programs.gather import gather  # noqa: E402

from tests.engines.local.groups import ASKED, text_group  # noqa: E402

PATHS = {"extract": "method.writer.extract", "manage": "method.writer.manage"}


def group(role, *rewards):
    return text_group(*(f"w{n + 5}" for n in range(len(rewards))), rewards=rewards, role=role)


def separate(model, **settings):
    lm = local_lm(model, max_tokens=5)
    lm.separate(PATHS)
    return lm, lm.reinforce({"learning_rate": 1e-2, **settings})


def prints(lm):
    return {name: model.fingerprint for name, model in lm.engine.model.models.items()}


def ask_as(lm, path, prompt="w1 w2"):
    with dspy.context(caller_modules=[SimpleNamespace(path=path, history=[])]):
        return lm(prompt)


def test_each_predictor_is_answered_by_its_own_model_and_others_by_the_start(make_model):
    start, other = make_model(), make_model(seed=5)
    alone = [local_lm(model, max_tokens=5)("w1 w2") for model in (start, other)]
    assert alone[0] != alone[1]
    lm, job = separate(start)
    copied = lm.copy(max_tokens=5)
    job.model.models["manage"].load_state(other.state())
    for each in (lm, copied):
        assert ask_as(each, PATHS["manage"]) == alone[1]
        assert ask_as(each, PATHS["extract"]) == ask_as(each, "reader.answer") == each("w1 w2") == alone[0]


@pytest.mark.parametrize("adapter", [False, True])
def test_groups_of_a_role_never_touch_the_other_model(model, tmp_path, adapter):
    if adapter:
        pytest.importorskip("peft", reason="local models need the local extra")
        model = LocalModel.load(model.save(tmp_path), lora={"r": 2})
    lm, job = separate(model, beta=0.02)
    before, start = prints(lm), LocalModel(model.model, model.tokenizer).fingerprint
    said = job.step([group("extract", 1.0, 1.0), group("manage", 1.0, 0.0)])
    after = prints(lm)
    assert before["extract"] == before["manage"] == after["extract"] == start
    assert after["manage"] != start
    assert LocalModel(model.model, model.tokenizer).fingerprint == start
    assert (said["rows.extract"], said["rows.manage"], said["rows"], said["left_out"]) == (0, 2, 2, 1)
    job.step([group("extract", 1.0, 0.0)])
    assert prints(lm)["manage"] == after["manage"]
    assert prints(lm)["extract"] != start
    assert prints(language_model(keep(lm, tmp_path / "pair"))) == prints(lm)


def test_concurrent_and_asynchronous_calls_keep_to_their_roles(make_model):
    start, other = make_model(), make_model(seed=5)
    alone = {role: local_lm(model, max_tokens=5)("w1 w2") for role, model in (("extract", start), ("manage", other))}
    lm, job = separate(start)
    job.model.models["manage"].load_state(other.state())
    order = ["extract", "manage"] * 6
    assert gather([lambda role=role: ask_as(lm, PATHS[role]) for role in order]) == [alone[role] for role in order]
    with dspy.context(caller_modules=[SimpleNamespace(path=PATHS["manage"], history=[])]):
        assert asyncio.run(lm.acall("w1 w2")) == alone["manage"]


def test_a_group_of_no_trained_role_is_refused_before_any_update(model):
    lm, job = separate(model)
    before = prints(lm)
    with pytest.raises(DataError, match="role 'read'; trained are: extract, manage"):
        job.step([group("manage", 1.0, 0.0), group("read", 1.0, 0.0)])
    assert prints(lm) == before


def test_a_checkpoint_puts_both_roles_back_and_goes_on_as_unbroken(make_model, tmp_path):
    steps = [[group("extract", n / 3, 1.0, 0.2), group("manage", 0.5, n / 5, 0.0)] for n in range(4)]
    lm, job = separate(make_model(), output_dir=str(tmp_path))
    for n, step in enumerate(steps):
        job.step(step)
        if n == 1:
            job.save_checkpoint("half")
            half = prints(lm)
    assert [path.name for path in tmp_path.iterdir()] == ["half.pt"]
    other, resumed = separate(make_model(), output_dir=str(tmp_path))
    resumed.load_checkpoint(job.checkpoints["half"])
    assert prints(other) == half
    for step in steps[2:]:
        resumed.step(step)
    assert prints(other) == prints(lm) != half


def test_checkpoints_of_one_model_or_of_other_roles_are_refused(make_model, tmp_path):
    one = local_lm(make_model()).reinforce({"output_dir": str(tmp_path)})
    one.save_checkpoint("one")
    lm = local_lm(make_model())
    lm.separate({"extract": PATHS["extract"]})
    few = lm.reinforce({"output_dir": str(tmp_path)})
    few.save_checkpoint("few")
    _, job = separate(make_model())
    with pytest.raises(UserError, match="is no checkpoint of a local job"):
        job.load_checkpoint(tmp_path / "one.pt")
    with pytest.raises(UserError, match="holds weights of extract, but trained are extract, manage"):
        job.load_checkpoint(tmp_path / "few.pt")
    with pytest.raises(UserError, match="is no checkpoint of a local job"):
        one.load_checkpoint(tmp_path / "few.pt")
    with pytest.raises(UserError, match="output_dir"):
        job.save_checkpoint("x")


def test_the_end_writes_all_models_beside_each_other_and_a_cancel_none(make_model, tmp_path):
    lm, job = separate(make_model(), output_dir=str(tmp_path / "done"))
    job.step([group("manage", 1.0, 0.0)])
    assert job.status() == "running"
    job.terminate()
    assert job.status() == "terminated"
    folder = tmp_path / "done" / "model"
    assert json.loads((folder / "roles.json").read_text()) == PATHS
    assert LocalModel.load(folder / "roles" / "manage").fingerprint == prints(lm)["manage"]
    _, other = separate(make_model(), output_dir=str(tmp_path / "cancelled"))
    other.cancel()
    assert not (tmp_path / "cancelled").exists()


def test_a_folder_of_several_models_is_loaded_by_its_name_and_trained_on(model, tmp_path):
    lm, job = separate(model)
    job.step([group("manage", 1.0, 0.0), group("extract", 0.0, 1.0)])
    name = keep(lm, tmp_path / "pair")
    found = language_model(name, max_tokens=5)
    assert found.engine.model.fingerprint == lm.engine.model.fingerprint
    assert found.roles == {"extract", "manage"}
    for path in (*PATHS.values(), ""):
        assert ask_as(found, path, "w3") == ask_as(lm, path, "w3")
    assert isinstance(found.reinforce({}), RoleReinforceJob)
    assert LocalEngine.load_state(found.engine.dump_state()).weights_version == lm.engine.weights_version
    copied = found.engine.model.copy()
    job = found.reinforce({"learning_rate": 1e-2})
    job.step([group("manage", 1.0, 0.0)])
    assert copied.fingerprint == lm.engine.model.fingerprint != found.engine.model.fingerprint


def test_what_takes_one_model_refuses_a_folder_of_several(model, tmp_path):
    lm, _ = separate(model)
    folder = lm.engine.model.save(tmp_path / "pair")
    with pytest.raises(UserError, match="holds a model for each role"):
        LocalModel.load(folder)
    rows = [{"messages": [*ASKED, {"role": "assistant", "content": "w3"}]}]
    result = lm.finetune(rows, None).result()
    assert isinstance(result, UserError)
    assert "has a model for each role" in str(result)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"../x": "method.writer.x"}', '{"x": 1}'])
def test_a_folder_that_does_not_name_its_roles_is_one_line(model, tmp_path, text):
    lm, _ = separate(model)
    (lm.engine.model.save(tmp_path) / "roles.json").write_text(text)
    with pytest.raises(UserError, match="does not name the roles of models"):
        language_model(f"local:{tmp_path}")
