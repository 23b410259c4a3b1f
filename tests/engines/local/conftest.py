"""A language model of a few thousand random weights, with a tokenizer of whole words."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

collect_ignore_glob = ["test_*.py"] if find_spec("torch") is None else []
"""Local models need the local extra."""
WORDS = ("<pad>", "<eos>", "<unk>", "user:", "system:", "assistant:", *(f"w{n}" for n in range(20)))


@pytest.fixture
def make_model() -> Callable[..., Any]:
    """Makes a model: `make_model(seed=1, vocabulary=("w0", "w1"), context=64)`."""
    import torch

    def make(
        seed: int = 0, context: int = 128, template: str | None = None, **settings: Any
    ) -> Any:
        from mempiler.engines.local.model import LocalModel
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

        whole = Tokenizer(
            models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>")
        )
        whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=whole, chat_template=template, **special
        )
        sizes = {
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
        }
        ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
        torch.manual_seed(seed)
        config = LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=context, **sizes, **ids)
        # Random weights of transformers' usual size would make all tokens about equally likely.
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            model.lm_head.weight.mul_(8)
        return LocalModel(model, tokenizer, "tiny", **settings)

    return make


@pytest.fixture
def model(make_model: Callable[..., Any]) -> Any:
    """One such model."""
    return make_model()
