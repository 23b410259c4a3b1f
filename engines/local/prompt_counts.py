"""Count how often each prompt was sampled, without keeping the prompts."""

from __future__ import annotations

import hashlib
import secrets
import threading
from array import array
from collections.abc import Sequence

from cachetools import LRUCache

MAX_PROMPTS = 20_000
"""Prompts that are counted. Beyond it, the prompt that was not sampled for longest is dropped."""


class PromptCounts:
    """Count prompts by a digest; nobody can find out a prompt from it.

    The digest is keyed with a random secret of this object, so that the digest of a guessed prompt
    cannot be compared with it.

    Args:
        most: The most prompts that are counted. A prompt that was dropped begins at 1 again.
    """

    def __init__(self, most: int = MAX_PROMPTS) -> None:
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._counts: LRUCache[bytes, int] = LRUCache(most)

    def add(self, prompt: Sequence[int]) -> int:
        """Count a prompt, and return how often it has come, including this time.

        Args:
            prompt: The token ids of the prompt.
        """
        content = array("q", prompt).tobytes()
        digest = hashlib.blake2b(content, key=self._secret, digest_size=16).digest()
        with self._lock:
            count = self._counts.get(digest, 0) + 1
            self._counts[digest] = count
            return count

    def clear(self) -> None:
        """Forget all counts."""
        with self._lock:
            self._counts.clear()
