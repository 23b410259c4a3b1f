"""The vectors of a user's texts, kept in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...errors import StoreError
from ...memory.store.owner import Owner
from ...memory.store.store import Store


@dataclass(frozen=True, eq=False)
class UserVectors:
    """The stored vectors of a user, for embedders.

    Vectors that are known to be stored are not written again. If the store fails here, nothing is
    raised: the next reading or writing of the store says so.
    """

    store: Store
    owner: Owner
    forget_count: int
    """What `Forgetting.count` was when the work began."""
    seen: dict[bytes, int]
    """The lengths of the vectors that are known to be stored, by key; kept with the user."""

    def read(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        stored: Mapping[bytes, bytes] = {}
        with suppress(StoreError):
            stored = self.store.vectors.get(self.owner, keys)
        self._note_stored(stored)
        return stored

    def write(self, vectors: Mapping[bytes, bytes]) -> None:
        new_vectors = {
            key: vector for key, vector in vectors.items() if self.seen.get(key) != len(vector)
        }
        if not new_vectors:
            return
        with suppress(StoreError):
            if self.store.vectors.put(self.owner, new_vectors, self.forget_count):
                self._note_stored(new_vectors)

    def _note_stored(self, vectors: Mapping[bytes, bytes]) -> None:
        for key, vector in vectors.items():
            self.seen[key] = len(vector)
