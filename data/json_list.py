"""Read a file that is one JSON list, entry by entry, in bounded memory.

ijson does this too, but not as strictly as `records.json_input`: it takes the last of two equal
keys, and turns half of a surrogate pair into a question mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from ..errors import DataError
from ..records.json_input import check_json_value, strict_decoder
from ..records.text_file import MAX_LINE_LENGTH, open_text_file

PIECE = 1 << 20
"""Characters of a long list that are read at once."""

_SPACE = re.compile(r"[ \t\n\r]*")


def stream_list(path: Path, piece: int = PIECE, longest: int = MAX_LINE_LENGTH) -> Iterator[Any]:
    """Yield the entries of a file that is one JSON list.

    A file of gigabytes needs no more memory than its largest entry. An entry that ends beyond the
    piece that was read is tried again with twice as much text, so the work stays within a small
    multiple of the file's size.

    Args:
        path: A UTF-8 file whose top level is a list.
        piece: Characters that are read at once.
        longest: Most characters of an entry.

    Raises:
        DataError: The file is missing, empty, not UTF-8, no JSON list or cut short, or an entry is
            too long. The entries before the fault have been yielded by then.
    """
    with open_text_file(path) as file:
        yield from _entries(path, _Window(file, piece, longest))


class _Window:
    """The part of a file that is in memory, and the position `at` up to which it has been parsed.

    Args:
        file: The file.
        piece: Characters that are read at once.
        longest: Most characters that are kept.
    """

    def __init__(self, file: TextIO, piece: int, longest: int) -> None:
        self._file = file
        self._piece = piece
        self.longest = longest
        self.text = ""
        self.at = 0

    @property
    def is_full(self) -> bool:
        """Whether the text that is not parsed yet is as long as it may be."""
        return len(self.text) - self.at >= self.longest

    def grow(self) -> bool:
        """Drop the parsed text and read more; return whether there was more.

        At least as much is read as is left unparsed, so that a long entry is tried again only a few
        times.
        """
        unparsed = self.text[self.at :]
        self.text = unparsed
        self.at = 0
        room = self.longest - len(unparsed)
        if room <= 0:
            return False
        new_text = self._file.read(min(max(self._piece, len(unparsed)), room))
        self.text += new_text
        return bool(new_text)

    def skip_space(self) -> None:
        """Move `at` to the next character that is no space, or to the end of the text."""
        self.at = _end_of_space(self.text, self.at)

    def find_text(self) -> bool:
        """Move `at` to the next character that is no space, reading on; return False at the end."""
        while True:
            self.skip_space()
            if self.at < len(self.text):
                return True
            if not self.grow():
                return False


def _end_of_space(text: str, start: int) -> int:
    """Return the position of the first character from `start` on that is no space."""
    match = _SPACE.match(text, start)
    return start if match is None else match.end()


def _entries(path: Path, window: _Window) -> Iterator[Any]:
    """Yield the entries of the list in a window; raise DataError as `stream_list` does."""
    if not window.find_text():
        raise DataError(f"{path}: expected a JSON list, but the file is empty")
    beginning = window.text[window.at :]
    if not beginning.startswith("["):
        raise DataError(
            f"{path}: expected a JSON list, but the file begins with {beginning[:20]!r}"
        )

    window.at += 1
    decoder = strict_decoder()
    number = 0
    if window.find_text() and window.text.startswith("]", window.at):
        window.at += 1
    else:
        is_last = False
        while not is_last:
            number += 1
            entry = _next_entry(f"{path}: entry {number}", window, decoder)
            yield entry.value
            is_last = entry.is_last

    if window.find_text():
        raise DataError(f"{path}: something follows the list after its entry {number}")


class _Entry(NamedTuple):
    """An entry of the list."""

    value: Any
    is_last: bool


class _UnfinishedEntryError(Exception):
    """The text that was read has no whole entry; the message says what is wrong with it."""


def _next_entry(where: str, window: _Window, decoder: json.JSONDecoder) -> _Entry:
    """Read the next entry, and the comma or bracket behind it.

    The text that was read may end within the entry. So an entry that cannot be parsed is tried
    again with more text, until the file ends or the entry is too long.

    Raises:
        DataError: The entry is malformed, cut short, too long or nested too deeply.
    """
    # Moves to the beginning of the entry. If there is none, parsing it says so.
    window.find_text()
    while True:
        try:
            return _parse_entry(where, window, decoder)
        except _UnfinishedEntryError as error:
            problem = str(error)

        if window.is_full:
            size = f"it has more than {window.longest:,} characters"
            raise DataError(f"{where}: {problem}, and {size}; is a closing quote missing?")
        if not window.grow():
            raise DataError(f"{where}: {problem}; is the file cut short?")


def _parse_entry(where: str, window: _Window, decoder: json.JSONDecoder) -> _Entry:
    """Parse the entry at the window's position, and move behind its comma or bracket.

    Raises:
        _UnfinishedEntryError: The text may be the beginning of an entry.
        DataError: More text would not help.
    """
    try:
        value, end = decoder.raw_decode(window.text, window.at)
        check_json_value(value, window.text[window.at : end])
    except json.JSONDecodeError as error:
        raise _UnfinishedEntryError(f"not valid JSON ({error.msg})") from None
    except RecursionError:
        raise DataError(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error

    after = _end_of_space(window.text, end)
    sign = window.text[after : after + 1]
    if sign not in (",", "]"):
        # The text may end here, or within a number: 12 of 123 is a whole number, too.
        raise _UnfinishedEntryError(f"expected ',' or ']' after it, got {sign!r}")
    window.at = after + 1
    return _Entry(value, is_last=sign == "]")
