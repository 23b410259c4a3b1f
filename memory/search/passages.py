r"""The passages of a text, each of which gets a vector of its own.

Example:
    >>> from mempiler.memory.search.passages import passages
    >>> passages("Ann: I moved to Lisbon.\nIt is warm here.", speaker="Ann")
    ['I moved to Lisbon.', 'It is warm here.']
"""

from __future__ import annotations

MAX_LENGTH = 900
"""Most characters of a passage."""
MIN_LENGTH = 300
"""Fewest characters of a passage that ends at a blank in a longer line."""


def passages(text: str, speaker: str | None) -> list[str]:
    """Divide a text into passages, each of which gets a vector, so that each topic can be found.

    Each line is a passage, and a line longer than `MAX_LENGTH` is cut into several. The name of the
    speaker at the beginning ("Ann: ") is left out. An empty text has one passage, "".
    """
    text_passages: list[str] = []
    for line in text.removeprefix(f"{speaker}: ").splitlines():
        text_passages.extend(_cut_line(line))
    return text_passages or [""]


def _cut_line(line: str) -> list[str]:
    """Cut a line into pieces of at most `MAX_LENGTH` characters, each as long as possible.

    A piece ends at a blank. It ends within a word only where a blank would leave it shorter than
    `MIN_LENGTH`.
    """
    pieces: list[str] = []
    while len(line) > MAX_LENGTH:
        end = line.rfind(" ", MIN_LENGTH, MAX_LENGTH)
        if end == -1:
            # There is no blank to cut at.
            end = MAX_LENGTH
        pieces.append(line[:end])
        line = line[end:].lstrip()
    pieces.append(line)
    return pieces
