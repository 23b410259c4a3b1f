"""A sentence encoder of two kilobytes, which gives each word a fixed vector, under the names of the real ones."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mempiler.engines import weights

WORDS = [
    "[UNK]", "[CLS]", "[SEP]", "query", "passage", "where", "does", "did", "ann", "bob", "live", "lives", "in", "oslo",
    "lisbon", "moved", "to", "likes", "jazz", "i", "saw", "with", "friends", "when", "user", ":", ".", "?",
]  # fmt: skip
TABLE = np.random.default_rng(7).normal(0, 1, (len(WORDS), 8)).astype(np.float32)
"""The weights of `data/tiny.onnx`; its inputs and output are those of the real encoders."""


def make(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Path:
    """Lets it stand for the weights of these names; returns the folder that they can be fetched from."""
    source = folder / "source"
    source.mkdir()
    (source / "model.onnx").write_bytes((Path(__file__).parent / "data" / "tiny.onnx").read_bytes())
    (source / "tokenizer.json").write_text(tokenizer_json())
    monkeypatch.setenv("MEMPILER_MODELS", str(folder / "models"))
    for name in names:
        known = weights.WEIGHTS[name]
        files = [
            replace(file, at=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), size=path.stat().st_size)
            for file, path in zip(known.files, (source / "model.onnx", source / "tokenizer.json"), strict=True)
        ]
        monkeypatch.setitem(weights.WEIGHTS, name, replace(known, files=tuple(files)))
    return source


def tokenizer_json() -> str:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    special = [("[CLS]", 1), ("[SEP]", 2)]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    # As that of MiniLM does, which would make every text as long as the longest.
    made.enable_padding(length=64)
    return made.to_str()
