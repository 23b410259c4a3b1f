"""Memory of trainings that is computed from the shape of a model: no GPU and no weights are needed."""

import json

import pytest
from mempiler.engines.local.memory_plan import TrainingMemory, reader_gigabytes, vllm_use
from mempiler.engines.local.model_shape import KNOWN_SHAPES, ModelShape, model_shape
from mempiler.errors import DataError

SEVEN = KNOWN_SHAPES["qwen2.5-7b-instruct"]


def config_of(shape: ModelShape) -> dict[str, object]:
    return {
        "model_type": "qwen2",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.query // 128,
        "num_key_value_heads": shape.key_value // 128,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
    }


@pytest.mark.parametrize("name", KNOWN_SHAPES)
def test_a_shape_has_as_many_weights_as_transformers_and_peft_make_of_it(name):
    torch = pytest.importorskip(
        "torch", reason="the `local` extra is not installed: pip install '.[local]'"
    )
    from mempiler.engines.local.loading import with_lora
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = KNOWN_SHAPES[name]
    config = config_of(shape)
    del config["model_type"]
    with torch.device("meta"):
        model = Qwen2ForCausalLM(Qwen2Config(**config))
        assert sum(weights.numel() for weights in model.parameters()) == shape.parameters
        adapted = with_lora(model, {"r": 16})
    trained = [weights.numel() for weights in adapted.parameters() if weights.requires_grad]
    assert sum(trained) == shape.adapter_parameters(16)


@pytest.mark.parametrize(
    ("name", "measured"), [("Qwen2.5-1.5B-Instruct", 13.2), ("Qwen2.5-7B-Instruct", 37.6)]
)
def test_a_pass_takes_what_was_measured_on_one_gpu(name, measured):
    """docs/training.md: LoRA 16, eight completions of 512 tokens after prompts of 4,096, gradient checkpointing."""
    shape = model_shape(f"Qwen/{name}")
    use = TrainingMemory(shape, rows=8, tokens=4608, lora=16, has_reference=False).use()
    assert use.total == pytest.approx(measured, rel=0.03)


def test_shards_are_equal_parts_and_loading_is_not():
    alone = TrainingMemory(SEVEN, rows=1, tokens=1000).use()
    shared = TrainingMemory(SEVEN, gpus=3, sharded=True, rows=1, tokens=1000, capacity=80).use()
    # Weights, gradient, two moments and reference in float32: 20 bytes of 7.6 billion weights.
    assert alone.parts["weights and optimizer"] == pytest.approx(152.3, abs=0.1)
    assert shared.parts["weights and optimizer"] == pytest.approx(152.3 / 3, abs=0.1)
    assert shared.loading == pytest.approx(30.5, abs=0.1)
    assert alone.loading == 0
    assert shared.fits is True
    assert alone.fits is None
    many = TrainingMemory(SEVEN, gpus=64, sharded=True, rows=1, tokens=1000, capacity=24).use()
    assert many.total == many.loading
    assert many.fits is False


def test_a_process_without_shards_has_all_weights_however_many_there_are():
    sizes = [TrainingMemory(SEVEN, gpus=gpus, rows=2).use().total for gpus in (1, 4)]
    assert sizes[0] == sizes[1]


def test_layers_that_are_kept_and_vllm_beside_a_training_take_more():
    plain = TrainingMemory(SEVEN, lora=16, rows=2, capacity=80)
    kept = TrainingMemory(SEVEN, lora=16, rows=2, capacity=80, is_checkpointed=False)
    beside = TrainingMemory(SEVEN, lora=16, rows=2, capacity=80, colocated=0.35)
    assert kept.use().parts["activations"] > 5 * plain.use().parts["activations"]
    assert beside.use().total == pytest.approx(plain.use().total + 28)


def test_a_folder_says_its_shape_and_a_name_that_nobody_knows_has_none(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config_of(SEVEN)))
    assert model_shape(str(tmp_path)) == SEVEN
    (tmp_path / "config.json").write_text(json.dumps({"d_model": 512}))
    assert model_shape(str(tmp_path)) is None
    assert model_shape("nobody/Nothing-9B") is None
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json: cannot be read as JSON"):
        model_shape(str(tmp_path))


def test_a_server_fills_its_share_of_a_gpu():
    use = vllm_use("sampling", 1, weights=15.2, capacity=80)
    assert use.parts == {"weights": 15.2, "cache of vLLM": pytest.approx(56.8)}
    assert use.total == pytest.approx(72)
    assert use.fits is True
    assert vllm_use("sampling", 1, weights=90, capacity=80).fits is False
    unknown = vllm_use("answers", 4, weights=None, capacity=80)
    assert unknown.fits is None
    assert unknown.summary()["total"] is None
    assert reader_gigabytes("openai/openai/gpt-oss-120b") == 65.3
    assert reader_gigabytes("openai/gpt-4.1-mini") is None
