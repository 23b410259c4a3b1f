"""Fixtures for tests of engines: a cache folder, two ways to ask a model, a tiny encoder."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mempiler.engines.embedders import MODELS
from mempiler.engines.encoder import Encoder, TextEncoding
from mempiler.engines.weights import WEIGHTS, File, fetch

from .tiny_encoder import write_encoder


@pytest.fixture(autouse=True)
def cache_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors and digests are cached in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=["call", "acall"])
def ask(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A function that asks a model and returns its answers: by a plain call, or under asyncio."""

    def ask_by_call(lm: Any, text: str = "question: Where?") -> Any:
        return lm(text)

    def ask_under_asyncio(lm: Any, text: str = "question: Where?") -> Any:
        return asyncio.run(lm.acall(text))

    return ask_by_call if request.param == "call" else ask_under_asyncio


@pytest.fixture
def tiny_files_to_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of a tiny encoder, which stands for "minilm" and "e5".

    `mempiler fetch minilm --from FOLDER` accepts these files; nothing is fetched yet.
    """
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tokenizers")
    folder = tmp_path / "source"
    folder.mkdir()
    write_encoder(folder)

    monkeypatch.setenv("MEMPILER_MODELS", str(tmp_path / "models"))
    for name in MODELS:
        weights = WEIGHTS[name]
        model_file, tokenizer_file = weights.files
        files = (
            pinned_to(folder / "model.onnx", model_file),
            pinned_to(folder / "tokenizer.json", tokenizer_file),
        )
        monkeypatch.setitem(WEIGHTS, name, replace(weights, files=files))
    return folder


def pinned_to(path: Path, file: File) -> File:
    """Return a file of known weights, changed to have the name, digest and size of `path`."""
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    return replace(file, source_path=path.name, sha256=sha256, size=len(content))


@pytest.fixture
def tiny_minilm(tiny_files_to_fetch: Path) -> Path:
    """From now on `embedder("minilm")` and `embedder("e5")` run a tiny encoder.

    The fixture is the folder of its two files.
    """
    for name in MODELS:
        fetch(WEIGHTS[name], str(tiny_files_to_fetch))
    return tiny_files_to_fetch


@pytest.fixture
def texts_through_network(tiny_minilm: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that have gone through the network of an encoder so far.

    A text whose vector is read from a cache is not among them.
    """
    texts_so_far: list[str] = []
    encode = Encoder.__call__

    def encode_and_record(encoder: Encoder, texts: Sequence[str]) -> list[TextEncoding]:
        encodings = encode(encoder, texts)
        texts_so_far.extend(texts)
        return encodings

    monkeypatch.setattr(Encoder, "__call__", encode_and_record)
    return texts_so_far
