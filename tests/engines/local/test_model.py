"""Loading, encoding, saving, LoRA, weights; and one-line errors for what is not there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="local models need the local extra")

from mempiler.engines.local import loading  # noqa: E402
from mempiler.engines.local.model import LocalModel  # noqa: E402
from mempiler.errors import MissingDependencyError, UserError  # noqa: E402

MESSAGES = [{"role": "system", "content": "w1"}, {"role": "user", "content": "w2 w3"}]
SAID = "{{ m['role'] + ': ' + m['content'] + ' ' }}"
TEMPLATE = "{% for m in messages %}" + SAID + "{% endfor %}{% if add_generation_prompt %}w0{% endif %}"
REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role') }}{% endif %}" + TEMPLATE
DROPS = TEMPLATE.replace(SAID, "{% if m['role'] != 'system' %}" + SAID + "{% endif %}")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, "system: w1 user: w2 w3 assistant:"),
        (TEMPLATE, "system: w1 user: w2 w3 w0"),
        (REFUSES, "user: w1 w2 w3 w0"),
        (DROPS, "user: w1 w2 w3 w0"),
    ],
)
def test_the_system_s_text_reaches_the_model_whatever_its_template(make_model, template, expected):
    model = make_model(template=template)
    assert model.tokenizer.convert_ids_to_tokens(model.encode(MESSAGES)) == expected.split()


@pytest.fixture
def adapted(model, tmp_path):
    """A model with an adapter that is trained a little."""
    found = LocalModel.load(model.save(tmp_path / "base"), lora={"r": 2})
    for parameter in found.parameters():
        torch.nn.init.constant_(parameter, 0.05)
    found.updated()
    return found


def test_a_saved_adapter_is_loaded_over_its_base_and_can_be_trained_on(adapted, tmp_path):
    folder = adapted.save(tmp_path / "adapter")
    assert not (folder / "model.safetensors").exists()
    loaded = LocalModel.load(folder)
    assert loaded.fingerprint == adapted.fingerprint
    assert loaded.state().keys() == adapted.state().keys() == {name for name in loaded.state() if "lora" in name}
    (tmp_path / "base" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"adapter: cannot be loaded as a language model: .*base"):
        LocalModel.load(folder)


def test_a_new_adapter_follows_from_its_seed_alone(model, adapted, tmp_path):
    for other, settings, told in ((adapted, {"r": 2}, "has an adapter already"), (model, {"rank": 2}, "lora = .*rank")):
        with pytest.raises(UserError, match=told):
            loading.with_lora(other.model, settings)
    folder, before = model.save(tmp_path / "base"), torch.random.get_rng_state()
    prints = []
    for seed in (1, 1, 2):
        prints.append(LocalModel.load(folder, lora={"r": 2}, seed=seed).fingerprint)
        assert torch.equal(torch.random.get_rng_state(), before)
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("name", ["model", "adapted"])
def test_the_reference_is_what_the_weights_were_and_changes_nothing(request, name):
    model = request.getfixturevalue(name)
    with pytest.raises(UserError, match="freeze_reference"):
        model.logprobs([[6]], [[7]], reference=True)
    before = model.logprobs([[6]], [[7]])
    model.freeze_reference()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape))
    weights = model.fingerprint
    assert model.logprobs([[6]], [[7]], reference=True) == before
    assert model.logprobs([[6]], [[7]]) != before
    model.updated()
    assert model.fingerprint == weights


def test_weights_of_another_model_are_refused(model, adapted):
    for state in (adapted.state(), {name: value[:1] for name, value in model.state().items()}):
        with pytest.raises(UserError, match="not those of tiny"):
            model.load_state(state)


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("/no/such/folder", {}, "/no/such/folder: no such folder, and no hub model"),
        (".", {}, "cannot be loaded as a language model"),
        ("file", {}, "no such folder, and no hub model"),
        ("x", {"dtype": "int4"}, "dtype 'int4' is unknown; choose one of: float32, bfloat16"),
    ],
)
def test_a_model_that_is_not_there_is_told_in_one_line(name, how, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match=message) as told:
        LocalModel.load(name, **how)
    assert "\n" not in str(told.value)


def test_weights_are_loaded_as_bfloat16_where_that_is_asked_for_and_an_adapter_learns_as_float32(model, tmp_path):
    base = model.save(tmp_path / "base")
    whole, half = (LocalModel.load(base, device="cpu", lora={"r": 2}, dtype=dtype) for dtype in (None, "bfloat16"))
    whole.load_state(half.state())
    frozen = [{p.dtype for p in each.model.parameters() if not p.requires_grad} for each in (whole, half)]
    assert frozen == [{torch.float32}, {torch.bfloat16}]
    assert {p.dtype for p in half.parameters()} == {torch.float32}
    assert (whole.half, half.half, half.copy().half) == (False, True, True)
    prompts, answers = [[6, 7, 8], [9]], [[8, 9, 1], [10]]
    for row, other in zip(half.logprobs(prompts, answers), whole.logprobs(prompts, answers), strict=True):
        assert row == pytest.approx(other, abs=0.1)
        assert row != other
    found, _ = half.token_logprobs(prompts, answers)
    found.sum().backward()
    assert found.dtype == torch.float32
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in half.parameters())


def test_a_missing_extra_is_told_with_the_install_line(monkeypatch):
    find = loading.importlib.util.find_spec
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    line = r"torch is not installed; run: pip install '.\[local\]'"
    with pytest.raises(MissingDependencyError, match=line):
        LocalModel.load("x")


def test_no_module_of_the_engine_imports_torch_before_it_is_used():
    names = ", ".join(path.stem for path in Path(loading.__file__).parent.glob("[a-z]*.py"))
    script = f"from mempiler.engines.local import {names}; import sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_code_that_comes_with_a_model_is_neither_run_nor_asked_about(tmp_path, monkeypatch):
    def asked(*_):
        raise AssertionError("asked whether to run the code of a model")

    monkeypatch.setattr("builtins.input", asked)
    auto = {"AutoConfig": "code.Mine", "AutoTokenizer": ["code.Mine", None], "AutoModelForCausalLM": "code.Mine"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": auto}))
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match="cannot be loaded as a language model"):
        LocalModel.load(str(tmp_path))
    assert not (tmp_path / "ran").exists()
