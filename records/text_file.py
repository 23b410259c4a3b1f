"""Read text files of users, which may be anything but text files.

A path may lead to a pipe that nobody writes to, a device without an end, or a few kilobytes that
unpack to gigabytes. So only regular files are read, and only as much of them as fits into memory.
"""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ..errors import DataError

MAX_LINE_LENGTH = 2**27
"""Most characters of a line, or of one entry of a list that is read entry by entry.

The longest genuine entries, chats of ten million tokens, have 43 million characters.
"""

MAX_FILE_LENGTH = 2**29
"""Most characters of a file that is read as a whole."""

_CHUNK_LENGTH = 2**20
"""Characters that are read at once."""

_SIGNATURES = {
    b"\x1f\x8b": "it is compressed",
    b"\xff\xfe": "it is UTF-16",
    b"\xfe\xff": "it is UTF-16",
}
"""The first two bytes of common files that are not UTF-8, and what the files are."""


def check_regular_file(path: Path) -> None:
    """Refuse what is not a regular file.

    This is checked before the file is opened, since opening a pipe waits until somebody writes.

    Raises:
        DataError: The file is missing, or is a folder, a device, a pipe or a socket.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {_reason_without_path(error)}") from error

    if stat.S_ISDIR(mode):
        raise DataError(f"{path}: cannot be read: it is a folder; name a file")
    if not stat.S_ISREG(mode):
        raise DataError(
            f"{path}: cannot be read: it is a pipe or a device; name a file that holds its content"
        )


@contextmanager
def open_text_file(path: Path, newline: str | None = None) -> Generator[TextIO]:
    """Open a UTF-8 text file for reading, without its byte-order mark; unpack a .gz file.

    Errors of reading in the block become a DataError too.

    Args:
        path: The file.
        newline: As for Python's `open`.

    Raises:
        DataError: The file is missing, not a regular file, or not UTF-8 text.
    """
    check_regular_file(path)
    try:
        with _open(path, newline) as file:
            yield file
    except UnicodeDecodeError as error:
        first_bytes = error.object[:2]
        problem = _SIGNATURES.get(first_bytes, f"byte {error.start} is wrong")
        raise DataError(
            f"{path}: cannot be read as UTF-8 text: {problem}; save it unpacked, as UTF-8"
        ) from error
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {_reason_without_path(error)}") from error


def _open(path: Path, newline: str | None) -> TextIO:
    """Open a text file, packed or not. The encoding skips a byte-order mark."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline=newline)
    return path.open(encoding="utf-8-sig", newline=newline)


def read_text(path: Path) -> str:
    """Return the text of a file that must not be empty.

    Raises:
        DataError: The file cannot be read as text, is empty, or is longer than `MAX_FILE_LENGTH`.
    """
    text = read_bounded(path, MAX_FILE_LENGTH, "split it into smaller files")
    if not text.strip():
        raise DataError(f"{path}: the file is empty")
    return text


def read_bounded(path: Path, max_length: int, fix: str) -> str:
    """Return the text of a file that may be empty.

    Args:
        path: The file.
        max_length: The most characters of the file.
        fix: What to do about a longer file, for the error.

    Raises:
        DataError: The file cannot be read as text, or is longer.
    """
    chunks: list[str] = []
    length = 0
    with open_text_file(path) as file:
        while chunk := file.read(_CHUNK_LENGTH):
            length += len(chunk)
            if length > max_length:
                raise DataError(f"{path}: has more than {max_length:,} characters; {fix}")
            chunks.append(chunk)
    return "".join(chunks)


def read_lines(file: TextIO, path: Path) -> Iterator[str]:
    """Yield the lines of an open file, with their line breaks.

    Args:
        file: The file, from `open_text_file`.
        path: Its path, for errors.

    Raises:
        DataError: A line has more than `MAX_LINE_LENGTH` characters.
    """
    number = 0
    # One character more than allowed is enough to see that a line is too long.
    while line := file.readline(MAX_LINE_LENGTH + 1):
        number += 1
        if len(line) > MAX_LINE_LENGTH:
            raise DataError(
                f"{path}: line {number} has more than {MAX_LINE_LENGTH:,} characters; "
                "is a line break missing?"
            )
        yield line


def _reason_without_path(error: Exception) -> object:
    """Return the reason of an error without the path, with which our messages begin."""
    reason = getattr(error, "strerror", None)
    return reason or error
