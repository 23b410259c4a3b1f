"""The words that tokenizers of Hugging Face keep: thousands, and passwords may be among them."""

from __future__ import annotations

from typing import Any


def clear_word_cache(tokenizer: Any) -> None:
    """Drop the words that a `tokenizers.Tokenizer` has split so far.

    Kinds of tokenizers that keep no words are left as they are.
    """
    clear = getattr(tokenizer.model, "_clear_cache", None)
    if clear is not None:
        clear()
