"""A language model of a few thousand random weights, with a tokenizer of whole words."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

collect_ignore_glob = ["test_*.py"] if find_spec("torch") is None else []
"""Local models need the extra `local`."""

WORDS = (
    "<pad>",
    "<eos>",
    "<unk>",
    "user:",
    "system:",
    "assistant:",
    *(f"w{number}" for number in range(20)),
)
"""The vocabulary; the place of a word is the id of its token, so `w0` has the id 6."""


@pytest.fixture
def make_model() -> Callable[..., Any]:
    """A function that makes a model: `make_model(seed=1, context=64)`."""
    import torch

    def make_word_tokenizer(chat_template: str | None) -> Any:
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        ids_by_word = {word: word_id for word_id, word in enumerate(WORDS)}
        tokenizer = Tokenizer(models.WordLevel(ids_by_word, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            chat_template=chat_template,
            pad_token="<pad>",
            eos_token="<eos>",
            unk_token="<unk>",
        )

    def make(
        seed: int = 0, context: int = 128, template: str | None = None, **settings: Any
    ) -> Any:
        from mempiler.engines.local.model import LocalModel
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(WORDS),
            max_position_embeddings=context,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
        model = LlamaForCausalLM(config)
        # Random weights of transformers' usual size would make all tokens about equally likely.
        with torch.no_grad():
            model.lm_head.weight.mul_(8)
        return LocalModel(model, make_word_tokenizer(template), "tiny", **settings)

    return make


@pytest.fixture
def model(make_model: Callable[..., Any]) -> Any:
    """A model of `make_model`."""
    return make_model()
