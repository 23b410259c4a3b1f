"""Loading, encoding, saving, LoRA, weights; sampling and scoring, where padding changes nothing and seeds decide."""

import ast
import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from mempiler.engines.local import loading
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.sampling import SampleRequest, row_seed
from mempiler.errors import MissingDependencyError, UserError

from tests.engines.local.groups import sample as draw

MESSAGES = [{"role": "system", "content": "w1"}, {"role": "user", "content": "w2 w3"}]
SAID = "{{ m['role'] + ': ' + m['content'] + ' ' }}"
TEMPLATE = (
    "{% for m in messages %}" + SAID + "{% endfor %}{% if add_generation_prompt %}w0{% endif %}"
)
REFUSES = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
    + TEMPLATE
)
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
    assert (
        loaded.state().keys()
        == adapted.state().keys()
        == {name for name in loaded.state() if "lora" in name}
    )
    (tmp_path / "base" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"adapter: cannot be loaded as a language model: .*base"):
        LocalModel.load(folder)


def test_a_new_adapter_follows_from_its_seed_alone(model, adapted, tmp_path):
    for other, settings, told in (
        (adapted, {"r": 2}, "has an adapter already"),
        (model, {"rank": 2}, "lora = .*rank"),
    ):
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


def test_every_element_of_a_large_tensor_is_in_the_fingerprint(make_model):
    models = [make_model(), make_model()]
    for model in models:
        torch.manual_seed(0)
        model.model.resize_token_embeddings(20_000)
    assert models[0].fingerprint == models[1].fingerprint
    weights = models[1].model.get_input_embeddings().weight
    with torch.no_grad():
        weights.view(-1)[weights.numel() // 2 + 1] += 1
    models[1].updated()
    assert models[0].fingerprint != models[1].fingerprint


def test_the_base_and_the_scale_of_an_adapter_are_in_the_fingerprint(model, tmp_path):
    folder = model.save(tmp_path / "base")
    prints = {
        LocalModel.load(folder, lora={"r": 2}).fingerprint,
        LocalModel.load(folder, lora={"r": 2}).fingerprint,
    }
    assert len(prints) == 1
    prints.add(LocalModel.load(folder, lora={"r": 2, "lora_alpha": 8}).fingerprint)
    with torch.no_grad():
        model.model.lm_head.weight[3, 0] += 1
    model.save(folder)
    prints.add(LocalModel.load(folder, lora={"r": 2}).fingerprint)
    assert len(prints) == 3


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", lambda found: {**found, "rms_norm_eps": 0.1}),
        ("config.json", lambda found: {**found, "eos_token_id": 7}),
        ("tokenizer.json", lambda found: {**found, "normalizer": {"type": "Lowercase"}}),
        ("tokenizer_config.json", lambda found: {**found, "chat_template": TEMPLATE}),
    ],
)
def test_the_fingerprint_covers_tokenizer_template_and_generation_settings(
    model, tmp_path, file, change
):
    folder = model.save(tmp_path / "model")
    before = LocalModel.load(folder).fingerprint
    assert before == LocalModel.load(folder).fingerprint == model.fingerprint
    path = folder / file
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    assert LocalModel.load(folder).fingerprint != before


def test_another_precision_is_another_fingerprint_and_float32_weights_for_training_are_not(
    model, tmp_path
):
    folder = model.save(tmp_path / "model")
    short, long = (LocalModel.load(folder, dtype=dtype) for dtype in ("bfloat16", "float32"))
    before = short.fingerprint
    assert before != long.fingerprint
    assert short.parameters()[0].dtype == torch.float32
    short.updated()
    assert short.fingerprint == before


def test_weights_of_another_model_are_refused(model, adapted):
    for state in (adapted.state(), {name: value[:1] for name, value in model.state().items()}):
        with pytest.raises(UserError, match="not those of tiny"):
            model.load_state(state)


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("/no/such/folder", {}, "/no/such/folder: no such folder, and no hub model"),
        (".", {}, "cannot be loaded as a language model"),
        ("x", {"dtype": "int4"}, "dtype 'int4' is unknown; choose one of: float32, bfloat16"),
    ],
)
def test_a_missing_model_is_one_line(name, how, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        LocalModel.load(name, **how)


def test_weights_are_loaded_as_bfloat16_where_that_is_asked_for_and_an_adapter_learns_as_float32(
    model, tmp_path
):
    base = model.save(tmp_path / "base")
    whole, half = (
        LocalModel.load(base, device="cpu", lora={"r": 2}, dtype=dtype)
        for dtype in (None, "bfloat16")
    )
    whole.load_state(half.state())
    frozen = [
        {p.dtype for p in each.model.parameters() if not p.requires_grad} for each in (whole, half)
    ]
    assert frozen == [{torch.float32}, {torch.bfloat16}]
    assert {p.dtype for p in half.parameters()} == {torch.float32}
    assert whole.half is False
    assert half.half is True
    assert half.copy().half is True
    prompts, answers = [[6, 7, 8], [9]], [[8, 9, 1], [10]]
    for row, other in zip(
        half.logprobs(prompts, answers), whole.logprobs(prompts, answers), strict=True
    ):
        assert row == pytest.approx(other, abs=0.1)
        assert row != other
    found, _ = half.token_logprobs(prompts, answers)
    found.sum().backward()
    assert found.dtype == torch.float32
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in half.parameters())


