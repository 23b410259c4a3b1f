"""The shape of a language model: what decides how much memory it takes, known without its weights or torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import DataError


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder-only transformer with a gated feed-forward part, as Llama and Qwen2 are."""

    hidden: int
    inner: int
    """Width of the feed-forward part."""
    layers: int
    query: int
    """Width of all query heads together."""
    key_value: int
    """Width of all key heads together, and of all value heads."""
    vocabulary: int
    tied: bool
    """Whether the output layer has the weights of the embedding."""
    has_bias: bool = False
    """Whether queries, keys and values have a bias."""

    @property
    def linear_layers(self) -> tuple[tuple[int, int], ...]:
        """The linear layers of one layer, as (inputs, outputs)."""
        return (
            (self.hidden, self.query),
            (self.hidden, self.key_value),
            (self.hidden, self.key_value),
            (self.query, self.hidden),
            (self.hidden, self.inner),
            (self.hidden, self.inner),
            (self.inner, self.hidden),
        )

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer."""
        weights = sum(inputs * outputs for inputs, outputs in self.linear_layers)
        biases = self.query + 2 * self.key_value if self.has_bias else 0
        norms = 2 * self.hidden
        return weights + biases + norms

    @property
    def outer_parameters(self) -> int:
        """Weights outside the layers: the embedding, the output layer where it has its own, and the last norm."""
        tables = 1 if self.tied else 2
        return tables * self.vocabulary * self.hidden + self.hidden

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.layers * self.layer_parameters + self.outer_parameters

    def adapter_parameters(self, rank: int) -> int:
        """Return the weights of a LoRA adapter on all linear layers."""
        return self.layers * sum(rank * (inputs + outputs) for inputs, outputs in self.linear_layers)


KNOWN_SHAPES = {
    "qwen2.5-1.5b-instruct": ModelShape(1536, 8960, 28, 1536, 256, 151_936, tied=True, has_bias=True),
    "qwen2.5-3b-instruct": ModelShape(2048, 11_008, 36, 2048, 256, 151_936, tied=True, has_bias=True),
    "qwen2.5-7b-instruct": ModelShape(3584, 18_944, 28, 3584, 512, 152_064, tied=False, has_bias=True),
}
"""Models that can be planned for before they are downloaded, by the last part of their names."""


def model_shape(name: str) -> ModelShape | None:
    """Return the shape of a model of transformers: of a folder by its `config.json`, else of a known name.

    Args:
        name: A folder, or the id of a model of the hub, e.g. "Qwen/Qwen2.5-7B-Instruct".

    Returns:
        None for a model that is neither here nor known, or is built otherwise.

    Raises:
        DataError: The folder's `config.json` is not JSON.
    """
    config_file = Path(name) / "config.json"
    if not config_file.is_file():
        return KNOWN_SHAPES.get(name.rstrip("/").rpartition("/")[2].lower())
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{config_file}: cannot be read as JSON: {error}") from error
    return _shape_of(config)


def _shape_of(config: Any) -> ModelShape | None:
    """Return the shape that a `config.json` describes; None where it names other sizes than these models have."""
    try:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        head_size = int(config.get("head_dim") or hidden // heads)
        key_value_heads = int(config.get("num_key_value_heads") or heads)
        return ModelShape(
            hidden=hidden,
            inner=int(config["intermediate_size"]),
            layers=int(config["num_hidden_layers"]),
            query=heads * head_size,
            key_value=key_value_heads * head_size,
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings")),
            has_bias=config.get("model_type") == "qwen2" or bool(config.get("attention_bias")),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
