"""The shelf of a user of a store: embedders read and write the vectors of the user's texts there.

What this process has seen on it is not written once more, and nothing is written once the user or one of their sessions
was forgotten since the work began: a vector of a text that was forgotten must not come back. A store that fails here
fails nobody: what is read and written next says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import StoreError
from .store import Store
from .stored import Owner


class UserVectors:
    """The vectors of a user; threads may share it.

    Args:
        store: Keeps them.
        owner: Whose.
        since: What `Store.forgets` was when the work began.
        seen: The lengths of those known to be there, from one work with the user to the next.
    """

    def __init__(self, store: Store, owner: Owner, since: int, seen: dict[bytes, int]) -> None:
        self._store, self._owner, self._since, self._seen = store, owner, since, seen

    def read(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The vectors that are there, by key."""
        try:
            found = self._store.vectors(self._owner, keys)
        except StoreError:
            return {}
        self._seen.update((key, len(vector)) for key, vector in found.items())
        return found

    def write(self, vectors: Mapping[bytes, bytes]) -> None:
        """Adds vectors, or puts them in the place of others of another length."""
        new = {key: vector for key, vector in vectors.items() if self._seen.get(key) != len(vector)}
        if not new:
            return
        try:
            kept = self._store.keep_vectors(self._owner, new, self._since)
        except StoreError:
            return
        if kept:
            self._seen.update((key, len(vector)) for key, vector in new.items())
