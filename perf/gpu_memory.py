"""Memory of a LoRA training on one GPU, computed from a model's numbers: nothing is loaded, and no GPU is needed.

    python perf/gpu_memory.py                                      # the table of docs/local_models.md
    python perf/gpu_memory.py --rows 4 --prompt 8192 --answer 512

Weights are bfloat16, the adapter is on every linear layer, with float32 weights, gradients and AdamW's two moments.

    base         2 bytes a weight
    adapter      16 bytes a weight: sum over linear layers of rank x (inputs + outputs)
    kept         what the forward pass keeps for the backward pass, a token and layer:
                     24 width + 8 inner + 4 keys + 14 rank + 4 heads + 8 bytes
                 or, with layers computed again, 2 width, and once the former for the layer that is worked on
    logits       4 copies in float32: of all tokens that are scored, or of a chunk
    cache        keys and values of the rows that are sampled: 4 keys bytes a token and layer

The bytes a token and layer are counted from Llama-like layers (Qwen2, Llama) under transformers with torch's attention;
`tests/perf/test_gpu_memory.py` counts them again. Not in it: the CUDA context and its libraries (about 1 GB),
workspaces, and what is lost to fragmentation: leave a tenth free.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

CHUNK = 1 << 25
"""Logits of a chunk (`engines.local.head`)."""


@dataclass(frozen=True)
class Shape:
    """The numbers of a model's config."""

    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    vocabulary: int
    tied: bool
    head_width: int | None = None

    @property
    def queries(self) -> int:
        """Width of all heads together."""
        return self.heads * (self.head_width or self.width // self.heads)

    @property
    def keys(self) -> int:
        """Width of the keys of a layer, and of its values."""
        return self.queries // self.heads * self.key_heads

    @property
    def linears(self) -> list[tuple[int, int]]:
        """Inputs and outputs of the linear maps of a layer."""
        attention = [(self.width, self.queries), *[(self.width, self.keys)] * 2, (self.queries, self.width)]
        return [*attention, *[(self.width, self.inner)] * 2, (self.inner, self.width)]

    @property
    def weights(self) -> int:
        """All weights, without biases and norms, which are less than a thousandth."""
        tables = self.vocabulary * self.width * (1 if self.tied else 2)
        return tables + self.layers * sum(a * b for a, b in self.linears)


MODELS = {
    "Qwen2.5-1.5B": Shape(1536, 8960, 28, 12, 2, 151936, tied=True),
    "Qwen2.5-7B": Shape(3584, 18944, 28, 28, 4, 152064, tied=False),
}


def adapter_weights(shape: Shape, rank: int) -> int:
    """Weights of an adapter on every linear map but the head."""
    return shape.layers * sum(rank * (a + b) for a, b in shape.linears)


def layer_bytes(shape: Shape, rank: int) -> int:
    """Bytes that a layer keeps of a token for its backward pass."""
    return 24 * shape.width + 8 * shape.inner + 4 * shape.keys + 14 * rank + 4 * shape.heads + 8


def memory(
    shape: Shape, rank: int, rows: int, prompt: int, answer: int, again: bool, chunked: bool, sampled: int = 32
) -> dict[str, float]:
    """Bytes of each part, of a training pass over `rows` completions.

    Args:
        shape: The model.
        rank: Of the adapter.
        rows: Completions of a forward pass (`micro_batch_size`).
        prompt: Tokens of a prompt.
        answer: Tokens of a completion.
        again: Whether layers are computed again (`gradient_checkpointing`).
        chunked: Whether logits are made in chunks.
        sampled: Rows that are sampled at the same time in this process; 0 where a server does it.
    """
    tokens = rows * (prompt + answer)
    kept = tokens * layer_bytes(shape, rank)
    scored = rows * answer * shape.vocabulary
    found = {
        "base": 2.0 * shape.weights,
        "adapter": 16.0 * adapter_weights(shape, rank),
        "kept": float(kept + tokens * shape.layers * 2 * shape.width if again else kept * shape.layers),
        "logits": 16.0 * (min(scored, CHUNK) if chunked else scored),
        "cache": 4.0 * sampled * (prompt + answer) * shape.layers * shape.keys,
    }
    # Sampling and training take turns: the larger of the two counts.
    found["all"] = found["base"] + found["adapter"] + max(found["cache"], found["kept"] + found["logits"])
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rank", 16), ("rows", 8), ("prompt", 4096), ("answer", 512), ("sampled", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = vars(parser.parse_args())
    print("| model | layers again | logits | base | adapter | kept | logits, GB | cache | all |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, shape in MODELS.items():
        for again, chunked in ((False, False), (False, True), (True, False), (True, True)):
            found = memory(shape, again=again, chunked=chunked, **given)
            how = f"{'yes' if again else 'no'} | {'chunks' if chunked else 'at once'}"
            print(f"| {name} | {how} | {' | '.join(f'{value / 1e9:.1f}' for value in found.values())} |")


if __name__ == "__main__":
    main()
