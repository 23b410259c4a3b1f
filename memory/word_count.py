r"""The length of a memory in words, counted by `\b\w+\b` as Memory-R2's released code does."""

from __future__ import annotations

import re
from typing import Any

from pydantic import JsonValue

from .memory import Memory

_WORD = re.compile(r"\b\w+\b")


def memory_words(memory: Memory[Any]) -> int:
    """Return the words of a memory's entries; of all its texts, where what it holds cannot be listed."""
    if memory.lists_entries():
        return sum(count_words(entry.text) for entry in memory.entries())
    return sum(count_words(text) for text in _texts(memory.model_dump(mode="json")))


def count_words(text: str) -> int:
    """Return the number of words of a text."""
    return len(_WORD.findall(text))


def _texts(value: JsonValue) -> list[str]:
    """Return all texts in a JSON value, but for the names of its fields."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return []
    return [text for part in value for text in _texts(part)]
