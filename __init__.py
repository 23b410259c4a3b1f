"""Recollect: long-term memory methods for LLM agents as DSPy programs."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "RecollectError": ".errors",
    "History": ".records",
    "Session": ".records",
    "Turn": ".records",
    "Context": ".records",
    "Hit": ".records",
}
__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
