"""The embeddings of an index as a file: an array of numbers beside the entries, and the name of what made it."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, ProgramError
from .index import Embedder, Entry, load_folder, save_folder

VECTORS = "vectors.npy"


def save_vectors(
    folder: str | Path,
    kind: str,
    entries: Sequence[Entry],
    embedder: Embedder,
    vectors: np.ndarray,
    about: dict[str, Any] | None = None,
) -> None:
    """Writes entries and vectors to an index folder.

    Args:
        folder: Where to; made if missing.
        kind: Of the index.
        entries: All entries, in order.
        embedder: Made the vectors.
        vectors: float32, shape [vectors, dimension].
        about: Further settings that the manifest keeps.

    Raises:
        DataError: The folder cannot be written.
    """
    file = io.BytesIO()
    np.save(file, vectors, allow_pickle=False)
    settings = {"embedder": embedder.name, "dimension": int(vectors.shape[1]), **(about or {})}
    save_folder(folder, kind, entries, settings, {VECTORS: file.getvalue()})


def load_vectors(
    folder: str | Path, kind: str, embedder: Embedder | None, count: Callable[[Entry], int] = lambda entry: 1
) -> tuple[Embedder, list[Entry], np.ndarray, dict[str, Any]]:
    """Reads and verifies what `save_vectors` wrote, without embedding anything.

    Args:
        folder: The index folder.
        kind: The kind it has to be.
        embedder: The embedder that the index was made with.
        count: How many vectors an entry has.

    Returns:
        The embedder, the entries, the vectors and the settings.

    Raises:
        DataError: A file is missing, altered or of another kind.
        ProgramError: The embedder is missing, or not the one the index was made with.
    """
    entries, about, files = load_folder(folder, kind, [VECTORS])
    name, dimension = about.get("embedder"), about.get("dimension")
    if embedder is None or embedder.name != name:
        given = "no embedder" if embedder is None else repr(embedder.name)
        raise ProgramError(f"{folder}: was made with embedder {name!r}, got {given}; give that one or rebuild it")
    if embedder.dimension not in (0, dimension) and entries:
        raise ProgramError(
            f"{folder}: embedder {name!r} gave {dimension} numbers a text when this was made, "
            f"now {embedder.dimension}; rebuild the index"
        )
    try:
        vectors = np.load(io.BytesIO(files[VECTORS]), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{Path(folder) / VECTORS}: not an array of numbers; rebuild the index") from error
    if vectors.dtype != np.float32 or vectors.shape != (sum(map(count, entries)), dimension):
        raise DataError(f"{Path(folder) / VECTORS}: does not fit the {len(entries)} entries; rebuild the index")
    return embedder, entries, vectors, about
