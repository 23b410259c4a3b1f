"""How often something failed in a row, by user or tenant; their names are not kept.

A user may be forgotten while calls for that user are still failing, here or in another process. So
failures are counted under keys that do not tell the name, and only of so many users.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict

from ...memory.store.owner import Owner

MAX_COUNTED = 1000
"""The most users whose failures are counted; those who failed longest ago go first."""


class NameKeys:
    """Turns names into keys: digests under a secret that only this object has."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def key_of(self, *names: str) -> bytes:
        """Return the key of a name, or of several names together."""
        text = "\0".join(names).encode(errors="surrogatepass")
        return hashlib.blake2b(text, key=self._secret, digest_size=16).digest()


class FailureCounts:
    """Counts the failures in a row of users; safe under threads.

    Args:
        limit: The most users that are counted.
    """

    def __init__(self, limit: int = MAX_COUNTED) -> None:
        self._limit = limit
        self._keys = NameKeys()
        self._lock = threading.Lock()
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        """Return how many users have failed."""
        return len(self._counts)

    def add(self, owner: Owner) -> int:
        """Count a failure; return how many there were in a row, with this one."""
        key = self._keys.key_of(owner.tenant, owner.user)
        with self._lock:
            count = self._counts.get(key, 0) + 1
            self._counts[key] = count
            self._counts.move_to_end(key)
            while len(self._counts) > self._limit:
                self._counts.popitem(last=False)
            return count

    def reset(self, owner: Owner) -> None:
        """Drop the failures of a user, who succeeded or was forgotten."""
        with self._lock:
            self._counts.pop(self._keys.key_of(owner.tenant, owner.user), None)
