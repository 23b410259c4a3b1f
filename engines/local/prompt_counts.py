"""How often each prompt was sampled, without keeping the prompts."""

from __future__ import annotations

import hashlib
import secrets
import threading
from array import array
from collections.abc import Sequence

from cachetools import LRUCache

MOST_PROMPTS = 20_000
"""Prompts that are counted; those that were not asked for longest go first, and begin anew."""


class PromptCounts:
    """Counts prompts by a digest under a secret of this object, from which no prompt can be found again."""

    def __init__(self, most: int = MOST_PROMPTS) -> None:
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._counts: LRUCache[bytes, int] = LRUCache(most)

    def add(self, prompt: Sequence[int]) -> int:
        """Count a prompt, by its token ids; return how often it has come, this time included."""
        key = hashlib.blake2b(array("q", prompt).tobytes(), key=self._secret, digest_size=16).digest()
        with self._lock:
            count = self._counts.get(key, 0) + 1
            self._counts[key] = count
            return count

    def clear(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self._counts.clear()
