"""What tests of engines share: a cache of their own, both ways to ask, and a sentence encoder of two kilobytes."""

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mempiler.engines.embedders import MODELS
from mempiler.engines.encoder import Encoder
from mempiler.engines.weights import WEIGHTS, fetch


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors are kept in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tiny encoder, which stands for all names; nothing is fetched yet."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tokenizers")
    source = tmp_path / "source"
    source.mkdir()
    (source / "model.onnx").write_bytes((Path(__file__).parent / "data" / "tiny.onnx").read_bytes())
    (source / "tokenizer.json").write_text(tokenizer_json())
    monkeypatch.setenv("MEMPILER_MODELS", str(tmp_path / "models"))
    for name in MODELS:
        known = WEIGHTS[name]
        files = [
            replace(file, source_path=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), size=path.stat().st_size)
            for file, path in zip(known.files, (source / "model.onnx", source / "tokenizer.json"), strict=True)
        ]
        monkeypatch.setitem(WEIGHTS, name, replace(known, files=tuple(files)))
    return source


@pytest.fixture
def tiny(source: Path) -> Path:
    """The same, fetched."""
    for name in MODELS:
        fetch(WEIGHTS[name], str(source))
    return source


@pytest.fixture
def asked(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that went through the tiny network."""
    seen: list[str] = []
    encode = Encoder._encode
    monkeypatch.setattr(Encoder, "_encode", lambda self, text: seen.append(text) or encode(self, text))
    return seen


@pytest.fixture(params=["call", "acall"])
def ask(request: pytest.FixtureRequest) -> Any:
    """Asks a model, from a thread or from a loop."""

    def asked(lm: Any, text: str = "question: Where?") -> Any:
        return lm(text) if request.param == "call" else asyncio.run(lm.acall(text))

    return asked


WORDS = [
    "[UNK]", "[CLS]", "[SEP]", "query", "passage", "where", "does", "did", "ann", "bob", "live", "lives", "in", "oslo",
    "lisbon", "moved", "to", "likes", "jazz", "i", "saw", "with", "friends", "when", "user", ":", ".", "?",
]  # fmt: skip
TABLE = np.random.default_rng(7).normal(0, 1, (len(WORDS), 8)).astype(np.float32)
"""The weights of `data/tiny.onnx`; its inputs and output are those of the real encoders."""


def tokenizer_json() -> str:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    special = [("[CLS]", 1), ("[SEP]", 2)]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    # As that of MiniLM does, which would make every text as long as the longest.
    made.enable_padding(length=64)
    return made.to_str()