def test_a_missing_extra_is_named_with_the_install_line(monkeypatch):
    find = loading.importlib.util.find_spec
    monkeypatch.setattr(
        loading.importlib.util, "find_spec", lambda name: None if name == "torch" else find(name)
    )
    line = r"torch is not installed; run: pip install '.\[local\]'"
    with pytest.raises(MissingDependencyError, match=line):
        LocalModel.load("x")


def test_no_module_of_the_engine_imports_torch_before_it_is_used():
    sources = [ast.parse(path.read_text()) for path in Path(loading.__file__).parent.glob("*.py")]
    lines = [
        ast.unparse(node)
        for source in sources
        for node in source.body
        if not isinstance(node, ast.If | ast.Expr)
    ]
    assert not [
        line
        for line in lines
        if line.startswith(("import torch", "from torch", "from transformers", "import trans"))
    ]


def test_code_that_comes_with_a_model_is_neither_run_nor_asked_about(tmp_path, monkeypatch):
    def asked(*_):
        raise AssertionError("asked whether to run the code of a model")

    monkeypatch.setattr("builtins.input", asked)
    auto = {
        "AutoConfig": "code.Mine",
        "AutoTokenizer": ["code.Mine", None],
        "AutoModelForCausalLM": "code.Mine",
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": auto}))
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match="cannot be loaded as a language model"):
        LocalModel.load(str(tmp_path))
    assert not (tmp_path / "ran").exists()


PROMPTS = [[3, 7, 8, 9, 5], [3, 6, 5], [6], [3, 10, 11, 12, 13, 14, 15, 5]]


def logits_after(model, ids):
    with torch.no_grad():
        return model.model(torch.tensor([ids])).logits[0, -1]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_of_a_padded_batch_are_those_of_each_row_alone(model, temperature):
    samples = draw(model, PROMPTS, temperature, 12, seed=3)
    scored = model.logprobs(
        [s.prompt_ids for s in samples], [s.completion_ids for s in samples], temperature
    )
    for sample, row in zip(samples, scored, strict=True):
        before = [
            [*sample.prompt_ids, *sample.completion_ids[:n]]
            for n in range(len(sample.completion_ids))
        ]
        logits = [(logits_after(model, ids) / temperature).log_softmax(-1) for ids in before]
        alone = [
            float(each[token]) for each, token in zip(logits, sample.completion_ids, strict=True)
        ]
        assert sample.logprobs == pytest.approx(alone, abs=1e-5)
        assert row == pytest.approx(alone, abs=1e-5)
    assert model.logprobs([[6, 7], [6]], [[], [8]])[0] == []
    assert model.logprobs([[6]], [[]]) == [[]]


def test_a_row_gets_the_same_alone_and_in_company_whatever_the_limits_of_others(model):
    seeds, limits = [row_seed(5, prompt, 0) for prompt in PROMPTS], [1, 16, 0, 4]
    batch = model.sample(
        [SampleRequest(p, 1.0, 16, seed) for p, seed in zip(PROMPTS, seeds, strict=True)]
    )
    mixed = model.sample(
        [
            SampleRequest(p, 1.0, limit, seed)
            for p, limit, seed in zip(PROMPTS, limits, seeds, strict=True)
        ]
    )
    for prompt, sample, cut, limit, seed in zip(PROMPTS, batch, mixed, limits, seeds, strict=True):
        [alone] = model.sample([SampleRequest(prompt, 1.0, 16, seed)])
        assert alone.completion_ids == sample.completion_ids
        assert cut.completion_ids == sample.completion_ids[:limit]


def test_tokens_are_drawn_as_often_as_the_model_says_and_at_zero_the_likeliest(model):
    draws, logits = 4000, logits_after(model, PROMPTS[1])
    counts = Counter(
        sample.completion_ids[0] for sample in draw(model, [PROMPTS[1]] * draws, 1.0, 1, seed=11)
    )
    # Five standard errors of a share at most 1/2.
    for token, share in enumerate(logits.softmax(-1).tolist()):
        assert counts[token] / draws == pytest.approx(share, abs=5 * 0.5 / draws**0.5)
    [cold] = draw(model, [PROMPTS[1]], 0.0, 1)
    assert cold.completion_ids == (int(logits.argmax()),)
    assert cold.logprobs[0] == pytest.approx(float(logits.log_softmax(-1).max()), abs=1e-5)


def test_the_end_token_ends_a_completion_and_belongs_to_it(make_model):
    model = make_model()
    with torch.no_grad():
        model.model.lm_head.weight[1] = 50 * model.model.lm_head.weight[6]
    samples = draw(model, [PROMPTS[0]] * 32, 1.0, 8)
    ended = [sample for sample in samples if sample.finished]
    assert ended
    assert all(
        s.completion_ids.index(1) == len(s.completion_ids) - 1 and "<eos>" not in s.text
        for s in ended
    )
    assert all(len(s.completion_ids) == 8 for s in samples if not s.finished)


def test_a_completion_stops_where_the_context_ends_and_a_prompt_has_to_fit(make_model):
    model = make_model(context=10)
    [sample] = draw(model, [[6] * 7], 1.0, 100, seed=2)
    assert len(sample.completion_ids) <= 3
    for length in (0, 10, 500):
        with pytest.raises(
            UserError, match=f"a prompt of {length} tokens does not fit tiny, which holds 10"
        ):
            draw(model, [[6] * length])
