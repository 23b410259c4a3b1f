"""Makes a fast ONNX file of a BERT encoder's published weights: 8-bit products, the rest in float32.

    model.safetensors ── read, quantise ──> embeddings ── layers x (attention, feed-forward) ──> last_hidden_state

Weights become whole numbers of 7 bits with a scale per column; what they are multiplied with becomes 8 bits on the way.
With 7 bits no sum overflows on processors without instructions for 8-bit products. The file depends on the weights
alone, byte for byte.

Limits: BERT with absolute positions and exact GELU, post-norm, as MiniLM and multilingual E5 are.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...errors import DataError
from .graph import FLOAT, FUSED, INT64, Graph

EPSILON = 1e-12
"""Of the layer norms."""
HEAD = 32
"""Numbers of an attention head."""
_MOST = 63
"""Largest magnitude of a weight: products of two neighbours with 8 bits then stay within 16."""

Arrays = Mapping[str, np.ndarray]


def convert(source: Path, target: Path) -> None:
    """Converts a file of weights.

    Args:
        source: `model.safetensors` of a BERT encoder.
        target: The ONNX file.

    Raises:
        DataError: The source holds no such weights.
    """
    target.write_bytes(encoder(read_safetensors(source)))


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The float32 arrays of a safetensors file by name.

    Raises:
        DataError: It is no such file.
    """
    content = path.read_bytes()
    try:
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + size])
        found: dict[str, np.ndarray] = {}
        for name, about in header.items():
            if name != "__metadata__" and about["dtype"] == "F32":
                start, end = about["data_offsets"]
                raw = content[8 + size + start : 8 + size + end]
                found[name] = np.frombuffer(raw, dtype="<f4").reshape(about["shape"])
        return found
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: is no safetensors file; fetch it again") from error


def encoder(arrays: Arrays) -> bytes:
    """An ONNX file with the input `input_ids`, whole texts without padding, and the output `last_hidden_state`.

    Args:
        arrays: Weights by their names in `transformers`.

    Raises:
        DataError: They are not those of a BERT encoder.
    """
    try:
        return _Encoder({name.removeprefix("bert."): array for name, array in arrays.items()}).bytes()
    except KeyError as error:
        raise DataError(f"the weights have no {error}; they are none of a BERT encoder") from error


class _Encoder:
    def __init__(self, arrays: Arrays) -> None:
        self.arrays, self.graph = arrays, Graph()
        self.width = arrays["embeddings.word_embeddings.weight"].shape[1]
        self.heads = self.width // HEAD

    def bytes(self) -> bytes:
        graph = self.graph
        ids = graph.input("input_ids", INT64, ["batch", "sequence"])
        hidden, layer = self._embedded(ids), 0
        while f"encoder.layer.{layer}.attention.self.query.weight" in self.arrays:
            hidden = self._layer(hidden, f"encoder.layer.{layer}.")
            layer += 1
        return graph.bytes({"last_hidden_state": (hidden, FLOAT, ["batch", "sequence", self.width])})

    def _embedded(self, ids: str) -> str:
        graph, words = self.graph, self.arrays["embeddings.word_embeddings.weight"]
        values, scales = _quantised(words, axis=1, most=127)
        found = graph.node("Cast", [graph.node("Gather", [graph.weight("words", values), ids])], to=FLOAT)
        found = graph.node("Mul", [found, graph.node("Gather", [graph.weight("words.scale", scales), ids])])
        # Every text is one segment, the first.
        places = self.arrays["embeddings.position_embeddings.weight"]
        places = places + self.arrays["embeddings.token_type_embeddings.weight"][0]
        length = graph.node("Gather", [graph.node("Shape", [ids]), graph.weight("one", np.array([1]))])
        zero = graph.weight("zero", np.array([0]))
        found = graph.node("Add", [found, graph.node("Slice", [graph.weight("places", places), zero, length])])
        return self._normed(found, "embeddings.LayerNorm")

    def _layer(self, hidden: str, at: str) -> str:
        graph, own = self.graph, f"{at}attention.self."
        inputs = [self._product(hidden, f"{own}{part}") for part in ("query", "key", "value")]
        seen = graph.node("MultiHeadAttention", inputs, FUSED, num_heads=self.heads)
        seen = self._product(seen, f"{at}attention.output.dense")
        hidden = self._added(seen, hidden, f"{at}attention.output.LayerNorm")
        wide = graph.node("Gelu", [self._product(hidden, f"{at}intermediate.dense")], FUSED)
        return self._added(self._product(wide, f"{at}output.dense"), hidden, f"{at}output.LayerNorm")

    def _product(self, x: str, name: str) -> str:
        values, scales = _quantised(self.arrays[f"{name}.weight"].T, axis=0, most=_MOST)
        weight, scale = self.graph.weight(f"{name}.weight", values), self.graph.weight(f"{name}.scale", scales[0])
        bias = self.graph.weight(f"{name}.bias", self.arrays[f"{name}.bias"])
        return self.graph.node("DynamicQuantizeMatMul", [x, weight, scale, "", bias], FUSED)

    def _added(self, x: str, skipped: str, norm: str) -> str:
        # Faster as two nodes than as onnxruntime's one for both.
        return self._normed(self.graph.node("Add", [x, skipped]), norm)

    def _normed(self, x: str, name: str) -> str:
        gamma = self.graph.weight(f"{name}.gamma", self.arrays[f"{name}.weight"])
        beta = self.graph.weight(f"{name}.beta", self.arrays[f"{name}.bias"])
        return self.graph.node("LayerNormalization", [x, gamma, beta], axis=2, epsilon=EPSILON)


def _quantised(array: np.ndarray, axis: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers up to `most`, and the scales along an axis that give the array back."""
    largest = np.abs(array).max(axis=axis, keepdims=True)
    scales = (np.where(largest > 0, largest, 1) / np.float32(most)).astype(np.float32)
    return np.rint(array / scales).astype(np.int8), scales
