"""Local models: loading, prompts, adapters, fingerprints, log-probabilities and samples.

The fixture `model` is a model of a few thousand random weights, whose words are w0 to w19; the
token id of w0 is 6, that of w1 is 7, and so on. A fingerprint names everything that decides what a
model answers, so that answers can be cached under it.
"""

import ast
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mempiler.engines.local import loading
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.sampling import SampleRequest, row_seed
from mempiler.errors import MissingDependencyError, UserError

from tests.engines.local.groups import draw

END = 1
"""The id of the token that ends a completion."""
USER = 3
ASSISTANT = 5
W0, W1, W2, W3 = 6, 7, 8, 9
"""The ids of the words w0 to w3."""
LONG_PROMPT = [USER, W0, W1, W2, W3, W2, W1, ASSISTANT]

# Prompts.

PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}w0{% endif %}"
)
TEMPLATE_THAT_REFUSES_SYSTEM_MESSAGES = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
    + PLAIN_TEMPLATE
)
TEMPLATE_THAT_DROPS_SYSTEM_MESSAGES = (
    "{% for m in messages %}{% if m['role'] != 'system' %}"
    "{{ m['role'] + ': ' + m['content'] + ' ' }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}w0{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "expected_prompt"),
    [
        pytest.param(None, "system: w1 user: w2 w3 assistant:", id="no template"),
        pytest.param(PLAIN_TEMPLATE, "system: w1 user: w2 w3 w0", id="plain"),
        pytest.param(
            TEMPLATE_THAT_REFUSES_SYSTEM_MESSAGES, "user: w1 w2 w3 w0", id="refuses system messages"
        ),
        pytest.param(
            TEMPLATE_THAT_DROPS_SYSTEM_MESSAGES, "user: w1 w2 w3 w0", id="drops system messages"
        ),
    ],
)
def test_the_text_of_the_system_message_reaches_the_model_whatever_its_template_does(
    make_model: Callable[..., Any], template: str | None, expected_prompt: str
) -> None:
    """The template of a tokenizer turns messages into one text; some take no system message.

    Then the text of the system message goes to the beginning of the user's message.
    """
    model = make_model(template=template)
    messages = [{"role": "system", "content": "w1"}, {"role": "user", "content": "w2 w3"}]

    words = model.tokenizer.convert_ids_to_tokens(model.encode(messages))

    assert words == expected_prompt.split()


# Adapters.


@pytest.fixture
def adapted_model(model: Any, tmp_path: Path) -> LocalModel:
    """A model with an adapter whose weights are not those of a new one; its base is saved."""
    base_folder = model.save(tmp_path / "base")
    new_model = LocalModel.load(base_folder, lora={"r": 2})
    for parameter in new_model.parameters():
        torch.nn.init.constant_(parameter, 0.05)
    new_model.updated()
    return new_model


def test_a_saved_adapter_has_only_its_own_weights(
    adapted_model: LocalModel, tmp_path: Path
) -> None:
    """An adapter is a small set of weights on top of a base model; here it is LoRA of rank 2."""
    folder = adapted_model.save(tmp_path / "adapter")
    assert not (folder / "model.safetensors").exists()


def test_a_saved_adapter_is_loaded_over_its_base_and_can_be_trained_on(
    adapted_model: LocalModel, tmp_path: Path
) -> None:
    folder = adapted_model.save(tmp_path / "adapter")

    loaded_model = LocalModel.load(folder)

    assert loaded_model.fingerprint == adapted_model.fingerprint
    assert loaded_model.state().keys() == adapted_model.state().keys()
    assert all("lora" in name for name in loaded_model.state())


def test_an_adapter_whose_base_is_missing_is_refused(
    adapted_model: LocalModel, tmp_path: Path
) -> None:
    folder = adapted_model.save(tmp_path / "adapter")
    (tmp_path / "base" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"adapter: cannot be loaded as a language model: .*base"):
        LocalModel.load(folder)


def test_a_second_adapter_is_refused(adapted_model: LocalModel) -> None:
    with pytest.raises(UserError, match="has an adapter already"):
        loading.with_lora(adapted_model.model, {"r": 2})


def test_an_unknown_setting_of_an_adapter_is_refused(model: Any) -> None:
    # The rank of an adapter is called "r".
    with pytest.raises(UserError, match=r"lora = .*rank"):
        loading.with_lora(model.model, {"rank": 2})


