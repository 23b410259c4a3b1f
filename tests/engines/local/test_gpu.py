"""On a GPU: the numbers of the CPU, and what a training pass takes. Skipped where there is none.

python -m pytest -s -m slow tests/engines/local/test_gpu.py      # prints the rows of docs/training.md
"""

import time
from typing import Any

import pytest
import torch
from mempiler.engines.local.engine import local_lm
from mempiler.engines.local.loading import with_lora
from mempiler.engines.local.model import LocalModel
from mempiler.engines.local.rows import Row
from mempiler.engines.local.settings import Training
from mempiler.engines.local.update import LocalWeights, take_step

from tests.engines.local.groups import sample, text_group

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
PROMPT, ANSWER = 4096, 512
SHAPES = {
    "Qwen2.5-1.5B": (1536, 8960, 12, 2, 151_936, True),
    "Qwen2.5-7B": (3584, 18_944, 28, 4, 152_064, False),
}
"""Sizes of states, inside and of the vocabulary; heads, of keys and values; whether embeddings are tied."""


def test_numbers_are_those_of_the_cpu(make_model: Any) -> None:
    here, there = models = make_model(), make_model()
    there.model.to("cuda")
    prompts = [[3, 6 + n % 19, 7, 8, 5][: 3 + n % 3] for n in range(24)]
    drawn = [sample(model, prompts, 1.0, 20, seed=3) for model in models]
    assert [one.completion_ids for one in drawn[0]] == [one.completion_ids for one in drawn[1]]
    for one, other in zip(*drawn, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    for model in models:
        job = local_lm(model, temperature=1.0).reinforce({"learning_rate": 1e-3, "beta": 0.02})
        for _ in range(5):
            job.step([text_group(model, "w7", "w8 w9", "w3", rewards=[1.0, 0.0, 0.5])])
    for name, weights in here.state().items():
        assert torch.allclose(weights.float(), there.state()[name].float().cpu(), atol=1e-4), name


def shaped(name: str, tokenizer: Any) -> Any:
    """A model of a published shape with random weights and an adapter."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    names = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    )
    shape = dict(zip((*names, "tie_word_embeddings"), SHAPES[name], strict=True))
    with torch.device("cuda"):
        config = Qwen2Config(max_position_embeddings=32_768, num_hidden_layers=28, **shape)
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    return LocalModel(with_lora(model.eval(), {"r": 16}), tokenizer, name)


@pytest.mark.parametrize("again", [True, False], ids=["checkpointing", "without"])
@pytest.mark.parametrize(("name", "most"), [("Qwen2.5-1.5B", 14), ("Qwen2.5-7B", 40)])
def test_a_pass_of_eight_completions_fits(
    make_model: Any, name: str, most: int, again: bool
) -> None:
    model, draw = shaped(name, make_model().tokenizer), torch.Generator().manual_seed(0)

    def ids(count: int) -> list[int]:
        return torch.randint(3, 150_000, (count,), generator=draw).tolist()

    batch = [Row(ids(PROMPT), ids(ANSWER)) for _ in range(8)]

    def loss(rows: Any, size: Any) -> Any:
        values, mask = model.token_logprobs(
            [row.prompt for row in rows], [row.completion for row in rows]
        )
        return -(values * mask).sum() / (8 * ANSWER)

    settings = Training(gradient_checkpointing=again)
    weights = LocalWeights(model, settings)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):  # the second time memory is known
        begun = time.monotonic()
        take_step(weights, batch, loss, settings.learning_rate)
        torch.cuda.synchronize()
    peak, speed = (
        torch.cuda.max_memory_allocated() / 1e9,
        8 * (PROMPT + ANSWER) / (time.monotonic() - begun),
    )
    how = "with checkpointing" if again else f"without, {weights.micro_batch} rows of a pass"
    print(
        f"\n{name}, {how}: {peak:.1f} GB, {speed:,.0f} tokens/s on {torch.cuda.get_device_name(0)}"
    )
    if again:
        assert peak < most
        assert weights.micro_batch == 8
