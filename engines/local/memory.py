"""The memory of a GPU between two models."""

from __future__ import annotations

import gc
import sys


def release_memory() -> None:
    """Give the memory of models that are no longer used back to the GPU."""
    gc.collect()
    # If torch was not imported, there is nothing to give back, and importing it takes seconds.
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
