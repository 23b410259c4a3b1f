"""GGUF weights as a model that can be trained."""

from pathlib import Path

import numpy as np
import pytest
from mempiler.cli import main
from mempiler.engines.local.model import LocalModel
from mempiler.errors import UserError

gguf = pytest.importorskip("gguf", reason="local models need the local extra")

WORDS = ["<end>", "<user>", "<assistant>", *"abcdefghijklmnopqrstuvwxyz", "ab", "\u0120", "\u010a"]
WIDTH, HEADS, INNER = 32, 2, 64
TEMPLATE = "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] }}{% endfor %}<assistant>"


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GGUF file of a Llama of one layer, quantised to eight bits."""
    monkeypatch.setenv("MEMPILER_MODELS", str(tmp_path / "models"))
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(WORDS)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(WORDS) - 3))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    drawn = np.random.default_rng(0)
    shapes = {"token_embd": (len(WORDS), WIDTH), "output": (len(WORDS), WIDTH)}
    shapes |= {f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (INNER, WIDTH), "blk.0.ffn_up": (INNER, WIDTH), "blk.0.ffn_down": (WIDTH, INNER)}
    for name, shape in shapes.items():
        values = drawn.standard_normal(shape).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(f"{name}.weight", gguf.quantize(values, kind), raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_read_saved_and_read_again(weights: Path, tmp_path: Path) -> None:
    model = LocalModel.load(weights)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(weights).tensors}
    stored = tensors["token_embd.weight"]
    expected = gguf.dequantize(stored.data, stored.tensor_type)
    assert np.allclose(model.model.get_input_embeddings().weight.detach().numpy(), expected, atol=1e-3)
    prompt = model.encode([{"role": "user", "content": "ab"}])
    again = LocalModel.load(model.save(tmp_path / "saved"))
    assert again.encode([{"role": "user", "content": "ab"}]) == prompt
    assert again.fingerprint == model.fingerprint


def test_it_is_dequantised_once(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = LocalModel.load(weights)
    monkeypatch.setattr("gguf.GGUFReader", None)
    assert LocalModel.load(weights).fingerprint == first.fingerprint
    assert len(list((tmp_path / "models").iterdir())) == 1


def test_an_adapter_over_it_is_saved_alone_and_finds_it(weights: Path, tmp_path: Path) -> None:
    model = LocalModel.load(weights, lora={"r": 2})
    saved = model.save(tmp_path / "adapter")
    assert not (saved / "model.safetensors").exists()
    assert LocalModel.load(saved).fingerprint == model.fingerprint


@pytest.mark.parametrize(
    ("name", "said"),
    [("smollm2", "mempiler models fetch smollm2"), ("nowhere.gguf", "no such GGUF file"), ("cut.gguf", "cannot be")],
)
def test_mistakes_are_one_line(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cut.gguf").write_bytes(weights.read_bytes()[:100])
    with pytest.raises(UserError, match=said) as raised:
        LocalModel.load(name)
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "models").glob("*")) or name != "cut.gguf"


def test_training_takes_it_by_name(weights: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "turn-rag", "--on", "locomo", "--lm", "local:smollm2", "--test", "1"])
    assert ended.value.code == 2
    assert "mempiler models fetch smollm2" in capsys.readouterr().err
