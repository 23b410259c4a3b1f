"""What tests of engines share: a cache of their own, since vectors are kept there, and both ways to ask."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mempiler.engines.embedders import MODELS
from mempiler.engines.encoder import Encoder
from mempiler.engines.weights import WEIGHTS, fetch

from .tiny_encoder import make


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors are kept in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tiny encoder, which stands for all names; nothing is fetched yet."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tokenizers")
    return make(tmp_path, monkeypatch, *MODELS)


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