def test_the_weights_of_a_new_adapter_depend_on_its_seed_alone(model: Any, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "base")
    random_state = torch.random.get_rng_state()

    first = LocalModel.load(folder, lora={"r": 2}, seed=1)
    second = LocalModel.load(folder, lora={"r": 2}, seed=1)
    with_another_seed = LocalModel.load(folder, lora={"r": 2}, seed=2)

    assert first.fingerprint == second.fingerprint
    assert first.fingerprint != with_another_seed.fingerprint
    # The random numbers of the rest of the program are as if nothing had been loaded.
    assert torch.equal(torch.random.get_rng_state(), random_state)


# The frozen reference: the weights from before a training, with which those of now are compared.


@pytest.fixture(params=["model", "adapted_model"])
def model_or_adapted_model(request: pytest.FixtureRequest) -> LocalModel:
    """A model of which all weights are trained, and one of which only an adapter is trained."""
    return request.getfixturevalue(request.param)


def test_the_reference_keeps_the_weights_of_the_moment_when_it_was_frozen(
    model_or_adapted_model: LocalModel,
) -> None:
    """The reference is the model before a training; `logprobs` scores a completion by it."""
    model = model_or_adapted_model
    original_logprobs = model.logprobs(prompts=[[W0]], completions=[[W1]])

    model.freeze_reference()
    change_all_weights(model)

    assert model.logprobs(prompts=[[W0]], completions=[[W1]], reference=True) == original_logprobs
    assert model.logprobs(prompts=[[W0]], completions=[[W1]]) != original_logprobs


def test_scoring_by_the_reference_does_not_change_the_present_weights(
    model_or_adapted_model: LocalModel,
) -> None:
    """The fingerprint names the weights. The reference is the model before a training."""
    model = model_or_adapted_model
    model.freeze_reference()
    change_all_weights(model)
    fingerprint = model.fingerprint

    model.logprobs(prompts=[[W0]], completions=[[W1]], reference=True)

    model.updated()  # has the fingerprint computed anew
    assert model.fingerprint == fingerprint


