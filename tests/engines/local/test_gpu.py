"""On a GPU: the numbers of the CPU, and what a training pass takes. Skipped where there is none.

python -m pytest -s -m slow tests/engines/local/test_gpu.py

prints the rows of docs/training.md.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from mempiler.engines.local.engine import local_lm
from mempiler.engines.local.loading import with_lora
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.rows import Row
from mempiler.engines.local.settings import Training
from mempiler.engines.local.update import LocalWeights, take_step

from tests.engines.local.groups import draw, text_group

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]


@pytest.fixture
def cpu_model(make_model: Callable[..., Any]) -> Any:
    return make_model()


@pytest.fixture
def gpu_model(make_model: Callable[..., Any]) -> Any:
    """The same model on the GPU."""
    model = make_model()
    model.model.to("cuda")
    return model


def test_a_gpu_samples_the_same_tokens_as_the_cpu(cpu_model: Any, gpu_model: Any) -> None:
    # Prompts of three to five tokens, with different second tokens.
    prompts: list[list[int]] = []
    for number in range(24):
        second_token = 6 + number % 19
        length = 3 + number % 3
        prompts.append([3, second_token, 7, 8, 5][:length])

    cpu_samples = draw(cpu_model, prompts, temperature=1.0, max_tokens=20, seed=3)
    gpu_samples = draw(gpu_model, prompts, temperature=1.0, max_tokens=20, seed=3)

    for cpu_sample, gpu_sample in zip(cpu_samples, gpu_samples, strict=True):
        assert gpu_sample.completion_ids == cpu_sample.completion_ids
        assert gpu_sample.logprobs == pytest.approx(cpu_sample.logprobs, abs=1e-4)


def test_a_training_on_a_gpu_gives_the_same_weights_as_on_the_cpu(
    cpu_model: Any, gpu_model: Any
) -> None:
    for model in (cpu_model, gpu_model):
        job = local_lm(model, temperature=1.0).reinforce({"learning_rate": 1e-3, "beta": 0.02})
        for _ in range(5):
            job.step([text_group(model, "w7", "w8 w9", "w3", rewards=[1.0, 0.0, 0.5])])

    gpu_weights = gpu_model.state()
    for name, weights in cpu_model.state().items():
        assert torch.allclose(weights.float(), gpu_weights[name].float().cpu(), atol=1e-4), name


# Memory and speed.

PROMPT_TOKENS = 4096
COMPLETION_TOKENS = 512
ROWS = 8

SHAPES: dict[str, dict[str, Any]] = {
    "Qwen2.5-1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "Qwen2.5-7B": {
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
        "tie_word_embeddings": False,
    },
}
"""The published sizes of models of 28 layers."""


def make_large_model(name: str, tokenizer: Any) -> LocalModel:
    """Return a model of a published shape, with random weights and an adapter."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    with torch.device("cuda"):
        config = Qwen2Config(max_position_embeddings=32_768, num_hidden_layers=28, **SHAPES[name])
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    return LocalModel(with_lora(model.eval(), {"r": 16}), tokenizer, name)


def random_batch() -> list[Row]:
    """Return rows of random tokens."""
    generator = torch.Generator().manual_seed(0)

    def random_ids(count: int) -> list[int]:
        return torch.randint(3, 150_000, (count,), generator=generator).tolist()

    return [Row(random_ids(PROMPT_TOKENS), random_ids(COMPLETION_TOKENS)) for _ in range(ROWS)]


@pytest.mark.parametrize("gradient_checkpointing", [True, False], ids=["checkpointing", "without"])
@pytest.mark.parametrize(("name", "max_gigabytes"), [("Qwen2.5-1.5B", 14), ("Qwen2.5-7B", 40)])
def test_a_pass_of_eight_completions_fits_into_the_expected_memory(
    make_model: Callable[..., Any], name: str, max_gigabytes: float, gradient_checkpointing: bool
) -> None:
    """With gradient checkpointing, which computes layers again instead of keeping their outputs."""
    model = make_large_model(name, make_model().tokenizer)
    batch = random_batch()
    settings = Training(gradient_checkpointing=gradient_checkpointing)
    weights = LocalWeights(model, settings)

    def loss(rows: Sequence[Row], size: Any) -> torch.Tensor:
        logprobs, mask = weights.token_logprobs(rows)
        return -(logprobs * mask).sum() / (ROWS * COMPLETION_TOKENS)

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    seconds = 0.0
    for _ in range(2):  # the second step is measured: by then it is known how many rows fit
        start = time.monotonic()
        take_step(weights, batch, loss, learning_rate=settings.learning_rate)
        torch.cuda.synchronize()
        seconds = time.monotonic() - start

    gigabytes = torch.cuda.max_memory_allocated() / 1e9
    tokens_per_second = ROWS * (PROMPT_TOKENS + COMPLETION_TOKENS) / seconds
    variant = "with checkpointing"
    if not gradient_checkpointing:
        variant = f"without, {weights.micro_batch} rows of a pass"
    print(
        f"\n{name}, {variant}: {gigabytes:.1f} GB, {tokens_per_second:,.0f} tokens/s "
        f"on {torch.cuda.get_device_name(0)}"
    )
    if gradient_checkpointing:
        assert gigabytes < max_gigabytes
        assert weights.micro_batch == ROWS
