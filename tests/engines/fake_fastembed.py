"""A stand-in for the package fastembed, which downloads its models."""

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest


class FakeModelClass:
    """Stands for a class of fastembed, such as `TextEmbedding`: it lists models and loads them.

    Args:
        names: The names of its models.
        on_load: Called with the name of a model while it is loaded.
        **methods: What its models can do.
    """

    def __init__(
        self, *names: str, on_load: Callable[[str], None] | None = None, **methods: Any
    ) -> None:
        self._names = names
        self._on_load = on_load
        self._methods = methods

    def __call__(self, name: str) -> Any:
        """Load a model."""
        if self._on_load is not None:
            self._on_load(name)
        return SimpleNamespace(**self._methods)

    def list_supported_models(self) -> list[dict[str, str]]:
        return [{"model": name} for name in self._names]


NO_MODELS = FakeModelClass()


def use_fake_fastembed(
    monkeypatch: pytest.MonkeyPatch,
    text_embedding: FakeModelClass = NO_MODELS,
    late_interaction: FakeModelClass = NO_MODELS,
    cross_encoder: FakeModelClass = NO_MODELS,
) -> None:
    """Have imports of fastembed find these classes for the rest of the test."""
    module = SimpleNamespace(
        TextEmbedding=text_embedding,
        LateInteractionTextEmbedding=late_interaction,
        TextCrossEncoder=cross_encoder,
    )
    for name in ("fastembed", "fastembed.rerank", "fastembed.rerank.cross_encoder"):
        monkeypatch.setitem(sys.modules, name, module)


def embed_by_length(texts: Sequence[str], batch_size: int) -> Any:
    """Embed texts as a model of `TextEmbedding` would: the vector of a text is 1 and its length."""
    for text in texts:
        yield [1.0, len(text)]
