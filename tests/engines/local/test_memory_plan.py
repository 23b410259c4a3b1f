"""Memory of trainings, computed from the shape of a model: neither GPU nor weights are needed.

A shape holds the sizes of a model. Memory is given in gigabytes of each GPU; `capacity` is what one
GPU has.
"""

import json
from pathlib import Path

import pytest
from mempiler.engines.local.memory_plan import TrainingMemory, reader_gigabytes, vllm_use
from mempiler.engines.local.model_shape import KNOWN_SHAPES, ModelShape, model_shape
from mempiler.errors import DataError

SHAPE_OF_7B = KNOWN_SHAPES["qwen2.5-7b-instruct"]


def config_of(shape: ModelShape) -> dict[str, object]:
    """Return the sizes of a shape as a `config.json` of transformers has them."""
    head_size = 128
    return {
        "model_type": "qwen2",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.query // head_size,
        "num_key_value_heads": shape.key_value // head_size,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
    }


@pytest.mark.parametrize("name", KNOWN_SHAPES)
def test_a_known_shape_has_as_many_weights_as_the_model_of_transformers(name: str) -> None:
    torch = pytest.importorskip(
        "torch", reason="the `local` extra is not installed: pip install '.[local]'"
    )
    from mempiler.engines.local.loading import with_lora
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = KNOWN_SHAPES[name]
    config = config_of(shape)
    del config["model_type"]
    with torch.device("meta"):  # without memory for the weights
        model = Qwen2ForCausalLM(Qwen2Config(**config))
        weight_count = sum(weights.numel() for weights in model.parameters())
        adapted_model = with_lora(model, {"r": 16})

    assert shape.parameters == weight_count
    adapter = [weights for weights in adapted_model.parameters() if weights.requires_grad]
    assert shape.adapter_parameters(16) == sum(weights.numel() for weights in adapter)


@pytest.mark.parametrize(
    ("name", "measured_gigabytes"),
    [("Qwen2.5-1.5B-Instruct", 13.2), ("Qwen2.5-7B-Instruct", 37.6)],
)
def test_the_estimate_of_a_pass_is_close_to_what_was_measured(
    name: str, measured_gigabytes: float
) -> None:
    """The measurement is one of docs/training.md.

    It was made on one GPU, with LoRA of rank 16 and gradient checkpointing, on eight completions of
    512 tokens after prompts of 4,096.
    """
    shape = model_shape(f"Qwen/{name}")
    assert shape is not None
    training = TrainingMemory(shape, rows=8, tokens=4608, lora=16, has_reference=False)
    assert training.use().total == pytest.approx(measured_gigabytes, rel=0.03)


def test_a_training_on_one_gpu_has_all_weights_there() -> None:
    """The model has 7.6 billion weights, and each takes five numbers of four bytes.

    They are the weight, its gradient, two moments of the optimizer and the weight of the reference.
    """
    gigabytes_of_one_number = 7.6 * 4
    use = TrainingMemory(SHAPE_OF_7B, rows=1, tokens=1000).use()

    assert use.parts["weights and optimizer"] == pytest.approx(5 * gigabytes_of_one_number, abs=0.5)
    assert use.loading == 0


def test_it_is_not_known_whether_a_training_fits_a_gpu_of_unknown_memory() -> None:
    assert TrainingMemory(SHAPE_OF_7B, rows=1, tokens=1000, capacity=None).use().fits is None


def test_every_gpu_has_its_share_of_sharded_weights_but_loads_all_of_them() -> None:
    """The model has 7.6 billion weights of four bytes. In a training each takes five numbers."""
    gigabytes_of_one_number = 7.6 * 4
    gigabytes_of_training = 5 * gigabytes_of_one_number
    use = TrainingMemory(SHAPE_OF_7B, gpus=3, sharded=True, rows=1, tokens=1000, capacity=80).use()

    assert use.parts["weights and optimizer"] == pytest.approx(gigabytes_of_training / 3, abs=0.5)
    assert use.loading == pytest.approx(gigabytes_of_one_number, abs=0.5)
    assert use.fits is True


def test_loading_decides_whether_a_training_fits_if_it_takes_the_most() -> None:
    """A share of one 64th is small, but every GPU loads all 30 GB of weights, and has 24 GB."""
    use = TrainingMemory(SHAPE_OF_7B, gpus=64, sharded=True, rows=1, tokens=1000, capacity=24).use()
    assert use.total == use.loading
    assert use.fits is False


def test_without_shards_every_gpu_has_all_weights() -> None:
    use_of_one = TrainingMemory(SHAPE_OF_7B, gpus=1, rows=2).use()
    use_of_four = TrainingMemory(SHAPE_OF_7B, gpus=4, rows=2).use()
    assert use_of_four.total == use_of_one.total


def test_a_training_without_checkpointing_takes_more_memory() -> None:
    # Checkpointing computes layers again, instead of keeping what they gave.
    with_checkpointing = TrainingMemory(SHAPE_OF_7B, lora=16, rows=2).use()
    without = TrainingMemory(SHAPE_OF_7B, lora=16, rows=2, is_checkpointed=False).use()
    assert without.parts["activations"] > 5 * with_checkpointing.parts["activations"]


def test_vllm_beside_a_training_takes_its_share_of_the_gpu() -> None:
    """vLLM is a fast sampler. It may run on the GPU of the training, in a share of its memory."""
    share = 0.35
    alone = TrainingMemory(SHAPE_OF_7B, lora=16, rows=2, capacity=80).use()
    beside_vllm = TrainingMemory(SHAPE_OF_7B, lora=16, rows=2, capacity=80, colocated=share).use()
    assert beside_vllm.total == pytest.approx(alone.total + share * 80)


# Shapes in folders.


def test_the_shape_of_a_folder_is_read_from_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of(SHAPE_OF_7B)))
    assert model_shape(str(tmp_path)) == SHAPE_OF_7B


def test_a_config_without_the_known_sizes_gives_no_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"d_model": 512}))
    assert model_shape(str(tmp_path)) is None


def test_a_config_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json: cannot be read as JSON"):
        model_shape(str(tmp_path))


def test_an_unknown_name_gives_no_shape() -> None:
    assert model_shape("nobody/Nothing-9B") is None


# Servers.


def test_a_vllm_server_fills_its_share_of_a_gpu() -> None:
    use = vllm_use("sampling", gpus=1, weights=15.2, capacity=80)
    # Nine tenths of the GPU: the weights, and a cache that takes all the rest.
    share_of_vllm = 0.9 * 80
    assert use.total == pytest.approx(share_of_vllm)
    assert use.parts == {"weights": 15.2, "cache of vLLM": pytest.approx(share_of_vllm - 15.2)}
    assert use.fits is True


def test_a_vllm_server_whose_weights_are_too_large_does_not_fit() -> None:
    assert vllm_use("sampling", gpus=1, weights=90, capacity=80).fits is False


def test_it_is_not_known_whether_a_server_with_unknown_weights_fits() -> None:
    """The size of its weights is not known, so neither is whether they fit."""
    use = vllm_use("answers", gpus=4, weights=None, capacity=80)
    assert use.fits is None
    assert use.summary()["total"] is None


def test_the_size_of_a_reader_is_known_by_its_name() -> None:
    """A reader is a model that answers questions during a training, which gives the rewards."""
    assert reader_gigabytes("openai/openai/gpt-oss-120b") == 65.3
    assert reader_gigabytes("openai/gpt-4.1-mini") is None
