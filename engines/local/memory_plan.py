"""How much memory a training takes on each GPU, computed from the shape of the model before anything is loaded.

    weights that are trained     4 bytes each, with gradient 4, moments of AdamW 8, reference of the KL term 4
    weights that are not         2 bytes each (bfloat16)
    activations                  rows of a pass x tokens of a row x bytes of a token

FSDP gives each GPU its share of the first two lines. Limits: an estimate. Two measurements were 13.2 and 37.6 GB (one
H100, docs/training.md), of which these rules make 13.2 and 38.0; what the allocator leaves unused is not counted,
and DeepSpeed's shards are counted as if each GPU had all weights.

Example:
    >>> from mempiler.engines.local.memory_plan import TrainingMemory
    >>> from mempiler.engines.local.model_shape import model_shape
    >>> use = TrainingMemory(model_shape("Qwen/Qwen2.5-7B-Instruct"), gpus=3, sharded=True, rows=2, tokens=8192).use()
    >>> use.gpus, round(use.total)
    (3, 64)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .model_shape import ModelShape

GIGABYTE = 1e9
TRAINED_BYTES = 16
"""Of a weight that is trained: itself, its gradient and two moments, in float32."""
REFERENCE_BYTES = 4
LOADED_BYTES = 4
"""Of a weight while a sharded model is loaded: each process has all of them as float32 before they are shared out."""
HALF_BYTES = 2
VLLM_SHARE = 0.9
"""Share of a GPU that vLLM takes by default."""
COLOCATED_SHARE = 0.3
"""Share of a GPU that TRL lets vLLM take beside a training by default."""
READER_GIGABYTES = {"gpt-oss-120b": 65.3}
"""Weights of models that answer for rewards, as published (60.8 GiB), by the last part of their names."""


@dataclass(frozen=True)
class DeviceUse:
    """What one job takes on each of its GPUs."""

    role: str
    gpus: int
    parts: Mapping[str, float] = field(default_factory=dict)
    """Gigabytes by what takes them; empty where the size of the model is not known."""
    loading: float = 0.0
    """Gigabytes while the model is loaded, which are free again later."""
    capacity: float | None = None
    """Gigabytes of one GPU, where that is known."""

    @property
    def total(self) -> float:
        """Most gigabytes at any time."""
        return max(sum(self.parts.values()), self.loading)

    @property
    def fits(self) -> bool | None:
        """Whether it fits into its GPUs; None where that is not known."""
        if self.capacity is None or not self.parts:
            return None
        return self.total <= self.capacity

    def summary(self) -> dict[str, Any]:
        """Return it as plain JSON, in gigabytes for each GPU."""
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
    """A training, as far as it decides the memory of the GPUs that train."""

    shape: ModelShape
    gpus: int = 1
    sharded: bool = False
    """Whether FSDP gives each GPU a share of the weights."""
    rows: int = 8
    """Completions of a pass."""
    tokens: int = 4096
    """Tokens of the longest row, prompt and completion."""
    lora: int | None = None
    """Rank of the adapter that is trained alone."""
    has_reference: bool = True
    is_checkpointed: bool = True
    """Whether layers are computed again in the backward pass."""
    colocated: float = 0.0
    """Share of each GPU that vLLM takes beside the training."""
    capacity: float | None = None

    def use(self) -> DeviceUse:
        """Return what the training takes on each GPU."""
        shape = self.shape
        owners = self.gpus if self.sharded else 1
        trained = shape.adapter_parameters(self.lora) if self.lora else shape.parameters
        per_weight = TRAINED_BYTES + (REFERENCE_BYTES if self.has_reference else 0)

        parts = {"weights and optimizer": trained * per_weight / owners}
        if self.lora:
            parts["frozen weights"] = shape.parameters * HALF_BYTES / owners
        if self.sharded:
            # What is outside the layers, and the layer that is computed beside the one that is fetched.
            parts["gathered layers"] = (shape.outer_parameters + 2 * shape.layer_parameters) * HALF_BYTES
        parts["activations"] = self.rows * self.tokens * self._bytes_of_token()
        if self.colocated and self.capacity:
            parts["vLLM"] = self.colocated * self.capacity * GIGABYTE

        loading = shape.parameters * LOADED_BYTES if self.sharded and not self.lora else 0
        sizes = {name: size / GIGABYTE for name, size in parts.items()}
        return DeviceUse("training", self.gpus, sizes, loading / GIGABYTE, self.capacity)

    def _bytes_of_token(self) -> int:
        """Return the bytes of a token's activations."""
        shape = self.shape
        # Of a layer: states, heads and the three parts of the gated feed-forward, twice in the backward pass.
        one_layer = 2 * HALF_BYTES * (12 * shape.hidden + 3 * shape.inner)
        if not self.is_checkpointed:
            return shape.layers * one_layer
        inputs_of_layers = HALF_BYTES * shape.hidden * shape.layers
        return inputs_of_layers + one_layer


def vllm_use(role: str, gpus: int, weights: float | None, capacity: float | None) -> DeviceUse:
    """Return what a vLLM server takes on each GPU: weights, and a cache that fills the share that vLLM takes.

    Args:
        role: What the server is for.
        gpus: Of the server.
        weights: Gigabytes of weights on each GPU; None where that is not known.
        capacity: Gigabytes of one GPU; without it the cache is not known, and left out.
    """
    if weights is None:
        return DeviceUse(role, gpus, capacity=capacity)
    parts = {"weights": weights}
    if capacity is not None:
        parts["cache of vLLM"] = max(0.0, VLLM_SHARE * capacity - weights)
    return DeviceUse(role, gpus, parts, capacity=capacity)


def reader_gigabytes(name: str) -> float | None:
    """Return the gigabytes of the weights of a model that answers, by the last part of its name; None if not known."""
    return READER_GIGABYTES.get(name.rpartition("/")[2].lower())
