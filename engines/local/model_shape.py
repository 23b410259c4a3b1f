"""The shape of a language model, which decides how much memory it takes.

It is known without the weights of the model and without torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...errors import DataError


class LinearLayer(NamedTuple):
    """The widths of a linear layer."""

    inputs: int
    outputs: int


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder-only transformer with a gated feed-forward part, as Llama and Qwen2."""

    hidden: int
    """Width of the hidden states."""
    inner: int
    """Width of the feed-forward part."""
    layers: int
    """Number of transformer layers."""
    query: int
    """Width of all query heads together."""
    key_value: int
    """Width of all key heads together; that of all value heads is the same."""
    vocabulary: int
    """Number of tokens that the embedding has a row for."""
    tied: bool
    """Whether the output layer has the weights of the embedding."""
    has_bias: bool = False
    """Whether queries, keys and values have a bias."""

    @property
    def linear_layers(self) -> tuple[LinearLayer, ...]:
        """The linear layers of one transformer layer."""
        return (
            # Attention: query, key, value, output.
            LinearLayer(self.hidden, self.query),
            LinearLayer(self.hidden, self.key_value),
            LinearLayer(self.hidden, self.key_value),
            LinearLayer(self.query, self.hidden),
            # Feed-forward: gate, up, down.
            LinearLayer(self.hidden, self.inner),
            LinearLayer(self.hidden, self.inner),
            LinearLayer(self.inner, self.hidden),
        )

    @property
    def layer_parameters(self) -> int:
        """Number of weights of one transformer layer."""
        weights = sum(linear.inputs * linear.outputs for linear in self.linear_layers)
        biases = self.query + 2 * self.key_value if self.has_bias else 0
        norms = 2 * self.hidden
        return weights + biases + norms

    @property
    def outer_parameters(self) -> int:
        """Number of weights outside the layers: embedding, output layer and last norm."""
        embeddings = 1 if self.tied else 2
        last_norm = self.hidden
        return embeddings * self.vocabulary * self.hidden + last_norm

    @property
    def parameters(self) -> int:
        """Number of all weights."""
        return self.layers * self.layer_parameters + self.outer_parameters

    def adapter_parameters(self, rank: int) -> int:
        """Return the number of weights of a LoRA adapter of that rank on all linear layers."""
        widths = sum(linear.inputs + linear.outputs for linear in self.linear_layers)
        return self.layers * rank * widths


KNOWN_SHAPES = {
    "qwen2.5-1.5b-instruct": ModelShape(
        hidden=1536,
        inner=8960,
        layers=28,
        query=1536,
        key_value=256,
        vocabulary=151_936,
        tied=True,
        has_bias=True,
    ),
    "qwen2.5-3b-instruct": ModelShape(
        hidden=2048,
        inner=11_008,
        layers=36,
        query=2048,
        key_value=256,
        vocabulary=151_936,
        tied=True,
        has_bias=True,
    ),
    "qwen2.5-7b-instruct": ModelShape(
        hidden=3584,
        inner=18_944,
        layers=28,
        query=3584,
        key_value=512,
        vocabulary=152_064,
        tied=False,
        has_bias=True,
    ),
}
"""Models that can be planned for before they are downloaded, by the last part of their names."""


def model_shape(name: str) -> ModelShape | None:
    """Return the shape of a model, from the `config.json` of a folder or by a known name.

    Args:
        name: A folder, or the id of a model of the hub, e.g. "Qwen/Qwen2.5-7B-Instruct".

    Returns:
        None if the model is neither here nor known, or is built otherwise.

    Raises:
        DataError: The folder's `config.json` is not JSON.
    """
    config_file = Path(name) / "config.json"
    if not config_file.is_file():
        last_part = name.rstrip("/").rpartition("/")[2]
        return KNOWN_SHAPES.get(last_part.lower())
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{config_file}: cannot be read as JSON: {error}") from error
    return _shape_from_config(config)


def _shape_from_config(config: object) -> ModelShape | None:
    """Return the shape that a `config.json` describes; None if a size is missing or wrong."""
    if not isinstance(config, dict):
        return None
    try:
        hidden = int(config["hidden_size"])
        heads = int(config["num_attention_heads"])
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
    except (KeyError, TypeError, ValueError):
        return None
