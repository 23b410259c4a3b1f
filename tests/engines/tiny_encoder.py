"""A sentence encoder of a few kilobytes with the files and the shape of the real ones; its weights are drawn."""

import hashlib
import json
import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from mempiler.engines import weights
from mempiler.engines.onnx.convert import encoder

WIDTH, HEAD, WIDE, LAYERS, PLACES = 64, 32, 128, 2, 512
WORDS = [
    "[UNK]", "[CLS]", "[SEP]", "query", "passage", "where", "does", "did", "ann", "bob", "live", "lives", "in", "oslo",
    "lisbon", "moved", "to", "likes", "jazz", "i", "saw", "with", "friends", "when", "user", ":", ".", "?",
]  # fmt: skip


@dataclass(frozen=True)
class Tiny:
    """What was made of it."""

    source: Path
    """A folder as it comes from a hub."""
    arrays: dict[str, np.ndarray]

    def vector(self, ids: list[int]) -> np.ndarray:
        """What the network gives for tokens, computed in float64 from the weights themselves."""
        a = {name: array.astype(np.float64) for name, array in self.arrays.items()}
        x = a["embeddings.word_embeddings.weight"][ids] + a["embeddings.position_embeddings.weight"][: len(ids)]
        x = _norm(a, "embeddings.LayerNorm", x + a["embeddings.token_type_embeddings.weight"][0])
        for layer in range(LAYERS):
            at = f"encoder.layer.{layer}."
            query, key, value = (_linear(a, f"{at}attention.self.{part}", x) for part in ("query", "key", "value"))
            heads = [slice(start, start + HEAD) for start in range(0, WIDTH, HEAD)]
            seen = np.hstack([_softmax(query[:, h] @ key[:, h].T / math.sqrt(HEAD)) @ value[:, h] for h in heads])
            x = _norm(a, f"{at}attention.output.LayerNorm", x + _linear(a, f"{at}attention.output.dense", seen))
            wide = _linear(a, f"{at}intermediate.dense", x)
            wide = wide * (1 + np.vectorize(math.erf)(wide / math.sqrt(2))) / 2
            x = _norm(a, f"{at}output.LayerNorm", x + _linear(a, f"{at}output.dense", wide))
        mean = x.mean(axis=0)
        return mean / np.linalg.norm(mean)


def make(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Tiny:
    """Makes one, and lets it stand for the weights of these names."""
    arrays, source = _drawn(), folder / "source"
    source.mkdir()
    (source / "model.safetensors").write_bytes(_safetensors(arrays))
    (source / "tokenizer.json").write_text(_tokenizer())
    monkeypatch.setenv("MEMPILER_MODELS", str(folder / "models"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    made = encoder(arrays)
    for name in names:
        known = weights.WEIGHTS[name]
        model = replace(known.files[0], at="model.safetensors", sha256=_sha256(made), size=len(made))
        model = replace(model, source=_sha256((source / "model.safetensors").read_bytes()))
        told = (source / "tokenizer.json").read_bytes()
        tokens = replace(known.files[1], sha256=_sha256(told), size=len(told))
        monkeypatch.setitem(weights.WEIGHTS, name, replace(known, files=(model, tokens)))
    return Tiny(source, arrays)


def _drawn() -> dict[str, np.ndarray]:
    chance = np.random.default_rng(7)
    shapes = {
        "embeddings.word_embeddings.weight": (len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": (PLACES, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes[f"{at}{part}.weight"], shapes[f"{at}{part}.bias"] = (WIDTH, WIDTH), (WIDTH,)
        for part, out, into in (("intermediate.dense", WIDE, WIDTH), ("output.dense", WIDTH, WIDE)):
            shapes[f"{at}{part}.weight"], shapes[f"{at}{part}.bias"] = (out, into), (out,)
        norms += [f"{at}attention.output.LayerNorm", f"{at}output.LayerNorm"]
    found = {name: chance.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    for norm in norms:
        found[f"{norm}.weight"] = chance.normal(1, 0.1, WIDTH).astype(np.float32)
        found[f"{norm}.bias"] = chance.normal(0, 0.1, WIDTH).astype(np.float32)
    return found


def _tokenizer() -> str:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    special = [("[CLS]", 1), ("[SEP]", 2)]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    # As that of MiniLM does, which would make every text as long as the longest.
    made.enable_padding(length=64)
    return made.to_str()


def _safetensors(arrays: dict[str, np.ndarray]) -> bytes:
    header, start = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [start, start + array.nbytes]}
        start += array.nbytes
    told = json.dumps(header).encode()
    return struct.pack("<Q", len(told)) + told + b"".join(array.tobytes() for array in arrays.values())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _linear(a: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return x @ a[f"{name}.weight"].T + a[f"{name}.bias"]


def _norm(a: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return (
        centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12) * a[f"{name}.weight"] + a[f"{name}.bias"]
    )


def _softmax(x: np.ndarray) -> np.ndarray:
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)
