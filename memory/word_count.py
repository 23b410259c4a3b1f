r"""The length of a memory in words, counted by `\b\w+\b` as Memory-R2's released code does."""

from __future__ import annotations

import re
from typing import Any

from pydantic import JsonValue

from .memory import Memory

_WORD = re.compile(r"\b\w+\b")


def count_memory_words(memory: Memory[Any]) -> int:
    """Return the number of words in all entries of a memory.

    If the class of the memory does not list entries, all texts in its JSON count.
    """
    if memory.lists_entries():
        texts = [entry.text for entry in memory.entries()]
    else:
        texts = _texts_in(memory.model_dump(mode="json"))
    return sum(count_words(text) for text in texts)


def count_words(text: str) -> int:
    """Return the number of words of a text."""
    return len(_WORD.findall(text))


def _texts_in(value: JsonValue) -> list[str]:
    """Return all texts in a JSON value, at any depth, without the names of fields."""
    if isinstance(value, str):
        return [value]

    parts: list[JsonValue] = []
    if isinstance(value, dict):
        parts.extend(value.values())
    elif isinstance(value, list):
        parts.extend(value)

    texts: list[str] = []
    for part in parts:
        texts.extend(_texts_in(part))
    return texts
