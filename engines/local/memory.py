"""Memory of a GPU between two models."""

from __future__ import annotations

import gc
import sys


def release_memory() -> None:
    """Give memory of models that are no longer used back to the GPU, for the next one; torch is not loaded for it."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
