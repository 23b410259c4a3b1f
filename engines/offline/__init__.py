"""The offline engine: answers without weights, key or network. `engine` says what it is and what it is not."""

from .engine import AsyncOfflineEngine, OfflineEngine

__all__ = ["AsyncOfflineEngine", "OfflineEngine"]
