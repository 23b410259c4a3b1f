"""The offline engine: answers without weights, key or network. See `engine` for its limits."""

from .engine import AsyncOfflineEngine, OfflineEngine

__all__ = ["AsyncOfflineEngine", "OfflineEngine"]