def change_all_weights(model: LocalModel) -> None:
    """Change the weights that are trained, as a training would."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape))
    model.updated()


def test_without_a_reference_there_is_nothing_to_score_by(
    model_or_adapted_model: LocalModel,
) -> None:
    """The reference is the model before a training; nobody has frozen it here."""
    model = model_or_adapted_model
    with pytest.raises(UserError, match="freeze_reference"):
        model.logprobs(prompts=[[W0]], completions=[[W1]], reference=True)


# Fingerprints.


def test_a_change_of_one_number_in_a_large_tensor_changes_the_fingerprint(
    make_model: Callable[..., Any],
) -> None:
    """The embeddings are made large, and one number in their middle is changed."""
    model = make_model()
    changed_model = make_model()
    for large_model in (model, changed_model):
        torch.manual_seed(0)
        large_model.model.resize_token_embeddings(20_000)
    assert changed_model.fingerprint == model.fingerprint

    weights = changed_model.model.get_input_embeddings().weight
    place_in_the_middle = weights.numel() // 2 + 1
    with torch.no_grad():
        weights.view(-1)[place_in_the_middle] += 1
    changed_model.updated()

    assert changed_model.fingerprint != model.fingerprint


def test_another_base_or_scale_of_an_adapter_changes_the_fingerprint(
    model: Any, tmp_path: Path
) -> None:
    folder = model.save(tmp_path / "base")
    fingerprint = LocalModel.load(folder, lora={"r": 2}).fingerprint
    assert LocalModel.load(folder, lora={"r": 2}).fingerprint == fingerprint

    other_scale = LocalModel.load(folder, lora={"r": 2, "lora_alpha": 8}).fingerprint
    with torch.no_grad():  # changes one number of the base
        model.model.lm_head.weight[3, 0] += 1
    model.save(folder)
    other_base = LocalModel.load(folder, lora={"r": 2}).fingerprint

    assert other_scale != fingerprint
    assert other_base != fingerprint
    assert other_base != other_scale


@pytest.mark.parametrize(
    ("file_name", "changed_fields"),
    [
        pytest.param("config.json", {"rms_norm_eps": 0.1}, id="config"),
        pytest.param("config.json", {"eos_token_id": 7}, id="token that ends a completion"),
        pytest.param("tokenizer.json", {"normalizer": {"type": "Lowercase"}}, id="tokenizer"),
        pytest.param("tokenizer_config.json", {"chat_template": PLAIN_TEMPLATE}, id="template"),
    ],
)
def test_a_change_of_config_tokenizer_or_template_changes_the_fingerprint(
    model: Any, tmp_path: Path, file_name: str, changed_fields: dict[str, Any]
) -> None:
    folder = model.save(tmp_path / "model")
    assert LocalModel.load(folder).fingerprint == model.fingerprint

    path = folder / file_name
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changed_fields}))

    assert LocalModel.load(folder).fingerprint != model.fingerprint


def test_another_precision_has_another_fingerprint(model: Any, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    half_model = LocalModel.load(folder, dtype="bfloat16")
    full_model = LocalModel.load(folder, dtype="float32")
    assert half_model.fingerprint != full_model.fingerprint


def test_the_float32_weights_of_a_training_have_the_fingerprint_of_the_loaded_ones(
    model: Any, tmp_path: Path
) -> None:
    half_model = LocalModel.load(model.save(tmp_path / "model"), dtype="bfloat16")
    fingerprint = half_model.fingerprint

    # Whoever asks for the parameters wants to train them, which turns them into float32.
    trained_parameters = half_model.parameters()
    assert trained_parameters[0].dtype == torch.float32

    half_model.updated()  # has the fingerprint computed anew
    assert half_model.fingerprint == fingerprint


# Weights.


def test_weights_with_the_names_of_another_model_are_refused(
    model: Any, adapted_model: LocalModel
) -> None:
    with pytest.raises(UserError, match="not those of tiny"):
        model.load_state(adapted_model.state())


def test_weights_with_the_shapes_of_another_model_are_refused(model: Any) -> None:
    first_rows = {name: values[:1] for name, values in model.state().items()}
    with pytest.raises(UserError, match="not those of tiny"):
        model.load_state(first_rows)


@pytest.fixture
def half_model(model: Any, tmp_path: Path) -> LocalModel:
    """A model with an adapter that was loaded as bfloat16."""
    folder = model.save(tmp_path / "base")
    return LocalModel.load(folder, device="cpu", lora={"r": 2}, dtype="bfloat16")


@pytest.fixture
def full_model(tmp_path: Path, half_model: LocalModel) -> LocalModel:
    """The same model, loaded as float32."""
    same_model = LocalModel.load(tmp_path / "base", device="cpu", lora={"r": 2})
    same_model.load_state(half_model.state())
    return same_model


def frozen_types(model: LocalModel) -> set[torch.dtype]:
    """Return the types of the weights that are not trained: all but those of an adapter."""
    weights = model.model.parameters()
    return {parameter.dtype for parameter in weights if not parameter.requires_grad}


def test_weights_are_loaded_as_bfloat16_only_where_that_is_asked_for(
    half_model: LocalModel, full_model: LocalModel
) -> None:
    assert frozen_types(half_model) == {torch.bfloat16}
    assert half_model.half is True
    assert half_model.copy().half is True

    assert frozen_types(full_model) == {torch.float32}
    assert full_model.half is False


def test_a_model_of_bfloat16_computes_nearly_the_same_log_probabilities(
    half_model: LocalModel, full_model: LocalModel
) -> None:
    """bfloat16 and float32 are numbers of two and of four bytes."""
    prompts = [[W0, W1, W2], [W3]]
    completions = [[W2, W3, END], [W3]]

    half_rows = half_model.logprobs(prompts, completions)
    full_rows = full_model.logprobs(prompts, completions)

    for half_row, full_row in zip(half_rows, full_rows, strict=True):
        assert half_row == pytest.approx(full_row, abs=0.1)
        assert half_row != full_row


def test_an_adapter_of_a_bfloat16_model_learns_as_float32(half_model: LocalModel) -> None:
    """The parameters of a model with an adapter are those that are trained: the adapter's."""
    logprobs, _ = half_model.token_logprobs(prompts=[[W0, W1, W2]], completions=[[W2, W3, END]])
    logprobs.sum().backward()

    assert logprobs.dtype == torch.float32
    for parameter in half_model.parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32


