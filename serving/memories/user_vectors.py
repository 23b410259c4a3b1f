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
    raised: vectors can be computed anew, and the next reading or writing of the memory reports it.
    """

    store: Store
    owner: Owner
    forget_count: int
    """What `Forgetting.count` was when the work began."""
    seen: dict[bytes, int]
    """The lengths of the vectors that are known to be stored, by key; kept with the user."""

    def read(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the stored vectors of some keys; keys without a vector are left out."""
        stored: Mapping[bytes, bytes] = {}
        with suppress(StoreError):
            stored = self.store.vectors.get(self.owner, keys)
        self._note_stored(stored)
        return stored

    def write(self, vectors: Mapping[bytes, bytes]) -> None:
        """Store the vectors that are not stored yet.

        If anything of the user was forgotten since the work began, the store refuses all of them. A
        failure of the store is ignored, because lost vectors can be computed again.
        """
        new_vectors: dict[bytes, bytes] = {}
        for key, vector in vectors.items():
            # A stored vector of another length comes from another model of the same name. It is
            # replaced.
            if self.seen.get(key) != len(vector):
                new_vectors[key] = vector
        if not new_vectors:
            return

        with suppress(StoreError):
            was_stored = self.store.vectors.put(self.owner, new_vectors, self.forget_count)
            if was_stored:
                self._note_stored(new_vectors)

    def _note_stored(self, vectors: Mapping[bytes, bytes]) -> None:
        for key, vector in vectors.items():
            self.seen[key] = len(vector)
