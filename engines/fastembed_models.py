"""Models of fastembed's lists: those that embed texts, and those that rerank them.

A model is looked for in the lists before a run begins. It is loaded when it is first needed, and
may have to be downloaded then.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import EndpointError, UserError
from ..optional_import import require_package
from ..records.shared_by_copies import SharedByCopies
from ..text import one_line
from .fair_semaphore import compute_slot

EMBEDDERS = ("TextEmbedding",)
"""What fastembed calls the kind of models that embed texts."""
RERANKERS = ("LateInteractionTextEmbedding", "TextCrossEncoder")
"""What fastembed calls the kinds of models that rerank texts."""


class LoadedModel(NamedTuple):
    """A model of fastembed that is ready for use."""

    kind: str
    """What fastembed calls this kind of models."""
    model: Any


class FastEmbedModel(SharedByCopies):
    """A model of fastembed by its name. Many threads may use it; it is loaded once.

    Args:
        name: Its name in fastembed's list.
        kinds: The kinds of models among which it is looked for.
    """

    def __init__(self, name: str, kinds: Sequence[str]) -> None:
        self._name = name
        self._kinds = kinds
        self._lock = threading.Lock()
        self._loaded_model: LoadedModel | None = None

    def check(self) -> None:
        """Refuse a model that is in none of the lists; nothing is loaded.

        Raises:
            UserError: It is in none of them.
            MissingDependencyError: fastembed is not installed.
        """
        _find_model(self._name, self._kinds)

    def load(self) -> LoadedModel:
        """Return the model; the first call loads it.

        Raises:
            EndpointError: It cannot be loaded.
            UserError, MissingDependencyError: As for `check`.
        """
        with self._lock:
            if self._loaded_model is None:
                self._loaded_model = _load_model(self._name, self._kinds)
            return self._loaded_model


class FastEmbedVectors:
    """Embed texts with a model of fastembed's list, each text by itself.

    Args:
        name: The name of the model.
    """

    def __init__(self, name: str) -> None:
        self._model = FastEmbedModel(name, EMBEDDERS)

    def check(self) -> None:
        """Refuse a model that fastembed does not have; see `FastEmbedModel.check`."""
        self._model.check()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts, [texts, dimension].

        Raises:
            AbandonedCallError: The deadline of the call context has passed.
            EndpointError, UserError, MissingDependencyError: As for `FastEmbedModel.load`.
        """
        # Before a slot is held: the model may have to be downloaded.
        model = self._model.load().model

        vectors: list[np.ndarray] = []
        for text in texts:
            with compute_slot():
                (vector,) = model.embed([text], batch_size=1)
                vectors.append(vector)
        return np.stack(vectors)


def fastembed_version() -> str:
    """Return the installed version of fastembed; "" if there is none."""
    try:
        return importlib.metadata.version("fastembed")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _load_model(name: str, kinds: Sequence[str]) -> LoadedModel:
    """Load a model of one of the kinds, which may download it first.

    Raises:
        EndpointError: It cannot be loaded.
        UserError, MissingDependencyError: As for `_find_model`.
    """
    kind = _find_model(name, kinds)
    try:
        return LoadedModel(kind, _model_class(kind)(name))
    except Exception as error:  # its errors have no class of their own
        raise EndpointError(f"fastembed cannot load {name}: {one_line(error, 200)}") from error


def _find_model(name: str, kinds: Sequence[str]) -> str:
    """Return the first of the kinds that has a model of this name.

    Raises:
        UserError: None has it.
        MissingDependencyError: fastembed is not installed.
    """
    for kind in kinds:
        for description in _model_class(kind).list_supported_models():
            if description["model"] == name:
                return kind

    # The error points to one list, although there may be two.
    last_kind = kinds[-1]
    raise UserError(
        f"fastembed has no {last_kind} {name!r}; see {last_kind}.list_supported_models()"
    )


def _model_class(kind: str) -> Any:
    """Return the class of fastembed for a kind of models.

    Raises:
        MissingDependencyError: fastembed is not installed.
    """
    with require_package("fastembed", "rerank"):
        import fastembed  # pyright: ignore[reportMissingImports]
        from fastembed.rerank.cross_encoder import (  # pyright: ignore[reportMissingImports]
            TextCrossEncoder,
        )

    classes = {
        "TextEmbedding": fastembed.TextEmbedding,
        "LateInteractionTextEmbedding": fastembed.LateInteractionTextEmbedding,
        "TextCrossEncoder": TextCrossEncoder,
    }
    return classes[kind]
