"""Vectors that outlive a process: what an embedder has embedded once, the next one reads.

    embedder ── sha256(identity, text) ──> the shelf of whoever it works for (`kept_on`): a user of a store
                                     └───> else the file in the cache of the user who runs it (`engines.vector_file`)

The identity says what else decides about a text's vector: the digest of the weights, or the model's name and address;
what a query or a passage begins with is part of the text. So vectors of two embedders never meet.

Vectors are data about what was said. Those of a user of a store go onto no other shelf than that user's: they are
forgotten with everything else of theirs, and with nothing of anybody else's. What is asked of a user's memory is kept
nowhere.
"""

from __future__ import annotations

import contextvars
import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from ..records.scope import holding


class Shelf(Protocol):
    """Keeps vectors by key, as bytes; it is a cache, which raises nothing and may keep nothing."""

    def read(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The vectors that are there."""
        ...

    def write(self, vectors: Mapping[bytes, bytes]) -> None:
        """Adds vectors, or puts them in the place of others."""
        ...


_whose: contextvars.ContextVar[Shelf | None] = contextvars.ContextVar("mempiler_shelf", default=None)


def kept_on(shelf: Shelf) -> AbstractContextManager[None]:
    """Makes this the shelf of what embedders work on in the block, gathered calls included."""
    return holding(_whose, shelf)


class Kept:
    """The vectors of one embedder.

    Args:
        identity: What decides about a text's vector beside the text.
        file: Where they are kept that are of no user of a store.
    """

    def __init__(self, identity: str, file: Shelf) -> None:
        self._identity, self._file = identity, file

    def read(self, texts: Sequence[str], queries: bool = False) -> dict[str, np.ndarray]:
        """The vectors that are there, by text; all of one length.

        Args:
            texts: The texts.
            queries: Whether they are searched for, not searched.
        """
        shelf = self._shelf(queries)
        if shelf is None:
            return {}
        keys = {self._key(text): text for text in texts}
        found = {keys[key]: _vector(content) for key, content in shelf.read(list(keys)).items()}
        length = len(next(iter(found.values()), ()))
        return {text: vector for text, vector in found.items() if len(vector) == length}

    def write(self, used: Mapping[str, np.ndarray], new: Collection[str], queries: bool = False) -> None:
        """Keeps vectors: of a user all that were used, since another one's text may have been the same.

        Args:
            used: Vectors by text.
            new: Those of them that were computed just now.
            queries: Whether the texts are searched for, not searched.
        """
        shelf = self._shelf(queries)
        texts = new if shelf is self._file else used
        if shelf is not None and texts:
            shelf.write({self._key(text): used[text].astype("<f4").tobytes() for text in texts})

    def _shelf(self, queries: bool) -> Shelf | None:
        whose = _whose.get()
        if whose is None:
            return self._file
        return None if queries else whose

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self._identity}\0{text}".encode(errors="surrogatepass")).digest()


def _vector(content: bytes) -> np.ndarray:
    return np.frombuffer(content[: len(content) // 4 * 4], dtype="<f4").astype(np.float32)
