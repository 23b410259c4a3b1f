"""The folder in the user's cache: vectors, digests and weights, all of which can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of Mempiler in the user's cache; it may not exist yet."""
    users_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(users_cache) / "mempiler"
