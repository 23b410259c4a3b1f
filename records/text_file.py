"""Text files of users: only regular files are read, and no more of them than memory can hold.

A file may be anything: a pipe that nobody writes to, a device without an end, a few kilobytes that unpack to gigabytes.
"""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ..errors import DataError

MAX_LINE_LENGTH = 2**27
"""Most characters of a line, or of one entry of a list that is read entry by entry.

The longest genuine entries, chats of ten million tokens, have 43 million.
"""
MAX_FILE_LENGTH = 2**29
"""Most characters of a file that is read as a whole."""

_PIECE = 2**20
"""Characters that are read at once."""

_BEGINNINGS = {b"\x1f\x8b": "it is compressed", b"\xff\xfe": "it is UTF-16", b"\xfe\xff": "it is UTF-16"}
"""What files that are no UTF-8 begin with, and what they are."""


def check_regular_file(path: Path) -> None:
    """Refuse what is no regular file, before it is opened: to open a pipe waits until somebody writes to it.

    Raises:
        DataError: It is missing, or a folder, a device, a pipe or a socket.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {_reason(error)}") from error

    if stat.S_ISDIR(mode):
        raise DataError(f"{path}: cannot be read: it is a folder; name a file")
    if not stat.S_ISREG(mode):
        raise DataError(f"{path}: cannot be read: it is a pipe or a device; name a file that holds its content")


@contextmanager
def open_text_file(path: Path, newline: str | None = None) -> Generator[TextIO]:
    """Open a UTF-8 text file for reading; a byte-order mark is left out, and a .gz is unpacked.

    Raises:
        DataError: It is missing, no regular file, or no UTF-8 text, which may be seen while it is read.
    """
    check_regular_file(path)
    open_text: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        kind = _BEGINNINGS.get(error.object[:2], f"byte {error.start} is wrong")
        raise DataError(f"{path}: cannot be read as UTF-8 text: {kind}; save it unpacked, as UTF-8") from error
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {_reason(error)}") from error


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        DataError: It cannot be opened (`open_text_file`), is empty, or has more than `MAX_FILE_LENGTH` characters.
    """
    text = read_bounded(path, MAX_FILE_LENGTH, "split it into smaller files")
    if not text.strip():
        raise DataError(f"{path}: the file is empty")
    return text


def read_bounded(path: Path, longest: int, fix: str) -> str:
    """Return the text of a file that may be empty.

    Args:
        path: Of the file.
        longest: Most characters of it.
        fix: What to do about a longer one, for the error.

    Raises:
        DataError: It cannot be opened (`open_text_file`), or is longer.
    """
    pieces: list[str] = []
    length = 0
    with open_text_file(path) as file:
        while piece := file.read(_PIECE):
            length += len(piece)
            if length > longest:
                raise DataError(f"{path}: has more than {longest:,} characters; {fix}")
            pieces.append(piece)
    return "".join(pieces)


def read_lines(file: TextIO, path: Path) -> Iterator[str]:
    """Yield the lines of an open file, with their ends.

    Args:
        file: Opened by `open_text_file`.
        path: Of the file, for errors.

    Raises:
        DataError: A line has more than `MAX_LINE_LENGTH` characters.
    """
    number = 0
    while line := file.readline(MAX_LINE_LENGTH + 1):
        number += 1
        if len(line) > MAX_LINE_LENGTH:
            raise DataError(
                f"{path}: line {number} has more than {MAX_LINE_LENGTH:,} characters; is a line break missing?"
            )
        yield line


def _reason(error: Exception) -> object:
    """Return what an error says without the path, which messages begin with already."""
    return getattr(error, "strerror", None) or error
