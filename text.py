"""Put a text on one line.

Prompts, tables and logs hold one thing a line. A text with line breaks in it could pose as several
things, for example as another turn of a conversation.
"""

from __future__ import annotations


def one_line(text: object, max_length: int | None = None) -> str:
    """Return a text with every run of white space, line breaks too, replaced by one blank.

    Args:
        text: A text, or something whose `str` is taken, such as an exception; None is "".
        max_length: The most characters that are returned.
    """
    if text is None:
        return ""
    words = str(text).split()
    return " ".join(words)[:max_length]