# Loading that fails.


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        pytest.param(
            "/no/such/folder",
            {},
            "/no/such/folder: no such folder, and no hub model",
            id="no folder",
        ),
        pytest.param(".", {}, "cannot be loaded as a language model", id="an empty folder"),
        pytest.param(
            "x",
            {"dtype": "int4"},
            "dtype 'int4' is unknown; choose one of: float32, bfloat16",
            id="an unknown type",
        ),
    ],
)
def test_a_model_that_cannot_be_loaded_is_a_user_error(
    name: str,
    options: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        LocalModel.load(name, **options)


def test_without_torch_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # it cannot be found any more
    message = r"torch is not installed; run: pip install '.\[local\]'"
    with pytest.raises(MissingDependencyError, match=message):
        LocalModel.load("x")


def test_no_module_of_the_local_engine_imports_torch_when_it_is_imported() -> None:
    """To import torch takes seconds, and it may be missing, so only functions import it."""
    heavy_packages = ("torch", "transformers")
    for path in Path(loading.__file__).parent.glob("*.py"):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Import):
                imported_modules = [alias.name for alias in statement.names]
            elif isinstance(statement, ast.ImportFrom):
                imported_modules = [statement.module or ""]
            else:
                continue  # imports below `if TYPE_CHECKING` are not run
            for module in imported_modules:
                assert module.partition(".")[0] not in heavy_packages, path


