"""The script's bytes are those that torch keeps of a small model of the same kind; its table is the one in the docs."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="local models need the local extra")

PERF = Path(__file__).parents[2] / "perf"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(PERF))
    import gpu_memory

    return gpu_memory


def adapted(shape: Any, rank: int) -> Any:
    from mempiler.engines.local.loading import with_lora
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
    )
    return with_lora(Qwen2ForCausalLM(config).to(torch.bfloat16).eval(), {"r": rank})


def kept(model: Any, rows: int, prompt: int, answer: int, again: bool) -> int:
    """Bytes of all tensors that a forward pass keeps, weights and what is made of weights alone left out."""
    from mempiler.engines.local import scoring
    from mempiler.engines.local.checkpointing import checkpointed

    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    held: dict[int, Any] = {}

    def note(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        of_tokens = rows * (prompt + answer) in tensor.shape or (tensor.dim() > 2 and tensor.shape[0] == rows)
        if storage.data_ptr() not in weights and of_tokens:
            held[storage.data_ptr()] = storage
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with hooks, checkpointed(model) if again else contextlib.nullcontext():
        prompts, answers = [[5] * prompt] * rows, [[6] * answer] * rows
        scoring.token_logprobs(model, prompts, answers, 1.0, 0, half=True, plain=True, most=4 * 500)
    return sum(storage.nbytes() for storage in held.values())


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(("changes", "rank"), [({}, 4), ({"inner": 320, "key_heads": 4}, 2), ({"width": 128}, 8)])
def test_a_layer_keeps_as_much_as_the_formula_says(script, changes, rank, again):
    numbers = {"width": 64, "inner": 160, "layers": 2, "heads": 4, "key_heads": 2, "vocabulary": 500, "tied": True}
    shape, more = (script.Shape(**{**numbers, **changes, "layers": layers}) for layers in (2, 3))
    tokens = 2 * 48
    # What a further layer adds: what is there once, whatever the layers, cancels.
    one = (kept(adapted(more, rank), 2, 40, 8, again) - kept(adapted(shape, rank), 2, 40, 8, again)) / tokens
    assert one == (2 * shape.width if again else script.layer_bytes(shape, rank))


def test_weights_and_adapter_are_those_of_a_model(script):
    shape = script.Shape(64, 160, 2, 4, 2, 500, tied=False)
    model = adapted(shape, 4)
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad and p.dim() == 2)
    assert script.adapter_weights(shape, 4) == learned
    assert shape.weights == frozen


def test_the_docs_hold_the_table(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu_memory"])
    script.main()
    page = (PERF.parent / "docs" / "local_models.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out.strip() in page


def test_the_chunk_is_the_engines(script):
    from mempiler.engines.local.head import CHUNK

    assert script.CHUNK == CHUNK
