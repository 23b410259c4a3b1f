"""Estimate the memory that a training takes on each GPU, before anything is loaded.

    trained weights      4 bytes each, and 4 for the gradient, 8 for the two moments of AdamW,
                         4 for the reference of the KL term
    frozen weights       2 bytes each, in bfloat16
    activations          rows of a pass x tokens of a row x bytes of a token

With FSDP each GPU has its share of the first two. Two measurements on an H100 were 13.2 and 37.6 GB
(docs/training.md); the estimates for them are 13.2 and 38.0 GB. Memory that the allocator holds
without using it is not counted. Shards of DeepSpeed are counted as if each GPU had all weights.

Example:
    >>> from mempiler.engines.local.memory_plan import TrainingMemory
    >>> from mempiler.engines.local.model_shape import model_shape
    >>> shape = model_shape("Qwen/Qwen2.5-7B-Instruct")
    >>> use = TrainingMemory(shape, gpus=3, sharded=True, rows=2, tokens=8192).use()
    >>> use.gpus, round(use.total)
    (3, 64)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .model_shape import ModelShape

GIGABYTE = 1e9
"""Bytes of a gigabyte."""

TRAINED_BYTES = 16
"""Bytes of a trained weight: itself, its gradient and two moments, each in float32."""

REFERENCE_BYTES = 4
"""Bytes of a weight in the reference of the KL term."""

LOADED_BYTES = 4
"""Bytes of a weight while a sharded model is loaded.

Each process loads all weights in float32 before it keeps its share.
"""

HALF_BYTES = 2
"""Bytes of a number in bfloat16."""

VLLM_SHARE = 0.9
"""Share of a GPU that vLLM takes by default."""

COLOCATED_SHARE = 0.3
"""Share of a GPU that TRL by default lets vLLM take beside a training."""

READER_GIGABYTES = {
    "gpt-oss-120b": 65.3,  # published as 60.8 GiB
}
"""Gigabytes of weights of models that answer for rewards, by the last part of their names."""


@dataclass(frozen=True)
class DeviceUse:
    """The memory that a job takes on each of its GPUs."""

    role: str
    """What the job does."""
    gpus: int
    """Number of GPUs."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Gigabytes by what takes them; empty if the size of the model is unknown."""
    loading: float = 0.0
    """Gigabytes while the model is loaded."""
    capacity: float | None = None
    """Gigabytes of one GPU, if known."""

    @property
    def total(self) -> float:
        """The most gigabytes that are taken at any time."""
        return max(sum(self.parts.values()), self.loading)

    @property
    def fits(self) -> bool | None:
        """Whether the job fits into its GPUs; None if that is unknown."""
        if self.capacity is None or not self.parts:
            return None
        return self.total <= self.capacity

    def summary(self) -> dict[str, Any]:
        """Return plain JSON, with gigabytes of each GPU."""
        return {
            "role": self.role,
            "gpus": self.gpus,
            "parts": {name: round(size, 1) for name, size in self.parts.items()},
            "loading": round(self.loading, 1),
            "total": round(self.total, 1) if self.parts else None,
            "capacity": self.capacity,
            "fits": self.fits,
        }


@dataclass(frozen=True)
class TrainingMemory:
    """The properties of a training that decide how much memory it takes."""

    shape: ModelShape
    gpus: int = 1
    """Number of GPUs that train."""
    sharded: bool = False
    """Whether FSDP gives each GPU a share of the weights."""
    rows: int = 8
    """Completions of a forward pass."""
    tokens: int = 4096
    """Tokens of the longest row, with prompt and completion."""
    lora: int | None = None
    """Rank of the adapter, if only an adapter is trained."""
    has_reference: bool = True
    """Whether the loss has a KL term."""
    is_checkpointed: bool = True
    """Whether the backward pass computes layers again, instead of keeping their activations."""
    colocated: float = 0.0
    """Share of each GPU that vLLM takes beside the training."""
    capacity: float | None = None
    """Gigabytes of one GPU, if known."""

    def use(self) -> DeviceUse:
        """Return the memory that the training takes on each GPU."""
        shape = self.shape
        # With FSDP the GPUs share the weights, otherwise each has all of them.
        sharing_gpus = self.gpus if self.sharded else 1

        trained_parameters = shape.parameters
        if self.lora:
            trained_parameters = shape.adapter_parameters(self.lora)
        bytes_of_weight = TRAINED_BYTES
        if self.has_reference:
            bytes_of_weight += REFERENCE_BYTES

        # Bytes of one GPU, by what takes them.
        sizes: dict[str, float] = {}
        sizes["weights and optimizer"] = trained_parameters * bytes_of_weight / sharing_gpus
        if self.lora:
            sizes["frozen weights"] = shape.parameters * HALF_BYTES / sharing_gpus
        if self.sharded:
            # A pass needs whole layers: the one that is computed, the one that is fetched
            # meanwhile, and what stands outside the layers.
            gathered = shape.outer_parameters + 2 * shape.layer_parameters
            sizes["gathered layers"] = gathered * HALF_BYTES
        sizes["activations"] = self.rows * self.tokens * self._bytes_of_token()
        if self.colocated and self.capacity:
            sizes["vLLM"] = self.colocated * self.capacity * GIGABYTE

        # While a sharded model is loaded, each process holds all weights for a moment.
        loading = 0
        if self.sharded and not self.lora:
            loading = shape.parameters * LOADED_BYTES
        return DeviceUse(
            role="training",
            gpus=self.gpus,
            parts={name: size / GIGABYTE for name, size in sizes.items()},
            loading=loading / GIGABYTE,
            capacity=self.capacity,
        )

    def _bytes_of_token(self) -> int:
        """Return the bytes of a token's activations, in bfloat16.

        With checkpointing, the inputs of all layers are kept, and the activations of only the one
        layer that the backward pass is computing again.
        """
        shape = self.shape
        # States and heads are 12 vectors as wide as the hidden state; the gated feed-forward has
        # three parts. All of it twice, for the backward pass.
        numbers_of_layer = 12 * shape.hidden + 3 * shape.inner
        bytes_of_layer = 2 * HALF_BYTES * numbers_of_layer
        if not self.is_checkpointed:
            return shape.layers * bytes_of_layer
        bytes_of_inputs = shape.layers * HALF_BYTES * shape.hidden
        return bytes_of_inputs + bytes_of_layer


def vllm_use(role: str, gpus: int, weights: float | None, capacity: float | None) -> DeviceUse:
    """Return the memory that a vLLM server takes on each GPU.

    vLLM takes `VLLM_SHARE` of a GPU: what its weights leave of that, its cache fills.

    Args:
        role: What the server does.
        gpus: Number of its GPUs.
        weights: Gigabytes of weights on each GPU. None if unknown; then no part is known.
        capacity: Gigabytes of one GPU. Without it the cache is unknown and left out.
    """
    parts: dict[str, float] = {}
    if weights is not None:
        parts["weights"] = weights
        if capacity is not None:
            parts["cache of vLLM"] = max(0.0, VLLM_SHARE * capacity - weights)
    return DeviceUse(role, gpus, parts, capacity=capacity)


def reader_gigabytes(name: str) -> float | None:
    """Return the gigabytes of weights of a model that answers for rewards; None if unknown."""
    last_part = name.rpartition("/")[2]
    return READER_GIGABYTES.get(last_part.lower())
