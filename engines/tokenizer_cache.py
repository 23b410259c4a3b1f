"""Words that tokenizers of Hugging Face keep: they remember how they split thousands of words, passwords among them."""

from __future__ import annotations

from typing import Any


def clear_word_cache(tokenizer: Any) -> None:
    """Drop the words that a `tokenizers.Tokenizer` has seen so far; kinds that keep none are left as they are."""
    clear = getattr(tokenizer.model, "_clear_cache", None)
    if clear is not None:
        clear()