def test_code_that_comes_with_a_model_is_neither_run_nor_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The config of a model may name classes in a Python file beside it, which could do harm."""

    def fail_if_asked(*_: Any) -> str:
        pytest.fail("the user was asked whether to run the code of a model")

    monkeypatch.setattr("builtins.input", fail_if_asked)
    custom_classes = {
        "AutoConfig": "code.Mine",
        "AutoTokenizer": ["code.Mine", None],
        "AutoModelForCausalLM": "code.Mine",
    }
    config = {"model_type": "mine", "auto_map": custom_classes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    trace_of_code = tmp_path / "ran"
    (tmp_path / "code.py").write_text(f"open({str(trace_of_code)!r}, 'w')")

    with pytest.raises(UserError, match="cannot be loaded as a language model"):
        LocalModel.load(str(tmp_path))

    assert not trace_of_code.exists()


# Log-probabilities and samples.


def next_token_logits(model: Any, ids: list[int]) -> torch.Tensor:
    """Return the logits of the token that follows some token ids."""
    with torch.no_grad():
        return model.model(torch.tensor([ids])).logits[0, -1]


def logprobs_token_by_token(model: Any, sample: Any, temperature: float) -> list[float]:
    """Return the log-probability of each sampled token, from one pass for each of them."""
    values: list[float] = []
    ids = list(sample.prompt_ids)
    for token in sample.completion_ids:
        logits = next_token_logits(model, ids) / temperature
        values.append(float(logits.log_softmax(-1)[token]))
        ids.append(token)
    return values


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_of_a_padded_batch_are_those_of_each_row_alone(
    model: Any, temperature: float
) -> None:
    """Rows of a batch are padded to the longest. The sampler gives log-probabilities as well."""
    prompts_of_different_lengths = [[USER, W1, W2, W3, ASSISTANT], [W0], LONG_PROMPT]
    samples = draw(model, prompts_of_different_lengths, temperature, max_tokens=12, seed=3)

    scores = model.logprobs(
        [sample.prompt_ids for sample in samples],
        [sample.completion_ids for sample in samples],
        temperature,
    )

    for sample, values in zip(samples, scores, strict=True):
        expected_values = logprobs_token_by_token(model, sample, temperature)
        assert values == pytest.approx(expected_values, abs=1e-5)
        assert list(sample.logprobs) == pytest.approx(expected_values, abs=1e-5)


def test_an_empty_completion_has_no_logprobs(model: Any) -> None:
    assert model.logprobs(prompts=[[W0]], completions=[[]]) == [[]]


def test_an_empty_completion_beside_another_one_has_no_logprobs(model: Any) -> None:
    values_of_empty_one, values_of_other_one = model.logprobs(
        prompts=[[W0, W1], [W0]], completions=[[], [W2]]
    )

    assert values_of_empty_one == []
    assert len(values_of_other_one) == 1


def request_for_16_tokens(prompt: list[int]) -> SampleRequest:
    """Return a request for a sample of 16 new tokens; its seed depends on the prompt."""
    seed = row_seed(5, prompt, occurrence=0)
    return SampleRequest(prompt, temperature=1.0, max_tokens=16, seed=seed)


def test_a_row_gets_the_same_tokens_alone_and_beside_others(model: Any) -> None:
    """A row is a prompt in a batch; each has a seed of its own."""
    requests = [
        request_for_16_tokens([USER, W1, W2, W3, ASSISTANT]),
        request_for_16_tokens([W0]),
        request_for_16_tokens(LONG_PROMPT),
    ]

    samples = model.sample(requests)

    for request, sample in zip(requests, samples, strict=True):
        (sample_alone,) = model.sample([request])
        assert sample_alone.completion_ids == sample.completion_ids


def test_a_row_gets_the_same_tokens_beside_rows_with_other_limits(model: Any) -> None:
    """The limit of new tokens of a row ends its completion earlier, and changes nothing else."""
    prompts = [[USER, W1, W2, W3, ASSISTANT], [USER, W0, ASSISTANT], [W0], LONG_PROMPT]
    limits = [1, 16, 0, 4]
    requests = [request_for_16_tokens(prompt) for prompt in prompts]
    limited_requests = [
        request._replace(max_tokens=limit) for request, limit in zip(requests, limits, strict=True)
    ]

    samples = model.sample(requests)
    limited_samples = model.sample(limited_requests)

    for limit, sample, limited_sample in zip(limits, samples, limited_samples, strict=True):
        assert limited_sample.completion_ids == sample.completion_ids[:limit]


def test_tokens_are_drawn_as_often_as_the_model_says(model: Any) -> None:
    draw_count = 4000
    prompt = [USER, W0, ASSISTANT]
    probabilities = next_token_logits(model, prompt).softmax(-1).tolist()

    samples = draw(model, [prompt] * draw_count, temperature=1.0, max_tokens=1, seed=11)

    counts = Counter(sample.completion_ids[0] for sample in samples)
    # The standard error of a share is largest for a probability of one half.
    five_standard_errors = 5 * 0.5 / draw_count**0.5
    for token, probability in enumerate(probabilities):
        share = counts[token] / draw_count
        assert share == pytest.approx(probability, abs=five_standard_errors)


def test_at_temperature_0_the_likeliest_token_is_taken(model: Any) -> None:
    prompt = [USER, W0, ASSISTANT]
    logits = next_token_logits(model, prompt)

    (sample,) = draw(model, [prompt], temperature=0.0, max_tokens=1)

    assert sample.completion_ids == (int(logits.argmax()),)
    assert sample.logprobs[0] == pytest.approx(float(logits.log_softmax(-1).max()), abs=1e-5)


def test_the_end_token_ends_a_completion_and_belongs_to_it(make_model: Callable[..., Any]) -> None:
    model = make_model()
    with torch.no_grad():  # makes the end likely
        model.model.lm_head.weight[END] = 50 * model.model.lm_head.weight[W0]

    samples = draw(model, [[USER, W1, W2, W3, ASSISTANT]] * 32, temperature=1.0, max_tokens=8)

    ended_samples = [sample for sample in samples if sample.finished]
    assert len(ended_samples) > 0
    for sample in ended_samples:
        assert sample.completion_ids.index(END) == len(sample.completion_ids) - 1
        assert "<eos>" not in sample.text
    for sample in samples:
        if not sample.finished:
            assert len(sample.completion_ids) == 8


def test_a_completion_stops_where_the_context_ends(make_model: Callable[..., Any]) -> None:
    """The context has room for ten tokens, of which the prompt takes seven."""
    model = make_model(context=10)
    prompt_of_seven_tokens = [W0] * 7

    (sample,) = draw(model, [prompt_of_seven_tokens], temperature=1.0, max_tokens=100, seed=2)

    assert len(sample.completion_ids) <= 3


@pytest.mark.parametrize("length", [0, 10, 500])
def test_a_prompt_that_is_empty_or_fills_the_context_is_refused(
    make_model: Callable[..., Any], length: int
) -> None:
    model = make_model(context=10)
    prompt = [W0] * length
    message = f"a prompt of {length} tokens does not fit tiny, which holds 10"
    with pytest.raises(UserError, match=message):
        draw(model, [prompt])
